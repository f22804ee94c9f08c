/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives among threads of one process, for tests: every rank sums in rank
 * order. Who waits more than some seconds gets XRAY_E_PEER.
 */
#ifndef TEST_TRAIN_MEET_H
#define TEST_TRAIN_MEET_H

#include <xray/comm.h>

#define MEET_MAX 8

typedef struct meet meet;
meet *meet_open(uint32_t size);
void meet_close(meet *m);
const xray_comm_ops *meet_ops(void);
/* What `received` takes, and the group of all. */
void *meet_self(meet *m, uint32_t rank);
/* xray_comm_setup's exchange; ctx is meet_self(). */
xray_status meet_exchange(void *ctx, const void *mine, uint64_t size,
                          void *all);
xray_comm_group *meet_group(meet *m, uint32_t rank);

#endif
