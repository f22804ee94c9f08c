/* SPDX-License-Identifier: Apache-2.0
 *
 * Data sets: JSON lines become rows of prompt ids and what rewards need.
 *
 * A row is {prompt_key: text, answer_key: text, ...}, or verl's schema: prompt
 * = [{role, content}], data_source, reward_model = {ground_truth}, extra_info;
 * for SFT also {messages_key: [{role, content}, ...]}. Lists of messages go
 * through the chat template; without one their contents are joined line by
 * line.
 */
#ifndef XR_DATA_H
#define XR_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/config/sections.h"
#include "model/chat/chat.h"
#include "model/text/tokenizer.h"

typedef struct xr_row {
    uint64_t id;              /* place in the files, counted from 0, before any
                               * filter: the prompt id of draws */
    const char *prompt;       /* with the template around it */
    const char *ground_truth; /* "" if there is none */
    const char *data_source;  /* "" if there is none */
    const char *fields_json;  /* the whole line */
    const int32_t *ids;  /* the prompt's tokens; SFT: prompt, response, EOS */
    const uint8_t *mask; /* [id_count] SFT: 1 for tokens to learn; NULL: all
                          * behind the prompt */
    uint32_t id_count;
    uint32_t prompt_count; /* tokens of the prompt among them */
} xr_row;

enum { XR_DATA_PROMPTS, XR_DATA_SFT };
enum { XR_DATA_TRAIN, XR_DATA_VAL };

/* Which rows, and what turns them into tokens. */
typedef struct xr_data_want {
    int part; /* XR_DATA_TRAIN or XR_DATA_VAL */
    int kind; /* XR_DATA_PROMPTS or XR_DATA_SFT */
    const xm_tokenizer *tokenizer;
    const xm_chat *chat; /* from xr_data_chat */
} xr_data_want;

typedef struct xr_dataset xr_dataset;

/* The chat template that [data] and the model's folder give; NULL where none
 * is used. */
xray_status xr_data_chat(const xr_data_section *data, const char *model_dir,
                         xr_err *err, xm_chat **out);
/* What [data] chat_date stands for, in seconds since 1970. */
xray_status xr_data_now(const char *chat_date, xr_err *err, int64_t *out);
/* [data] chat_template_kwargs, which cJSON_Delete releases; NULL: none. */
xray_status xr_data_kwargs(const char *text, xr_err *err, cJSON **out);
/* A list that borrows the messages, with the system prompt ("": none) in front
 * where they have none. NULL when out of memory; cJSON_Delete releases it. */
cJSON *xr_data_messages(const char *system, const cJSON *messages);
/* 1 if there are rows to validate on: val_files or val_split. */
int xr_data_has_val(const xr_data_section *data);

/* Reads the files of a part: plain, gzip or zstd. A malformed line, or one that
 * lacks a key, is an error with file and line. Prompts over max_prompt_length
 * are left out, cut, or an error, as [data] says. */
xray_status xr_dataset_open(const xr_data_section *data,
                            const xr_data_want *want, xr_err *err,
                            xr_dataset **out);
void xr_dataset_close(xr_dataset *set); /* accepts NULL */
size_t xr_dataset_count(const xr_dataset *set);
const xr_row *xr_dataset_row(const xr_dataset *set, size_t i);
/* How many rows were left out, and how many cut, for their length. */
size_t xr_dataset_filtered(const xr_dataset *set);
size_t xr_dataset_truncated(const xr_dataset *set);
/* How many rows [data] filters left out. */
size_t xr_dataset_unwanted(const xr_dataset *set);

/* Rows [first, first + count) with their share of the draws. */
typedef struct xr_share {
    uint64_t first;
    uint64_t count;
    double weight; /* above 0; equal to count: as many draws as rows */
} xr_share;
/* A part for each file with [data] train_weights, else one of all rows. */
const xr_share *xr_dataset_shares(const xr_dataset *set, size_t *out_count);

/* The order in which rows are drawn: a permutation an epoch, by Philox of
 * (seed, epoch), or file order. An epoch has as many draws as there are rows.
 * With weights part i gets its share of them, to the nearest whole, and goes
 * through its own rows again and again, in a new order each time. The state is
 * two numbers. */
typedef struct xr_sampler {
    uint64_t seed;
    uint64_t count;
    uint64_t epoch;
    uint64_t position; /* rows drawn in this epoch */
    uint32_t shuffle;
    uint32_t part_count;
    xr_share *parts;
    uint64_t *picks; /* [part_count] draws of an epoch */
    uint32_t *order; /* [count] of `order_epoch` */
    uint32_t *pass;  /* [largest part] scratch */
    uint32_t *draws; /* [count] scratch, without shuffle */
    uint64_t *taken; /* [part_count] scratch */
    uint64_t order_epoch;
} xr_sampler;
xray_status xr_sampler_init(xr_sampler *sampler, const xr_share *parts,
                            size_t part_count, uint64_t seed, int shuffle,
                            xr_err *err);
void xr_sampler_free(xr_sampler *sampler);
/* The next row's index; a new epoch begins when one is used up. */
uint32_t xr_sampler_next(xr_sampler *sampler);
/* Steps an epoch has for batches of `batch` rows: floor, at least 1. */
uint64_t xr_sampler_steps(const xr_sampler *sampler, uint64_t batch);

#endif
