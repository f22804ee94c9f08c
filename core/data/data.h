/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares data sets, which turn JSON lines into rows of prompt ids with the
 * fields that rewards need, and the sampler that orders the rows. A row is
 * {prompt_key: text, answer_key: text, ...}, or follows verl's schema: prompt =
 * [{role, content}], data_source, reward_model = {ground_truth}, extra_info;
 * for SFT also {messages_key: [{role, content}, ...]}, or TRL's {prompt,
 * completion}, as texts or lists of messages. Lists of messages go
 * through the chat template; without one, their contents are joined line by
 * line.
 */
#ifndef XR_DATA_H
#define XR_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/services.h"
#include "core/config/sections.h"
#include "model/chat/chat.h"
#include "model/text/tokenizer.h"

typedef struct xr_row {
    uint64_t id;              /* index in the files before any filter, from 0;
                               * it keys the random numbers of the prompt's
                               * samples */
    const char *prompt;       /* prompt text with the template applied */
    const char *ground_truth; /* "" if there is none */
    const char *data_source;  /* "" if there is none */
    const char *fields_json;  /* the row's complete line */
    const int32_t *ids;  /* the prompt's tokens; SFT: prompt, response, EOS */
    const uint8_t *mask; /* [id_count] SFT: 1 for tokens to learn; NULL: all
                          * after the prompt */
    uint32_t id_count;
    uint32_t prompt_count; /* number of prompt tokens in `ids` */
} xr_row;

enum { XR_DATA_PROMPTS, XR_DATA_SFT };
enum { XR_DATA_TRAIN, XR_DATA_VAL };

/* Selects rows and the means to tokenize them. */
typedef struct xr_data_want {
    int part; /* XR_DATA_TRAIN or XR_DATA_VAL */
    int kind; /* XR_DATA_PROMPTS or XR_DATA_SFT */
    const xm_tokenizer *tokenizer;
    const xm_chat *chat;            /* from xr_data_chat */
    const xray_call_service *calls; /* NULL: reading is never stopped */
    /* NULL: the first malformed row is an error. Otherwise such rows are left
     * out, and the sentences of the first XR_DATA_ERRORS are added here. */
    xr_errors *errors;
} xr_data_want;
#define XR_DATA_ERRORS 20u

typedef struct xr_dataset xr_dataset;

/* Opens the chat template that [data] and the model's folder define; NULL if
 * none is used. */
xray_status xr_data_chat(const xr_data_section *data, const char *model_dir,
                         xr_err *err, xm_chat **out);
/* Converts [data] chat_date to seconds since 1970. */
xray_status xr_data_now(const char *chat_date, xr_err *err, int64_t *out);
/* Parses [data] chat_template_kwargs, which cJSON_Delete releases; NULL:
 * none. */
xray_status xr_data_kwargs(const char *text, xr_err *err, cJSON **out);
/* Returns a list that borrows the messages and begins with the system prompt
 * ("": none) if they have none of their own. NULL when out of memory;
 * cJSON_Delete releases it. */
cJSON *xr_data_messages(const char *system, const cJSON *messages);
/* 1 if validation rows are configured by val_files or val_split. */
int xr_data_has_val(const xr_data_section *data);

/* Reads the files of a part: plain, gzip or zstd. A malformed line, or one
 * without a required key, is an error with file and line. Prompts over
 * max_prompt_length are left out, cut, or an error, as [data] sets. */
xray_status xr_dataset_open(const xr_data_section *data,
                            const xr_data_want *want, xr_err *err,
                            xr_dataset **out);
void xr_dataset_close(xr_dataset *set); /* accepts NULL */
size_t xr_dataset_count(const xr_dataset *set);
const xr_row *xr_dataset_row(const xr_dataset *set, size_t i);
/* Number of rows that were left out, and of rows that were cut, because of
 * their length. */
size_t xr_dataset_filtered(const xr_dataset *set);
size_t xr_dataset_truncated(const xr_dataset *set);
/* Number of rows that [data] filters left out. */
size_t xr_dataset_unwanted(const xr_dataset *set);
/* Number of malformed rows, which a caller with `errors` gets. */
size_t xr_dataset_refused(const xr_dataset *set);
/* A line for the user that says which columns hold ground truths or responses;
 * NULL if they are those that [data] names. */
const char *xr_dataset_note(const xr_dataset *set);

/* Rows [first, first + count) and their share of the order. */
typedef struct xr_share {
    uint64_t first;
    uint64_t count;
    double weight; /* above 0; equal to count: each row once per epoch */
} xr_share;
/* One share per file with [data] train_weights, otherwise one share of all
 * rows. */
const xr_share *xr_dataset_shares(const xr_dataset *set, size_t *out_count);

/* The order in which rows are visited: one permutation per epoch, by Philox of
 * (seed, epoch), or file order. An epoch has as many positions as there are
 * rows. With weights, each part gets its share of the positions, rounded to
 * integers, and cycles through its own rows in a new order each time. The saved
 * state is two numbers. */
typedef struct xr_sampler {
    uint64_t seed;
    uint64_t count;
    uint64_t epoch;
    uint64_t position; /* rows visited in this epoch */
    uint32_t shuffle;
    uint32_t part_count;
    xr_share *parts;
    uint64_t *picks;     /* [part_count] positions of each part per epoch */
    uint32_t *order;     /* [count] rows of epoch `order_epoch` in order */
    uint32_t *pass;      /* [rows of the largest part] scratch */
    uint32_t *part_rows; /* [count] scratch, without shuffle */
    uint64_t *taken;     /* [part_count] scratch */
    uint64_t order_epoch;
} xr_sampler;
xray_status xr_sampler_init(xr_sampler *sampler, const xr_share *parts,
                            size_t part_count, uint64_t seed, int shuffle,
                            xr_err *err);
void xr_sampler_free(xr_sampler *sampler);
/* Returns the next row's index; a new epoch begins when the last one is used
 * up. */
uint32_t xr_sampler_next(xr_sampler *sampler);
/* Steps per epoch with batches of `batch` rows: rounded down, at least 1. */
uint64_t xr_sampler_steps(const xr_sampler *sampler, uint64_t batch);

#endif
