/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives among threads of one process, for tests. Sums are those of every
 * comm. A rank that waits for more than some seconds gets XRAY_E_PEER.
 */
#ifndef TEST_TRAIN_THREAD_COMM_H
#define TEST_TRAIN_THREAD_COMM_H

#include <xray/comm.h>

#define THREAD_COMM_MAX 8

typedef struct thread_comm thread_comm;
thread_comm *thread_comm_open(uint32_t size);
void thread_comm_close(thread_comm *m);
const xray_comm_ops *thread_comm_ops(void);
/* The bytes that a rank received from others so far, as over wires: an
 * all_gather or a reduce_scatter brings all parts but its own, an all_reduce as
 * many as both. */
uint64_t thread_comm_received(const thread_comm *m, uint32_t rank);
/* The collectives and messages that a rank made, and the floats, or numbers in
 * bf16, that it gave to them. */
typedef struct thread_comm_calls {
    uint64_t calls;
    uint64_t floats;
} thread_comm_calls;
typedef struct thread_comm_traffic {
    thread_comm_calls all_reduce;
    thread_comm_calls all_reduce_max;
    thread_comm_calls reduce_scatter;
    thread_comm_calls all_gather;
    thread_comm_calls broadcast;
    thread_comm_calls send;
} thread_comm_traffic;
/* Zero for NULL. */
thread_comm_traffic thread_comm_made(const thread_comm *m, uint32_t rank);
/* Returns what was made since `before`. */
thread_comm_traffic thread_comm_since(thread_comm_traffic made,
                                      thread_comm_traffic before);
/* The group that ranks of `m` have made of these; NULL if there is none. */
const thread_comm *thread_comm_find(thread_comm *m, const uint32_t *ranks,
                                    uint32_t count);
void *thread_comm_self(thread_comm *m, uint32_t rank);
/* A rank is lost: whoever waits for it, now or later, gets XRAY_E_PEER. */
void thread_comm_leave(void *self);
/* The group of all ranks. */
xray_comm_group *thread_comm_group(thread_comm *m, uint32_t rank);
/* The `gather` of xray_comm_setup; its ctx is thread_comm_self(). */
xray_status thread_comm_gather(void *ctx, const void *mine, uint64_t size,
                               void *all);

#endif
