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
    samples->text_at = xr_calloc(rows + 1, sizeof(*samples->text_at));
    samples->inputs = xr_calloc(rows, sizeof(*samples->inputs));
    samples->score_rows = xr_calloc(rows, sizeof(*samples->score_rows));
    if (!samples->tokens || !samples->logp || !samples->token_scores ||
        !samples->sizes || !samples->finish || !samples->versions ||
        !samples->scores || !samples->text_at || !samples->inputs ||
        !samples->score_rows) {
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
    free(samples->text_at);
    free(samples->inputs);
    free(samples->score_rows);
    xr_str_free(&samples->text);
    *samples = (xr_samples){ .cap = 0 };
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
    return status == XRAY_OK
               ? roles->calls->generate(roles, out, rows, count, how, err)
               : status;
}

const char *xr_samples_text(const xr_samples *samples, uint32_t i)
{
    return samples->text.data + samples->text_at[i];
}

static xray_status decode_samples(xr_roles *roles, xr_samples *samples,
                                  xr_err *err)
{
    xr_str_clear(&samples->text);
    for (uint32_t i = 0; i < samples->count; i++) {
        samples->text_at[i] = samples->text.size;
        xray_status status = xm_tokenizer_decode(
            roles->run->tokenizer,
            samples->tokens + (size_t)i * samples->max_tokens,
            samples->sizes[i], 2, &samples->text, err);
        if (status != XRAY_OK)
            return status;
        xr_str_append(&samples->text, "", 1);
    }
    samples->text_at[samples->count] = samples->text.size;
    return samples->text.failed
               ? xr_fail(err, XRAY_E_NOMEM,
                         "out of memory for the text of %u samples",
                         samples->count)
               : XRAY_OK;
}

xray_status xr_samples_score(xr_roles *roles, xr_samples *samples,
                             const xr_row *const *rows, xr_score_value value,
                             void *ctx, xr_err *err)
{
    xray_status status = decode_samples(roles, samples, err);
    if (status != XRAY_OK)
        return status;
    memset(samples->token_scores, 0,
           (size_t)samples->count * samples->max_tokens *
               sizeof(*samples->token_scores));
    for (uint32_t i = 0; i < samples->count; i++) {
        const xr_row *row = rows[i / samples->n];
        samples->inputs[i] = (xray_sample_in){
            .header = XRAY_HEADER(xray_sample_in),
            .id = i,
            .prompt = row->prompt,
            .response = xr_samples_text(samples, i),
            .ground_truth = row->ground_truth,
            .data_source = row->data_source,
            .fields_json = row->fields_json,
            .prompt_size = strlen(row->prompt),
            .response_size = samples->text_at[i + 1] - samples->text_at[i] - 1,
            .ids = samples->tokens + (size_t)i * samples->max_tokens,
            .id_count = samples->sizes[i],
            .finish = samples->finish[i],
            .prompt_ids = row->ids,
            .prompt_id_count = row->prompt_count,
        };
    }
    return xr_rewards_score(roles, samples->inputs, samples->count,
                            samples->scores, samples->score_rows, value, ctx,
                            err);
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
