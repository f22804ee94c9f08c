/* SPDX-License-Identifier: Apache-2.0 */
#include "core/roles/samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/roles/publish.h"
#include "core/roles/role.h"

xray_status xr_samples_init(xr_samples *s, uint64_t cap, uint64_t max_tokens,
                            xr_err *err)
{
    size_t rows = (size_t)cap;
    size_t tokens = rows * (size_t)max_tokens;
    *s = (xr_samples){ .cap = (uint32_t)cap,
                       .max_tokens = (uint32_t)max_tokens };
    s->tokens = xr_calloc(tokens, sizeof(*s->tokens));
    s->logp = xr_calloc(tokens, sizeof(*s->logp));
    s->token_scores = xr_calloc(tokens, sizeof(*s->token_scores));
    s->sizes = xr_calloc(rows, sizeof(*s->sizes));
    s->finish = xr_calloc(rows, sizeof(*s->finish));
    s->versions = xr_calloc(rows, sizeof(*s->versions));
    s->scores = xr_calloc(rows, sizeof(*s->scores));
    s->text_at = xr_calloc(rows + 1, sizeof(*s->text_at));
    s->inputs = xr_calloc(rows, sizeof(*s->inputs));
    s->score_rows = xr_calloc(rows, sizeof(*s->score_rows));
    if (!s->tokens || !s->logp || !s->token_scores || !s->sizes || !s->finish ||
        !s->versions || !s->scores || !s->text_at || !s->inputs ||
        !s->score_rows) {
        xr_samples_free(s);
        return xr_fail(err, XRAY_E_NOMEM,
                       "out of memory for %llu samples of %llu tokens",
                       (unsigned long long)cap, (unsigned long long)max_tokens);
    }
    for (size_t i = 0; i < rows; i++)
        s->score_rows[i] = s->token_scores + i * (size_t)max_tokens;
    return XRAY_OK;
}

void xr_samples_free(xr_samples *s)
{
    free(s->tokens);
    free(s->logp);
    free(s->token_scores);
    free(s->sizes);
    free(s->finish);
    free(s->versions);
    free(s->scores);
    free(s->text_at);
    free(s->inputs);
    free(s->score_rows);
    xr_str_free(&s->text);
    *s = (xr_samples){ .cap = 0 };
}

xray_status xr_samples_generate(xr_roles *s, xr_samples *out,
                                const xr_row *const *rows, uint32_t count,
                                const xr_sampling *how,
                                const volatile sig_atomic_t *stop, xr_err *err)
{
    uint64_t all = (uint64_t)count * how->n;
    xray_status status = XRAY_OK;
    if (all > out->cap || how->max_tokens > out->max_tokens)
        return xr_fail(err, XRAY_E_BUG,
                       "%llu samples of %u tokens have no room",
                       (unsigned long long)all, how->max_tokens);
    out->count = (uint32_t)all;
    out->n = how->n;
    if (s->published.due && s->actor.self)
        status = xr_publish(s, err);
    return status == XRAY_OK
               ? s->calls->generate(s, out, rows, count, how, stop, err)
               : status;
}

const char *xr_samples_text(const xr_samples *s, uint32_t i)
{
    return s->text.data + s->text_at[i];
}

static xray_status decode(xr_roles *roles, xr_samples *s, xr_err *err)
{
    xr_str_clear(&s->text);
    for (uint32_t i = 0; i < s->count; i++) {
        s->text_at[i] = s->text.size;
        xray_status status = xm_tokenizer_decode(
            roles->run->tokenizer, s->tokens + (size_t)i * s->max_tokens,
            s->sizes[i], 2, &s->text, err);
        if (status != XRAY_OK)
            return status;
        xr_str_append(&s->text, "", 1);
    }
    s->text_at[s->count] = s->text.size;
    return s->text.failed
               ? xr_fail(err, XRAY_E_NOMEM,
                         "out of memory for the text of %u samples", s->count)
               : XRAY_OK;
}

xray_status xr_samples_score(xr_roles *roles, xr_samples *s,
                             const xr_row *const *rows, xr_score_value value,
                             void *ctx, xr_err *err)
{
    xray_status status = decode(roles, s, err);
    if (status != XRAY_OK)
        return status;
    memset(s->token_scores, 0,
           (size_t)s->count * s->max_tokens * sizeof(*s->token_scores));
    for (uint32_t i = 0; i < s->count; i++) {
        const xr_row *row = rows[i / s->n];
        s->inputs[i] = (xray_sample_in){
            .header = XRAY_HEADER(xray_sample_in),
            .id = i,
            .prompt = row->prompt,
            .response = xr_samples_text(s, i),
            .ground_truth = row->ground_truth,
            .data_source = row->data_source,
            .fields_json = row->fields_json,
            .prompt_size = strlen(row->prompt),
            .response_size = s->text_at[i + 1] - s->text_at[i] - 1,
            .ids = s->tokens + (size_t)i * s->max_tokens,
            .id_count = s->sizes[i],
            .finish = s->finish[i],
            .prompt_ids = row->ids,
            .prompt_id_count = row->prompt_count,
        };
    }
    return xr_rewards_score(roles, s->inputs, s->count, s->scores,
                            s->score_rows, value, ctx, err);
}

void xr_samples_line(const xr_samples *s, const xr_row *const *rows, uint32_t i,
                     uint64_t step, const char *more, xr_str *out)
{
    const xr_row *row = rows[i / s->n];
    const xray_sample_in *in = &s->inputs[i];
    xr_str_printf(out, "{\"step\":%llu,\"prompt\":", (unsigned long long)step);
    xr_str_json(out, row->prompt, (size_t)in->prompt_size);
    xr_str_puts(out, ",\"response\":");
    xr_str_json(out, in->response, (size_t)in->response_size);
    xr_str_puts(out, ",\"ground_truth\":");
    xr_str_json(out, row->ground_truth, strlen(row->ground_truth));
    xr_str_puts(out, ",\"score\":");
    xr_str_number(out, s->scores[i].score);
    xr_str_puts(out, more);
    xr_str_puts(out, "}\n");
}

xray_status xr_samples_keep(const char *dir, uint64_t step, const xr_str *lines,
                            xr_err *err)
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
