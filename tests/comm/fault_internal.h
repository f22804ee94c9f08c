/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files that draw faults, play them and read reports share.
 */
#ifndef TEST_COMM_FAULT_INTERNAL_H
#define TEST_COMM_FAULT_INTERNAL_H

#include "tests/comm/fault.h"
#include "tests/comm/player.h"

#define FAULT_TIMEOUT_MS 20000u
#define FAULT_BEFORE 6u /* most steps before the fault */
/* Words of e->all->notes: the rank's process, and where survivors meet. */
#define FAULT_NOTE_PID 60
#define FAULT_NOTE_MET 61

typedef struct fault {
    fault_kind kind;
    uint32_t rank;    /* at fault */
    uint32_t missing; /* comes to the call when all is over, or NOBODY */
    uint32_t twin;    /* of the group, which goes on */
    uint32_t before;  /* steps before the fault */
    uint32_t variant;
    uint32_t compares_not;
    program_step step;  /* what the others make of it */
    program_step other; /* and what the rank at fault does */
} fault;

/* Draws a fault and the program around it. */
void fault_draw(fault *f, program *p, uint64_t seed, uint32_t size,
                fault_kind kind, uint32_t compares_not);
static inline int fault_has(const program *p, const fault *f, uint32_t rank)
{
    return program_index(p, &f->step, rank) != NOBODY;
}
/* 1 if all goes on as if there were no fault. */
int fault_is_harmless(const fault *f, const ranks_env *e);
/* The cause in words. */
void fault_print_cause(const fault *f, char *out, size_t cap);
/* Checks the last report, for a rank that made `mine`: "CALL: CAUSE: what each
 * rank does". */
void fault_check_report(player *pl, const fault *f, const program_step *mine);

#endif
