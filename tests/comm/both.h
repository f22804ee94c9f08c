/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the bits of a comm with those of comm-shm, among the same ranks.
 */
#ifndef TEST_COMM_BOTH_H
#define TEST_COMM_BOTH_H

#include "tests/comm/ranks.h"

typedef struct both {
    const xray_comm_ops *shm;
    void *shm_self;
    xray_comm_group *group; /* of comm-shm */
    char *in;
    char *own_out;
    char *shm_out;
    uint64_t bytes; /* of each */
} both;

/* Makes an instance of comm-shm beside that of the rank, without buffers. */
both both_begin(ranks_env *e);
/* Fills with finite numbers of many magnitudes, of either type. */
void both_fill(char *to, uint64_t bytes, uint64_t seed);
/* A scenario: every rank gets the same bits from both, in calls of all kinds
 * and sizes. */
void both_compare(ranks_env *e);

#endif
