/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rl/samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/rl/given.h"
#include "core/rl/publish.h"
#include "core/rl/turn.h"
#include "core/rl/whole.h"

#define NOT_GIVEN UINT32_MAX /* size of a sample that is still to come */

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

static xray_status submit(xr_session *s, const xr_row *row, uint64_t id,
                          const xr_sampling *how, xr_err *err)
{
    xray_request request = {
        .head = XRAY_HEAD(xray_request),
        .id = id,
        .ids = row->ids,
        .id_count = row->prompt_count,
        .count = how->n,
        .max_tokens = how->max_tokens,
        .seed = how->seed,
        .step = how->step,
        .prompt_id = row->id,
        .temperature = (float)how->temperature,
        .top_p = (float)how->top_p,
        .min_p = (float)how->min_p,
        .top_k = (int32_t)(how->top_k < 0 ? 0 : how->top_k),
        .stop_ids = s->end_ids,
        .stop_count = how->ignore_eos ? 0 : s->end_count,
    };
    xray_status status = XR_CALL(&s->infer, "submit",
                                 xr_infer(s)->submit(s->infer.self, &request));
    return status == XRAY_OK
               ? XRAY_OK
               : xr_host_error(s->infer.host, status, "submit", err);
}

/* Samples come from the weights that were published, no others. */
static xray_status check_version(const xr_session *s, uint64_t at,
                                 const xray_sample_out *sample, xr_err *err)
{
    for (uint32_t i = 0; s->synced && i < sample->span_count; i++)
        if (sample->spans[i].version != s->published)
            return xr_fail(err, XRAY_E_BUG,
                           "%s drew sample %llu with weights of version %llu, "
                           "version %llu was published",
                           s->infer.instance, (unsigned long long)at,
                           (unsigned long long)sample->spans[i].version,
                           (unsigned long long)s->published);
    return XRAY_OK;
}

static xray_status store(xr_session *s, xr_samples *out,
                         const xray_sample_out *sample, xr_err *err)
{
    uint64_t at = sample->id * out->n + sample->sample;
    if (sample->sample >= out->n || sample->id >= out->count / out->n ||
        sample->token_count > out->max_tokens)
        return xr_fail(err, XRAY_E_BUG,
                       "%s gave sample %u of request %llu with %u tokens, "
                       "which was not asked for",
                       s->infer.instance, sample->sample,
                       (unsigned long long)sample->id, sample->token_count);
    if (out->sizes[at] != NOT_GIVEN)
        return xr_fail(err, XRAY_E_BUG,
                       "%s gave sample %u of request %llu "
                       "twice",
                       s->infer.instance, sample->sample,
                       (unsigned long long)sample->id);
    xray_status status =
        xr_given_sample(s, sample, sample->logp, at, out->max_tokens, err);
    if (status == XRAY_OK)
        status = check_version(s, at, sample, err);
    if (status != XRAY_OK)
        return status;
    size_t first = at * out->max_tokens;
    if (sample->token_count) {
        memcpy(out->tokens + first, sample->tokens,
               sample->token_count * sizeof(int32_t));
        memcpy(out->logp + first, sample->logp,
               sample->token_count * sizeof(float));
    }
    out->sizes[at] = sample->token_count;
    out->finish[at] = sample->finish;
    out->versions[at] = sample->span_count ? sample->spans[0].version : 0;
    return XRAY_OK;
}

/* Takes what is ready; counts it off *left. */
static xray_status drain(xr_session *s, xr_samples *out, uint64_t *left,
                         xr_err *err)
{
    for (;;) {
        xray_sample_out sample = { .head = XRAY_HEAD(xray_sample_out) };
        xray_status status = XR_CALL(&s->infer, "poll",
                                     xr_infer(s)->poll(s->infer.self, &sample));
        if (status == XRAY_END || status == XRAY_AGAIN)
            return XRAY_OK;
        if (status != XRAY_OK)
            return xr_host_error(s->infer.host, status, "poll", err);
        status = store(s, out, &sample, err);
        if (status != XRAY_OK)
            return status;
        if (*left)
            --*left;
    }
}

/* Nothing of this rollout may turn up in the next one. An engine that always
 * has one more sample is not listened to forever. */
static void abort_all(xr_session *s, uint32_t count, uint64_t samples)
{
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; i < count; i++)
        (void)XR_CALL(&s->infer, "abort", xr_infer(s)->abort(s->infer.self, i));
    for (uint64_t i = 0; i < samples && status == XRAY_OK; i++) {
        xray_sample_out sample = { .head = XRAY_HEAD(xray_sample_out) };
        status = XR_CALL(&s->infer, "poll",
                         xr_infer(s)->poll(s->infer.self, &sample));
    }
}

