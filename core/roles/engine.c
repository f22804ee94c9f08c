/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends requests to the engine of this process and stores the samples it
 * returns.
 */
#include "core/roles/engine.h"

#include <string.h>

#include "core/base/file.h"
#include "core/base/infer_needs.h"
#include "core/plugin/cancel.h"
#include "core/roles/memory_turns.h"
#include "core/roles/plugin_results.h"

#define NOT_GIVEN UINT32_MAX /* size of a sample that has not arrived yet */

xray_status xr_engine_serves(const xr_run *run, const xray_request *request,
                             uint64_t more, xr_err *err)
{
    uint64_t needs = xray_request_needs(request) | more;
    uint64_t missing = needs & ~xr_infer(run)->capabilities;
    if (!missing)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_UNSUPPORTED,
                   "%s does not offer %s, which is asked for",
                   run->infer.instance, xr_infer_need_name(missing));
}

static xray_status submit_request(xr_roles *roles, const xr_row *row,
                                  uint64_t id, const xr_sampling *how,
                                  xr_err *err)
{
    xray_request request = {
        .header = XRAY_HEADER(xray_request),
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
        .repetition_penalty = (float)how->repetition_penalty,
        .frequency_penalty = (float)how->frequency_penalty,
        .presence_penalty = (float)how->presence_penalty,
        .min_tokens = how->min_tokens,
        .stop_ids = roles->run->end_ids,
        .stop_count = how->ignore_eos ? 0 : roles->run->end_count,
    };
    xray_status status = xr_engine_serves(roles->run, &request, 0, err);
    if (status != XRAY_OK)
        return status;
    status =
        XR_CALL(roles->engine.part, "submit",
                xr_infer(roles->run)->submit(roles->engine.self, &request));
    return status == XRAY_OK
               ? XRAY_OK
               : xr_host_error(roles->engine.part->host, status, "submit", err);
}

static const xray_span *span_at(const xray_sample_out *sample, uint32_t i)
{
    const unsigned char *at = (const unsigned char *)sample->spans;
    return (const void *)(at + (size_t)i * sample->span_stride);
}

/* Samples must come from the weights that were published last. */
static xray_status check_sample_version(const xr_roles *roles, uint64_t at,
                                        const xray_sample_out *sample,
                                        xr_err *err)
{
    uint32_t count = roles->published.synced ? sample->span_count : 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t version = span_at(sample, i)->version;
        if (version != roles->published.version)
            return xr_fail(err, XRAY_E_BUG,
                           "%s generated sample %llu with weights of version "
                           "%llu, but version %llu was published",
                           roles->engine.part->instance, (unsigned long long)at,
                           (unsigned long long)version,
                           (unsigned long long)roles->published.version);
    }
    return XRAY_OK;
}

static xray_status store_sample(xr_roles *roles, xr_samples *out,
                                const xray_sample_out *sample, xr_err *err)
{
    uint64_t at = sample->id * out->n + sample->sample;
    if (sample->sample >= out->n || sample->id >= out->count / out->n ||
        sample->token_count > out->max_tokens)
        return xr_fail(err, XRAY_E_BUG,
                       "%s gave sample %u of request %llu with %u tokens, "
                       "which was not asked for",
                       roles->engine.part->instance, sample->sample,
                       (unsigned long long)sample->id, sample->token_count);
    if (out->sizes[at] != NOT_GIVEN)
        return xr_fail(err, XRAY_E_BUG,
                       "%s gave sample %u of request %llu "
                       "twice",
                       roles->engine.part->instance, sample->sample,
                       (unsigned long long)sample->id);
    xray_status status =
        xr_check_sample(roles, sample, sample->logp, at, out->max_tokens, err);
    if (status == XRAY_OK)
        status = check_sample_version(roles, at, sample, err);
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
    return xr_samples_arrived(roles, out, (uint32_t)at, err);
}

/* Stores all samples that are ready and subtracts them from *left. */
static xray_status drain_samples(xr_roles *roles, xr_samples *out,
                                 uint64_t *left, xr_err *err)
{
    for (;;) {
        xray_sample_out sample = { .header = XRAY_HEADER(xray_sample_out) };
        xray_status status =
            XR_CALL(roles->engine.part, "poll",
                    xr_infer(roles->run)->poll(roles->engine.self, &sample));
        if (status == XRAY_END && *left)
            return xr_fail(err, XRAY_E_BUG,
                           "%s has no sample outstanding, but %llu are missing",
                           roles->engine.part->instance,
                           (unsigned long long)*left);
        if (status == XRAY_END || status == XRAY_AGAIN)
            return XRAY_OK;
        if (status != XRAY_OK)
            return xr_host_error(roles->engine.part->host, status, "poll", err);
        status = store_sample(roles, out, &sample, err);
        if (status != XRAY_OK)
            return status;
        if (*left)
            --*left;
    }
}

