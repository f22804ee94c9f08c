/* SPDX-License-Identifier: Apache-2.0
 *
 * What bench-serve gives to engines: prompts of random ids or of a file, and
 * the tokens that an environment appends between the turns of a sample.
 */
#ifndef BENCH_WORKLOAD_H
#define BENCH_WORKLOAD_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

#define OBSERVED 64u /* tokens between two turns */

typedef struct options {
    char engines[128];
    char record[256];
    char lines[256];
    int64_t requests;
    int64_t turns;
    int64_t prompts[2];
    int64_t outputs[2];
    int64_t samples;
    int64_t copies;
    int64_t rounds;
    double temperature;
} options;

/* One sample of the workload, with what the engine has given of it. */
typedef struct sample {
    uint32_t prompt; /* number of its prompt */
    uint32_t prompt_tokens;
    uint32_t max_tokens; /* of all turns */
    uint32_t given;
    uint32_t step;   /* the last one that gave a token */
    uint32_t turn;   /* turns that have ended */
    int32_t *ids;    /* [prompt_tokens] of a line, or NULL */
    int32_t *forced; /* [max_tokens] of a line, or NULL */
} sample;

typedef struct workload {
    options how;
    uint32_t vocab;
    uint32_t count; /* samples */
    sample *samples;
    int32_t *ids;    /* [longest row] */
    int32_t *tokens; /* [count, longest sample] */
} workload;

/* Makes the samples that `how` describes; -1, perhaps with an error, if there
 * are none. workload_free in any case. */
int workload_make(workload *w, xr_err *err);
void workload_free(workload *w);

/* Writes the prompt of a sample to w->ids. */
void workload_prompt(workload *w, const sample *s);
/* Writes the row of sample i up to its present turn; returns its tokens. */
uint32_t workload_row(workload *w, uint32_t i);
/* Writes what the environment says after a turn: OBSERVED ids. */
void workload_observe(const workload *w, uint32_t i, uint32_t turn,
                      int32_t *out);

/* Tokens that a row has at most, those of all turns of a sample at most, and
 * those of one turn of this sample. */
uint64_t workload_longest_row(const options *how);
size_t workload_longest_sample(const options *how);
uint32_t workload_turn_tokens(const workload *w, const sample *s);

#endif
