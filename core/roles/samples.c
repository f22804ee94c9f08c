/* SPDX-License-Identifier: Apache-2.0
 *
 * Generates, decodes, scores and writes samples.
 */
#include "core/roles/samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/roles/publish.h"
#include "core/roles/role_calls.h"

xray_status xr_samples_init(xr_samples *samples, uint64_t cap,
                            uint64_t max_tokens, xr_err *err)
{
    size_t rows = (size_t)cap;
    size_t tokens = rows * (size_t)max_tokens;
    *samples = (xr_samples){ .cap = (uint32_t)cap,
                             .max_tokens = (uint32_t)max_tokens };
    samples->tokens = xr_calloc(tokens, sizeof(*samples->tokens));
    samples->logp = xr_calloc(tokens, sizeof(*samples->logp));
    samples->token_scores = xr_calloc(tokens, sizeof(*samples->token_scores));
    samples->sizes = xr_calloc(rows, sizeof(*samples->sizes));
    samples->finish = xr_calloc(rows, sizeof(*samples->finish));
    samples->versions = xr_calloc(rows, sizeof(*samples->versions));
    samples->scores = xr_calloc(rows, sizeof(*samples->scores));
    samples->texts = xr_calloc(rows, sizeof(*samples->texts));
    samples->missing = xr_calloc(rows, sizeof(*samples->missing));
    samples->inputs = xr_calloc(rows, sizeof(*samples->inputs));
    samples->score_rows = xr_calloc(rows, sizeof(*samples->score_rows));
    if (!samples->tokens || !samples->logp || !samples->token_scores ||
        !samples->sizes || !samples->finish || !samples->versions ||
        !samples->scores || !samples->texts || !samples->missing ||
        !samples->inputs || !samples->score_rows) {
        xr_samples_free(samples);
        return xr_fail(err, XRAY_E_NOMEM,
                       "out of memory for %llu samples of %llu tokens",
                       (unsigned long long)cap, (unsigned long long)max_tokens);
    }
    for (size_t i = 0; i < rows; i++)
        samples->score_rows[i] = samples->token_scores + i * (size_t)max_tokens;
    return XRAY_OK;
}

void xr_samples_free(xr_samples *samples)
{
    free(samples->tokens);
    free(samples->logp);
    free(samples->token_scores);
    free(samples->sizes);
    free(samples->finish);
    free(samples->versions);
    free(samples->scores);
    for (uint32_t i = 0; samples->texts && i < samples->cap; i++)
        xr_str_free(&samples->texts[i]);
    free(samples->texts);
    free(samples->missing);
    free(samples->inputs);
    free(samples->score_rows);
    xr_scoring_free(samples->kept);
    *samples = (xr_samples){ .cap = 0 };
}

/* ---- input of the rewards ------------------------------------------------ */

const char *xr_samples_text(const xr_samples *samples, uint32_t i)
{
    return samples->texts[i].data;
}

/* Decodes sample i of a row and makes the input of the rewards. */
static xray_status prepare_input(xr_roles *roles, xr_samples *samples,
                                 const xr_row *row, uint32_t i, xr_err *err)
{
    xr_str *text = &samples->texts[i];
    const int32_t *ids = samples->tokens + (size_t)i * samples->max_tokens;
    xr_str_clear(text);
    xray_status status = xm_tokenizer_decode(roles->run->tokenizer, ids,
                                             samples->sizes[i], 2, text, err);
    if (status != XRAY_OK)
        return status;
    xr_str_append(text, "", 1);
    if (text->failed)
        return xr_fail(err, XRAY_E_NOMEM,
                       "out of memory for the text of %u samples",
                       samples->count);
    samples->inputs[i] = (xray_sample_in){
        .header = XRAY_HEADER(xray_sample_in),
        .id = i,
        .prompt = row->prompt,
        .response = text->data,
        .ground_truth = row->ground_truth,
        .data_source = row->data_source,
        .fields_json = row->fields_json,
        .prompt_size = strlen(row->prompt),
        .response_size = text->size - 1,
        .ids = ids,
        .id_count = samples->sizes[i],
        .finish = samples->finish[i],
        .prompt_ids = row->ids,
        .prompt_id_count = row->prompt_count,
    };
    return XRAY_OK;
}

/* ---- a rollout ----------------------------------------------------------- */

static xray_status begin_scoring(xr_roles *roles, xr_samples *samples,
                                 xr_err *err)
{
    xray_status status = xr_scoring_begin(roles, samples->inputs,
                                          samples->count, err, &samples->kept);
    if (status == XRAY_OK)
        samples->scoring = samples->kept;
    return status;
}

/* Lets rewards work beside the rollout if there are any that do. A Workhorse
 * has no rewards, and samples without inputs. */
