/* SPDX-License-Identifier: Apache-2.0
 *
 * Data sets: JSON lines become rows of prompt ids and what rewards need.
 *
 * A row is {prompt_key: text, answer_key: text, ...}, or verl's schema: prompt
 * =
 * [{role, content}], data_source, reward_model = {ground_truth}, extra_info. A
 * list of messages is joined by its contents, one line each, as long as no chat
 * template is executed.
 */
#ifndef XR_DATA_H
#define XR_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/config/run.h"
#include "model/text/tokenizer.h"

typedef struct xr_row {
    uint64_t id;              /* place in the files, counted from 0, before any
                               * filter: the prompt id of draws */
    const char *prompt;       /* with the template around it */
    const char *ground_truth; /* "" if there is none */
    const char *data_source;  /* "" if there is none */
    const char *fields_json;  /* the whole line */
    const int32_t *ids; /* the prompt's tokens; SFT: prompt, response, EOS */
    uint32_t id_count;
    uint32_t prompt_count; /* tokens of the prompt among them */
} xr_row;

enum { XR_DATA_PROMPTS, XR_DATA_SFT };

typedef struct xr_dataset xr_dataset;

/* Reads `files`. A malformed line, or one that lacks a key, is an error with
 * file and line. Prompts over max_prompt_length are left out, cut, or an error,
 * as [data] says; `max_samples` -1: all. */
xray_status xr_dataset_open(const xr_data_section *data, const xray_list *files,
                            int64_t max_samples, int kind,
                            const xm_tokenizer *tokenizer, xr_err *err,
                            xr_dataset **out);
void xr_dataset_close(xr_dataset *set); /* accepts NULL */
size_t xr_dataset_count(const xr_dataset *set);
const xr_row *xr_dataset_row(const xr_dataset *set, size_t i);
/* How many rows were left out, and how many cut, for their length. */
size_t xr_dataset_filtered(const xr_dataset *set);
size_t xr_dataset_truncated(const xr_dataset *set);

/* The order in which rows are drawn: a permutation an epoch, by Philox of
 * (seed, epoch), or file order. Its state is two numbers. */
typedef struct xr_sampler {
    uint64_t seed;
    uint64_t count;
    uint64_t epoch;
    uint64_t position; /* rows drawn in this epoch */
    uint32_t shuffle;
    uint32_t reserved;
    uint32_t *order; /* [count] of `order_epoch` */
    uint64_t order_epoch;
} xr_sampler;
xray_status xr_sampler_init(xr_sampler *sampler, uint64_t count, uint64_t seed,
                            int shuffle, xr_err *err);
void xr_sampler_free(xr_sampler *sampler);
/* The next row's index; a new epoch begins when one is used up. */
uint32_t xr_sampler_next(xr_sampler *sampler);
/* Steps an epoch has for batches of `batch` rows: floor, at least 1. */
uint64_t xr_sampler_steps(const xr_sampler *sampler, uint64_t batch);

#endif
