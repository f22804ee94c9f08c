/* SPDX-License-Identifier: Apache-2.0
 *
 * One drawn fault in a drawn program: a rank that makes another call, or none,
 * or ends; and what every other rank must be told.
 */
#ifndef TEST_COMM_FAULT_H
#define TEST_COMM_FAULT_H

#include "tests/comm/ranks.h"

typedef enum fault_kind {
    FAULT_OTHER_CALL,
    FAULT_OTHER_SIZE,
    FAULT_OTHER_TYPE,
    FAULT_OTHER_ROOT,
    FAULT_OTHER_GROUP,
    FAULT_ILLEGAL, /* an illegal call, and then the right one */
    FAULT_IN_TIME, /* arrives shortly before the timeout */
    FAULT_LATE,
    FAULT_ABORTED,
    FAULT_CANCELED,
    FAULT_MEMORY, /* a buffer that cannot be shared */
    FAULT_LEFT,
    FAULT_ALIVE, /* number of those after which all processes live */
    FAULT_KILLED = FAULT_ALIVE,
    FAULT_EXITED,
    FAULT_KILLED_IN_CALL,
    FAULT_STOPPED,
    FAULT_KINDS
} fault_kind;

/* Plays a program up to the fault, the fault, and what comes after it. */
void fault_play(ranks_env *e, uint64_t seed, fault_kind kind);
/* The rank at fault, and how its process ends, as in ranks_run. */
uint32_t fault_rank(uint64_t seed, uint32_t size, fault_kind kind);
char fault_fate(fault_kind kind);

#endif
