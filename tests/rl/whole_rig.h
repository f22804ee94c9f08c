/* SPDX-License-Identifier: Apache-2.0
 *
 * A WholeModel of four ranks whose Workhorses are a script: it keeps what they
 * are sent and says what they answer. The linker puts it where calls of actors
 * would be.
 */
#ifndef TESTS_RL_WHOLE_RIG_H
#define TESTS_RL_WHOLE_RIG_H

#include "core/roles/whole_inner.h"
#include "tests/rl/fake_roles.h"
#include "tests/testing.h"

#define RANKS 4
#define ROWS 7
#define TOKENS 38 /* of all rows */

typedef struct whole_script {
    char log[1024];            /* "forward 1; forward 3; " */
    xray_status unsent[RANKS]; /* a call does not reach the rank */
    xray_status answer[RANKS]; /* of the next call */
    const char *says[RANKS];   /* the answer's sentence */
    const char *fault[RANKS];  /* what gradients find */
    double added[RANKS];       /* what they add to sum 0; twice that to 1 */
    double start[RANKS];       /* sum 0 as it came */
    uint32_t views[RANKS];     /* micro-batches that were asked for */
    uint32_t needs[RANKS];     /* that the rank's rows take */
    uint32_t rows[RANKS];
    uint32_t who[ROWS]; /* has the row */
    uint32_t dropped;   /* futures */
    uint32_t regions;   /* taken and not put */
    uint32_t silent;    /* 1: nobody answers */
    uint32_t lost;      /* 1: an actor is */
    double norm[RANKS];
    uint32_t skipped[RANKS];
    uint64_t version[RANKS];
    xr_loss_spec spec;
    unsigned char context[8];
} whole_script;

extern whole_script script;
extern const uint32_t whole_lengths[ROWS]; /* tokens */
extern xray_comm_trace whole_traces[RANKS];
extern xr_run run; /* its trainer is on ranks 0, 1, 3, its engines on 1, 2 */
extern xr_roles roles;
extern xr_whole whole;
extern xr_rows whole_rows;
extern xr_views views; /* of all rows */
extern xr_err whole_err;

/* A token of row r at place t has this as its output k. */
float whole_output(uint32_t row, uint32_t t, int k);

int whole_begin(void **state);
int whole_end(void **state);

#endif