/* What an engine has done so far; 0 if it does not tell. */
static uint64_t tokens_made(xr_session *s)
{
    xray_infer_stats stats = { .head = XRAY_HEAD(xray_infer_stats) };
    xray_status status =
        XR_CALL(&s->infer, "stats", xr_infer(s)->stats(s->infer.self, &stats));
    if (status != XRAY_OK)
        return 0;
    if (stats.generation_tokens && s->first_token <= 0)
        s->first_token = xr_now();
    return stats.prompt_tokens + stats.generation_tokens;
}

xray_status xr_samples_progress(xr_session *s, xr_watch *w, uint64_t left,
                                xr_err *err)
{
    int64_t limit = s->run.run.plugin_timeout;
    double now = xr_now();
    uint64_t made = tokens_made(s);
    if (w->since <= 0 || made != w->made || left != w->left)
        *w = (xr_watch){ now, made, left };
    if (!limit || now - w->since <= 1e-9 * (double)limit)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_BUG,
                   "%s made no token for %g s ([run] plugin_timeout), %llu "
                   "samples are missing",
                   s->infer.instance, 1e-9 * (double)limit,
                   (unsigned long long)left);
}

xray_status xr_samples_draw(xr_session *s, xr_samples *out,
                            const xr_row *const *rows, uint32_t count,
                            const xr_sampling *how,
                            const volatile sig_atomic_t *stop, xr_err *err)
{
    uint64_t left = (uint64_t)count * how->n;
    xray_status status = XRAY_OK;
    xr_watch progress = { 0 };
    if (left > out->cap || how->max_tokens > out->max_tokens)
        return xr_fail(err, XRAY_E_BUG,
                       "%llu samples of %u tokens have no room",
                       (unsigned long long)left, how->max_tokens);
    out->count = (uint32_t)left;
    out->n = how->n;
    if (s->publish_due && s->train.self)
        status = xr_publish(s, err);
    if (status == XRAY_OK)
        status = xr_turn_take(s, XRAY_ROLE_ROLLOUT, XR_TURN_ENGINE, err);
    if (status != XRAY_OK)
        return status;
    if (s->whole)
        return xr_whole_draw(s->whole, out, rows, count, how, stop, err);
    for (uint64_t i = 0; i < left; i++)
        out->sizes[i] = NOT_GIVEN;
    for (uint32_t i = 0; i < count && status == XRAY_OK; i++)
        status = submit(s, rows[i], i, how, err);
    while (status == XRAY_OK && left) {
        xray_status round =
            XR_CALL(&s->infer, "step", xr_infer(s)->step(s->infer.self));
        if (round != XRAY_OK && round != XRAY_AGAIN)
            return xr_host_error(s->infer.host, round, "step", err);
        if (s->first_token <= 0)
            (void)tokens_made(s);
        status = drain(s, out, &left, err);
        if (status == XRAY_OK && stop && *stop >= 2)
            status = XRAY_END;
        if (status == XRAY_OK && round == XRAY_OK && left)
            status = xr_fail(err, XRAY_E_BUG,
                             "%s is idle, but %llu samples are missing",
                             s->infer.instance, (unsigned long long)left);
        if (status == XRAY_OK && left)
            status = xr_samples_progress(s, &progress, left, err);
    }
    if (status != XRAY_OK)
        abort_all(s, count, out->count);
    return status;
}

const char *xr_samples_text(const xr_samples *s, uint32_t i)
{
    return s->text.data + s->text_at[i];
}

static xray_status decode(xr_session *session, xr_samples *s, xr_err *err)
{
    xr_str_clear(&s->text);
    for (uint32_t i = 0; i < s->count; i++) {
        s->text_at[i] = s->text.size;
        xray_status status = xm_tokenizer_decode(
            session->tokenizer, s->tokens + (size_t)i * s->max_tokens,
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

xray_status xr_samples_score(xr_session *session, xr_samples *s,
                             const xr_row *const *rows, xr_score_value value,
                             void *ctx, xr_err *err)
{
    xray_status status = decode(session, s, err);
    if (status != XRAY_OK)
        return status;
    memset(s->token_scores, 0,
           (size_t)s->count * s->max_tokens * sizeof(*s->token_scores));
    for (uint32_t i = 0; i < s->count; i++) {
        const xr_row *row = rows[i / s->n];
        s->inputs[i] = (xray_sample_in){
            .head = XRAY_HEAD(xray_sample_in),
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
    return xr_rewards_score(session, s->inputs, s->count, s->scores,
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