static xray_status begin_beside(xr_roles *roles, xr_samples *samples,
                                const xr_row *const *rows, xr_err *err)
{
    samples->scoring = NULL;
    samples->beside = 0;
    if (!samples->inputs || !xr_rewards_work_beside(roles))
        return XRAY_OK;
    samples->rows = rows;
    for (uint32_t i = 0; i < samples->count / samples->n; i++)
        samples->missing[i] = samples->n;
    return begin_scoring(roles, samples, err);
}

/* A step that is left out goes on with the same rewards. */
static void end_beside(const xr_roles *roles, xr_samples *samples,
                       xray_status status)
{
    if (!samples->scoring)
        return;
    samples->beside = xr_scoring_beside(samples->scoring);
    if (status == XRAY_OK)
        return;
    if (roles->nonfinite)
        xr_scoring_drain(samples->scoring);
    samples->scoring = NULL;
}

xray_status xr_samples_generate(xr_roles *roles, xr_samples *out,
                                const xr_row *const *rows, uint32_t count,
                                const xr_sampling *how, xr_err *err)
{
    uint64_t all = (uint64_t)count * how->n;
    xray_status status = XRAY_OK;
    if (all > out->cap || how->max_tokens > out->max_tokens)
        return xr_fail(err, XRAY_E_BUG, "%llu samples of %u tokens do not fit",
                       (unsigned long long)all, how->max_tokens);
    out->count = (uint32_t)all;
    out->n = how->n;
    if (roles->published.due && roles->actor.self)
        status = xr_publish(roles, err);
    if (status == XRAY_OK)
        status = begin_beside(roles, out, rows, err);
    if (status == XRAY_OK)
        status = roles->calls->generate(roles, out, rows, count, how, err);
    end_beside(roles, out, status);
    return status;
}

xray_status xr_samples_arrived(xr_roles *roles, xr_samples *samples, uint32_t i,
                               xr_err *err)
{
    xray_status status = XRAY_OK;
    if (!samples->scoring)
        return XRAY_OK;
    uint32_t row = i / samples->n;
    uint32_t first = row * samples->n;
    if (--samples->missing[row])
        return XRAY_OK;
    for (uint32_t k = 0; k < samples->n && status == XRAY_OK; k++)
        status =
            prepare_input(roles, samples, samples->rows[row], first + k, err);
    return status == XRAY_OK
               ? xr_scoring_submit(samples->scoring, first, samples->n, err)
               : status;
}

xray_status xr_samples_look(xr_samples *samples, xr_err *err)
{
    return samples->scoring ? xr_scoring_look(samples->scoring, err) : XRAY_OK;
}

xray_status xr_samples_score(xr_roles *roles, xr_samples *samples,
                             const xr_row *const *rows, xr_score_value value,
                             void *ctx, xr_err *err)
{
    const xr_scored out = { samples->scores, samples->score_rows, value, ctx };
    xray_status status = XRAY_OK;
    for (uint32_t i = 0;
         !samples->scoring && status == XRAY_OK && i < samples->count; i++)
        status = prepare_input(roles, samples, rows[i / samples->n], i, err);
    memset(samples->token_scores, 0,
           (size_t)samples->count * samples->max_tokens *
               sizeof(*samples->token_scores));
    if (status == XRAY_OK && !samples->scoring)
        status = begin_scoring(roles, samples, err);
    if (status == XRAY_OK)
        status = xr_scoring_finish(samples->scoring, &out, err);
    samples->scoring = NULL;
    return status;
}

void xr_samples_append_line(const xr_samples *samples,
                            const xr_row *const *rows, uint32_t i,
                            uint64_t step, const char *more, xr_str *out)
{
    const xr_row *row = rows[i / samples->n];
    const xray_sample_in *in = &samples->inputs[i];
    xr_str_printf(out, "{\"step\":%llu,\"prompt\":", (unsigned long long)step);
    xr_str_json(out, row->prompt, (size_t)in->prompt_size);
    xr_str_puts(out, ",\"response\":");
    xr_str_json(out, in->response, (size_t)in->response_size);
    xr_str_puts(out, ",\"ground_truth\":");
    xr_str_json(out, row->ground_truth, strlen(row->ground_truth));
    xr_str_puts(out, ",\"score\":");
    xr_str_number(out, samples->scores[i].score);
    xr_str_puts(out, more);
    xr_str_puts(out, "}\n");
}

xray_status xr_samples_write(const char *dir, uint64_t step,
                             const xr_str *lines, xr_err *err)
{
    char path[XR_PATH_CAP];
    xray_status status = xr_dir_make(dir, err);
    (void)snprintf(path, sizeof(path), "%s/%llu.jsonl", dir,
                   (unsigned long long)step);
    if (status == XRAY_OK && lines->failed)
        status = xr_fail(err, XRAY_E_NOMEM, "out of memory for %s", path);
    return status == XRAY_OK
               ? xr_file_write(path, xr_str_text(lines), lines->size, err)
               : status;
}
