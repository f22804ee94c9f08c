/* SPDX-License-Identifier: Apache-2.0
 *
 * A WholeModel of four ranks with scripted Workhorses: the script keeps what
 * they receive and decides what they answer. The linker puts it in place of
 * calls to actors.
 */
#ifndef TESTS_RL_WHOLE_RIG_H
#define TESTS_RL_WHOLE_RIG_H

#include "core/roles/whole_inner.h"
#include "tests/rl/fake_roles.h"
#include "tests/testing.h"

#define RANKS 4
#define ROWS 7
#define TOKENS 38 /* tokens of all rows */
#define NEVER UINT32_MAX
#define PATIENCE 10 /* looks for which a canceled run waits */

typedef struct whole_script {
    char log[1024];             /* log of calls: "forward 1; forward 3; " */
    xray_status unsent[RANKS];  /* status of sending a call to the rank */
    xray_status unasked[RANKS]; /* status of asking the rank */
    uint64_t ship_bytes[RANKS]; /* sizes of their sections of the weights */
    xray_status answer[RANKS];  /* status of the next call's answer */
    const char *says[RANKS];    /* sentence of the answer */
    const char *fault[RANKS];   /* fault that gradients find */
    double added[RANKS]; /* what gradients add to sum 0; twice that to sum 1 */
    double start[RANKS]; /* sum 0 as it arrived */
    uint32_t views[RANKS]; /* requested micro-batches */
    uint32_t needs[RANKS]; /* micro-batches that the rank's rows need */
    uint32_t rows[RANKS];
    const void *region[RANKS]; /* data of the region that the rank received */
    uint32_t who[ROWS];        /* rank that received the row */
    uint32_t dropped;          /* dropped futures */
    uint32_t regions;          /* regions that were not returned */
    uint32_t
        late[RANKS]; /* looks before the rank answers; NEVER: it does not */
    uint32_t looks;
    uint32_t lost; /* 1: an actor is lost */
    double norm[RANKS];
    uint32_t skipped[RANKS];
    uint64_t version[RANKS];
    const char *metrics[RANKS]; /* lines of those of their plugins */
    xr_loss_spec spec;
    unsigned char context[8];
} whole_script;

/* A rank that does not answer for its replica writes nothing. */
extern whole_script script;
extern const uint32_t whole_lengths[ROWS]; /* tokens per row */
/* Traces of a runtime that has more to record than the core reads. */
typedef struct whole_trace {
    xray_comm_trace own;
    uint64_t rest[2];
} whole_trace;
extern whole_trace whole_traces[RANKS];
extern xr_run run; /* trainer on ranks 0, 1, 3, engines on 1, 2 */
extern xr_roles roles;
extern xr_whole whole;
extern xr_rows whole_rows;
extern xr_views views; /* views of all rows */
extern xr_err whole_err;

/* Returns output k of token t of a row. */
float whole_output(uint32_t row, uint32_t t, int k);

/* Expects these calls since the last check. */
void expect_calls(const char *want);
xray_status call_forward(float out[3][TOKENS], uint32_t outputs);
extern double sums[2]; /* of the last gradients */
extern double weights[2];
xray_status call_gradients(xr_err *fault, int weighted);
/* Five prompts, two engines, two samples each; prompt p has 1 + p % 2 ids. */
xray_status call_generate(xr_samples *out, uint32_t count);

#define OUT_OF_STEP "the ranks are out of step after an error"

int whole_begin(void **state);
int whole_end(void **state);

#endif
