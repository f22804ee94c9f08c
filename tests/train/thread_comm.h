/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives among threads of one process, for tests. Every rank sums in rank
 * order. A rank that waits for more than some seconds gets XRAY_E_PEER.
 */
#ifndef TEST_TRAIN_THREAD_COMM_H
#define TEST_TRAIN_THREAD_COMM_H

#include <xray/comm.h>

#define THREAD_COMM_MAX 8

typedef struct thread_comm thread_comm;
thread_comm *thread_comm_open(uint32_t size);
void thread_comm_close(thread_comm *m);
const xray_comm_ops *thread_comm_ops(void);
/* The argument of `received`, and the group of all ranks. */
void *thread_comm_self(thread_comm *m, uint32_t rank);
/* The `exchange` of xray_comm_setup; its ctx is thread_comm_self(). */
xray_status thread_comm_exchange(void *ctx, const void *mine, uint64_t size,
                                 void *all);
xray_comm_group *thread_comm_group(thread_comm *m, uint32_t rank);

#endif
