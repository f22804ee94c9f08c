/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs of calls that are drawn from a number: groups of the ranks, and
 * calls of every kind in them; and what each rank holds after each of them,
 * computed by plain loops.
 */
#ifndef TEST_COMM_PROGRAM_H
#define TEST_COMM_PROGRAM_H

#include "tests/comm/ranks.h"

#define PROGRAM_GROUPS 6
#define PROGRAM_STEPS 50
#define PROGRAM_STREAMS 3
#define NOBODY UINT32_MAX

/* A call that ranks of a group make together. Ranks are indices in the group.
 * Of messages there are: a send of `root` to `peer` and its recv; exchanges of
 * the two with each other (`pair`); and exchanges of all, each with the ranks
 * `peer` places after and before it. */
typedef struct program_step {
    uint32_t group;
    uint32_t call; /* XRAY_COMM_*, of messages SEND and EXCHANGE */
    uint32_t dtype;
    uint32_t root;
    uint32_t peer;
    uint32_t pair;
    uint32_t alone;    /* makes a send and a recv instead of an exchange */
    uint32_t last;     /* 1: the send after the recv */
    uint32_t special;  /* 1: infinities, NaN, zeros, subnormal numbers, too */
    uint32_t in_place; /* of the calls that may be */
    uint32_t stream;
    uint64_t count; /* elements; bytes of a broadcast or message */
    uint64_t seed;  /* of values, places and delays */
} program_step;

typedef struct program {
    uint32_t size;
    uint32_t group_count;
    uint32_t sizes[PROGRAM_GROUPS + 1];
    uint32_t ranks[PROGRAM_GROUPS + 1][MOST_RANKS];
    uint32_t step_count;
    program_step steps[PROGRAM_STEPS];
} program;

/* Draws a program. Group 0 has all ranks, and so has group 1. With `brief` 1
 * there are few large calls. */
void program_draw(program *p, uint64_t seed, uint32_t size, uint32_t brief);
/* Adds a group of the same ranks as another one, which it returns. */
uint32_t program_twin(program *p, uint32_t group);
/* Draws another step in a group of two ranks or more. */
program_step program_draw_step(const program *p, uint64_t seed, uint32_t group,
                               uint32_t brief);

int program_is_message(const program_step *s);
/* The index of a rank in the step's group if it takes part, or NOBODY. */
uint32_t program_index(const program *p, const program_step *s, uint32_t rank);
/* Where a member of an exchange sends, and from where it receives. */
uint32_t program_to(const program *p, const program_step *s, uint32_t index);
uint32_t program_from(const program *p, const program_step *s, uint32_t index);
/* Bytes of what a member sends. */
uint64_t program_sent(const program_step *s, uint32_t index);

uint64_t program_width(uint32_t dtype);
/* Bytes of the buffers of a member; 0: there is none. A call in place has only
 * the second one. */
uint64_t program_in_bytes(const program *p, const program_step *s,
                          uint32_t index);
uint64_t program_out_bytes(const program *p, const program_step *s,
                           uint32_t index);
/* Write the bytes of a member before the call, and return their number, and
 * those after it. */
uint64_t program_fill(const program *p, const program_step *s, uint32_t index,
                      char *to);
void program_expect(const program *p, const program_step *s, uint32_t index,
                    char *to);
/* 1 if a result is what was expected: any NaN is as good as another one, and in
 * a maximum either zero. */
int program_agrees(const program_step *s, const char *got, const char *want,
                   uint64_t bytes);

/* "all_reduce of 64 bytes of f32": the call of a member. `part` is 0 for the
 * whole, 1 or 2 for the send or recv that a member makes of an exchange. */
void program_describe(const program *p, const program_step *s, uint32_t index,
                      uint32_t part, char *out, size_t cap);
/* "all_reduce of 64 bytes": what the record of a member holds of the call. */
void program_record(const program *p, const program_step *s, uint32_t index,
                    uint32_t part, char *out, size_t cap);

#endif