/* Has the engine end all its requests; 0 if it cannot. */
static int pause_and_abort(xr_roles *roles)
{
    const xray_infer_ops *ops = xr_infer(roles->run);
    return XRAY_HAS(xray_infer_ops, ops, pause) &&
           XRAY_HAS(xray_infer_ops, ops, resume) &&
           XR_CALL(roles->engine.part, "pause",
                   ops->pause(roles->engine.self, XRAY_PAUSE_ABORT)) == XRAY_OK;
}

/* Aborts all requests, so that none of their samples turns up in the next
 * rollout. The number of polls is limited, since a faulty engine could return
 * samples forever. */
static void abort_requests(xr_roles *roles, uint32_t count, uint64_t samples)
{
    xray_status status = XRAY_OK;
    int paused = pause_and_abort(roles);
    for (uint32_t i = 0; i < count && !paused; i++)
        (void)XR_CALL(roles->engine.part, "abort",
                      xr_infer(roles->run)
                          ->abort(roles->engine.self, i, XRAY_ALL_SAMPLES));
    for (uint64_t i = 0; i < samples && status == XRAY_OK; i++) {
        xray_sample_out sample = { .header = XRAY_HEADER(xray_sample_out) };
        status =
            XR_CALL(roles->engine.part, "poll",
                    xr_infer(roles->run)->poll(roles->engine.self, &sample));
    }
    if (paused)
        (void)XR_CALL(roles->engine.part, "resume",
                      xr_infer(roles->run)->resume(roles->engine.self));
}

/* Returns the tokens that an engine processed so far; 0 if it does not report
 * them. */
static uint64_t count_engine_tokens(xr_roles *roles)
{
    xray_infer_stats stats = { .header = XRAY_HEADER(xray_infer_stats) };
    xray_status status =
        XR_CALL(roles->engine.part, "stats",
                xr_infer(roles->run)->stats(roles->engine.self, &stats));
    if (status != XRAY_OK)
        return 0;
    if (stats.generation_tokens && roles->first_token <= 0)
        roles->first_token = xr_now();
    return stats.prompt_tokens + stats.generation_tokens +
           stats.recomputed_tokens;
}

xray_status xr_engine_progress(xr_roles *roles, xr_engine_watch *w,
                               uint64_t left, xr_err *err)
{
    int64_t limit = roles->run->ini.run.plugin_timeout;
    double now = xr_now();
    uint64_t made = count_engine_tokens(roles);
    if (w->since <= 0 || made != w->made || left != w->left)
        *w = (xr_engine_watch){ now, made, left };
    if (!limit || now - w->since <= 1e-9 * (double)limit)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_BUG,
                   "%s made no token for %g s ([run] plugin_timeout), %llu "
                   "samples are missing",
                   roles->engine.part->instance, 1e-9 * (double)limit,
                   (unsigned long long)left);
}

xray_status xr_engine_generate(xr_roles *roles, xr_samples *out,
                               const xr_row *const *rows, uint32_t count,
                               const xr_sampling *how, xr_err *err)
{
    uint64_t left = out->count;
    xr_engine_watch progress = { 0 };
    xray_status status =
        xr_turn_take(roles, XRAY_ROLE_ROLLOUT, XR_TURN_ENGINE, err);
    if (status != XRAY_OK)
        return status;
    for (uint64_t i = 0; i < left; i++)
        out->sizes[i] = NOT_GIVEN;
    for (uint32_t i = 0; i < count && status == XRAY_OK; i++)
        status = submit_request(roles, rows[i], i, how, err);
    while (status == XRAY_OK && left) {
        xray_status round =
            XR_CALL(roles->engine.part, "step",
                    xr_infer(roles->run)->step(roles->engine.self));
        if (round != XRAY_OK && round != XRAY_END)
            return xr_host_error(roles->engine.part->host, round, "step", err);
        if (roles->first_token <= 0)
            (void)count_engine_tokens(roles);
        status = drain_samples(roles, out, &left, err);
        if (status == XRAY_OK)
            status = xr_samples_look(out, err);
        if (status == XRAY_OK)
            status = xr_cancel_check(err);
        if (status == XRAY_OK && round == XRAY_END && left)
            status = xr_fail(
                err, XRAY_E_BUG, "%s is idle, but %llu samples are missing",
                roles->engine.part->instance, (unsigned long long)left);
        if (status == XRAY_OK && left)
            status = xr_engine_progress(roles, &progress, left, err);
    }
    if (status != XRAY_OK)
        abort_requests(roles, count, out->count);
    return status;
}
