/* SPDX-License-Identifier: Apache-2.0
 *
 * Plays a drawn program as one of its ranks, on an instance of its own, and
 * checks after each call every byte of the buffers and around them, and what
 * the rank's record says.
 */
#ifndef TEST_COMM_PLAYER_H
#define TEST_COMM_PLAYER_H

#include "tests/comm/program.h"

typedef struct player {
    ranks_env *e;
    program p;
    void *self; /* the instance */
    xray_comm_group *groups[PROGRAM_GROUPS + 1];
    uint64_t numbers[PROGRAM_GROUPS + 1]; /* of groups in messages */
    xray_stream *streams[PROGRAM_STREAMS];
    uint64_t calls; /* as its record counts them */
    char last[256]; /* the last one in words, with its group */
    char before[256];
} player;

/* The buffers of a call. */
typedef struct area {
    char *block; /* NULL: none */
    uint64_t total;
    char *at;
    uint64_t bytes;
} area;

typedef struct buffers {
    area in;
    area out;
    char *filled;     /* on its way to the buffers */
    const char *from; /* what the call gets */
    char *to;
} buffers;

/* Makes the instance and the groups of pl->p. */
void player_open(player *pl, ranks_env *e, const void *config,
                 uint64_t timeout_ms);
void player_close(player *pl);
/* Makes a step as far as this rank takes part in it, and checks its result. */
void player_step(player *pl, const program_step *s);

/* The parts of that. */
void player_prepare(player *pl, const program_step *s, uint32_t index,
                    buffers *b);
xray_status player_call(player *pl, const program_step *s, uint32_t index,
                        const buffers *b);
void player_check_result(player *pl, const program_step *s, uint32_t index,
                         const buffers *b);
/* Checks that nothing but the result was written, and frees the buffers. */
void player_finish(player *pl, const program_step *s, uint32_t index,
                   buffers *b);

/* A process holds so many of each. */
typedef struct holdings {
    uint64_t descriptors;
    uint64_t memory_files; /* that are mapped */
    uint64_t threads;
} holdings;
holdings player_holdings(void);

#endif
