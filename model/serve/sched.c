/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates the scheduler and serves the calls between steps: submit, poll,
 * abort, extend and release.
 */
#include "model/serve/sched.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"
#include "model/serve/sched_internal.h"

xray_status xm_sched_create(const xm_sched_limits *limits, xr_err *err,
                            xm_sched **out)
{
    uint32_t slots = limits->slots;
    if (slots == 0 || limits->step_tokens < slots)
        return xr_fail(err, XRAY_E_ARG,
                       "%" PRIu32 " tokens per step for %" PRIu32
                       " slots: at least one slot and one token per slot were "
                       "expected",
                       limits->step_tokens, slots);
    xm_sched *s = xr_calloc(1, sizeof(*s));
    if (!s)
        return xr_fail(err, XRAY_E_NOMEM, "no memory for the scheduler");
    s->limits = *limits;
    s->waiting.name = XM_QUEUE_WAITING;
    s->branching.name = XM_QUEUE_BRANCHING;
    s->slots = xr_calloc(slots, sizeof(*s->slots));
    s->unused = xr_calloc(slots, sizeof(*s->unused));
    s->busy = xr_calloc(slots, sizeof(*s->busy));
    s->drawn = xr_calloc(slots, sizeof(*s->drawn));
    s->copies = xr_calloc(slots, sizeof(*s->copies));
    if (!s->slots || !s->unused || !s->busy || !s->drawn || !s->copies) {
        xm_sched_destroy(s);
        return xr_fail(err, XRAY_E_NOMEM, "no memory for %" PRIu32 " slots",
                       slots);
    }
    for (uint32_t i = 0; i < slots; i++) /* the lowest slot is used first */
        s->unused[i] = slots - 1 - i;
    s->unused_count = slots;
    *out = s;
    return XRAY_OK;
}

void xm_sched_destroy(xm_sched *sched)
{
    if (!sched)
        return;
    xm_request *polled = sched->polled;
    sched->polled = NULL;
    if (polled)
        xm_request_reclaim(sched, polled);
    xm_pool_clear(&sched->pool);
    free(sched->slots);
    free(sched->unused);
    free(sched->busy);
    free(sched->drawn);
    free(sched->copies);
    free(sched);
}

xray_status xm_sched_submit(xm_sched *sched, const xray_request *request,
                            xr_err *err)
{
    xm_request *r = NULL;
    xray_status status =
        xm_pool_add(&sched->pool, request, &sched->limits.request, err, &r);
    if (status != XRAY_OK)
        return status;
    xm_queue_push(&sched->waiting, r);
    sched->live++;
    return XRAY_OK;
}

/* ---- samples that end --------------------------------------------------- */

void xm_sample_publish(xm_sched *sched, xm_sample *sample, uint32_t finish)
{
    sample->finish = finish;
    sample->in_out = 1;
    sample->request->unpolled++;
    sample->next_out = NULL;
    if (sched->last_out)
        sched->last_out->next_out = sample;
    else
        sched->first_out = sample;
    sched->last_out = sample;
}

/* The id is free for another request as soon as no result is outstanding. The
 * memory is free only when the caller's pointers into it have expired. */
void xm_request_reclaim(xm_sched *sched, xm_request *request)
{
    if (request->open || request->unpolled)
        return;
    if (request->count) {
        xm_pool_forget(&sched->pool, request);
        request->count = 0; /* the id is forgotten */
    }
    if (request != sched->polled)
        xm_pool_recycle(&sched->pool, request);
}

void xm_sample_close(xm_sched *sched, xm_sample *sample)
{
    sample->state = XM_SAMPLE_DONE;
    if (--sample->request->open == 0)
        sched->live--;
}

xray_status xm_sched_poll(xm_sched *sched, xray_sample_out *out)
{
    xm_request *before = sched->polled;
    sched->polled = NULL;
    if (before)
        xm_request_reclaim(sched, before);
    xm_sample *s = sched->first_out;
    if (!s)
        return XRAY_END;
    sched->first_out = s->next_out;
    if (!sched->first_out)
        sched->last_out = NULL;
    s->in_out = 0;
    xm_request *r = s->request;
    r->unpolled--;
    sched->polled = r;
    out->id = r->id;
    out->sample = s->number;
    out->token_count = s->token_count - s->round_start;
    out->tokens = s->tokens + s->round_start;
    out->raw_logp = s->raw_logp + s->round_start;
    out->logp = s->logp + s->round_start;
    out->finish = s->finish;
    out->span_count = out->token_count ? 1 : 0;
    out->spans = &s->span;
    xm_request_reclaim(sched, r);
    return XRAY_OK;
}

/* ---- abort, extend, release --------------------------------------------- */

static xray_status find_request(xm_sched *sched, uint64_t id, xr_err *err,
                                xm_request **out)
{
    *out = xm_pool_find(&sched->pool, id);
    if (!*out)
        return xr_fail(
            err, XRAY_E_ARG,
            "request %" PRIu64 ": no request with this id is running", id);
    return XRAY_OK;
}

static void abort_sample(xm_sched *sched, xm_sample *sample)
{
    if (sample->state == XM_SAMPLE_DONE)
        return;
    if (sample->finish == XRAY_FINISH_NONE)
        xm_sample_publish(sched, sample, XRAY_FINISH_ABORT);
    xm_sample_close(sched, sample);
}

xray_status xm_sched_abort(xm_sched *sched, uint64_t id, xr_err *err)
{
    xm_request *r = NULL;
    xray_status status = find_request(sched, id, err, &r);
    if (status != XRAY_OK)
        return status;
    if (r->queued)
        xm_queue_remove(r->queued == XM_QUEUE_WAITING ? &sched->waiting
                                                      : &sched->branching,
                        r);
    r->ready = NULL;
    for (uint32_t i = 0; i < r->count; i++)
        abort_sample(sched, &r->samples[i]);
    for (uint32_t i = 0; i < sched->limits.slots; i++)
        if (sched->slots[i].request == r)
            xm_slot_vacate(sched, i);
    xm_sched_compact(sched);
    xm_request_reclaim(sched, r);
    return XRAY_OK;
}

/* Finds a finished sample of a held request whose result has been polled. */
static xray_status find_held(xm_sched *sched, uint64_t id, uint32_t number,
                             xr_err *err, xm_sample **out)
{
    xm_request *r = NULL;
    xray_status status = find_request(sched, id, err, &r);
    if (status != XRAY_OK)
        return status;
    xm_sample *s =
        r->samples; /* the first sample; numbers count up from its own */
    if (number < s->number || number - s->number >= r->count)
        return xr_fail(err, XRAY_E_ARG,
                       "request %" PRIu64 ": it has no sample %" PRIu32, id,
                       number);
    s += number - s->number;
    int waits = s->state == XM_SAMPLE_HELD || s->state == XM_SAMPLE_READY;
    if (!waits || s->finish == XRAY_FINISH_NONE)
        return xr_fail(err, XRAY_E_ARG,
                       "request %" PRIu64 ": sample %" PRIu32
                       " is not held (hold = 1, finished, not released)",
                       id, number);
    *out = s;
    return XRAY_OK;
}

static uint32_t find_slot(const xm_sched *sched, const xm_sample *sample)
{
    uint32_t i = 0;
    while (sched->slots[i].sample != sample)
        i++;
    return i;
}

static xray_status check_extend(const xm_sched *sched, const xm_sample *s,
                                const int32_t *tokens, uint32_t count,
                                xr_err *err)
{
    const xm_limits *limits = &sched->limits.request;
    uint64_t id = s->request->id;
    if (s->in_out)
        return xr_fail(err, XRAY_E_ARG,
                       "request %" PRIu64 ": sample %" PRIu32
                       " has a result that has not been polled yet",
                       id, s->number);
    if (count && !tokens)
        return xr_fail(err, XRAY_E_ARG,
                       "request %" PRIu64 ": the tokens to append are not set",
                       id);
    if (count >= limits->row_bound - s->row_count)
        return xr_fail(err, XRAY_E_RANGE,
                       "request %" PRIu64 ": sample %" PRIu32 " has %" PRIu32
                       " tokens, %" PRIu32
                       " more leave no space in a row of %" PRIu32,
                       id, s->number, s->row_count, count, limits->row_bound);
    for (uint32_t i = 0; i < count; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= limits->vocab)
            return xr_fail(err, XRAY_E_ARG,
                           "request %" PRIu64 ": appended id %" PRId32
                           " is outside the vocabulary of %" PRIu32,
                           id, tokens[i], limits->vocab);
    return XRAY_OK;
}

xray_status xm_sched_extend(xm_sched *sched, uint64_t id, uint32_t sample,
                            const int32_t *tokens, uint32_t count, xr_err *err)
{
    xm_sample *s = NULL;
    xray_status status = find_held(sched, id, sample, err, &s);
    if (status == XRAY_OK)
        status = check_extend(sched, s, tokens, count, err);
    if (status != XRAY_OK)
        return status;
    /* The token sampled last has not been fed to the model yet. */
    s->pending[0] = s->tokens[s->token_count - 1];
    if (count)
        memcpy(s->pending + 1, tokens, count * sizeof(*tokens));
    s->pending_count = 1 + count;
    s->round_start = s->token_count;
    s->row_count += count;
    s->finish = XRAY_FINISH_NONE;
    if (s->state == XM_SAMPLE_HELD)
        xm_slot_start(sched, find_slot(sched, s), s);
    return XRAY_OK;
}

xray_status xm_sched_release(xm_sched *sched, uint64_t id, uint32_t sample,
                             xr_err *err)
{
    xm_sample *s = NULL;
    xray_status status = find_held(sched, id, sample, err, &s);
    if (status != XRAY_OK)
        return status;
    xm_request *r = s->request;
    if (s->state == XM_SAMPLE_HELD) {
        xm_slot_vacate(sched, find_slot(sched, s));
    } else {
        xm_ready_remove(r, s);
        if (!r->ready && r->queued)
            xm_queue_remove(&sched->branching, r);
    }
    xm_sample_close(sched, s);
    xm_request_reclaim(sched, r);
    return XRAY_OK;
}

/* ---- state and statistics ----------------------------------------------- */

int xm_sched_has_work(const xm_sched *sched)
{
    return sched->busy_count > 0 ||
           (sched->unused_count > 0 &&
            (sched->waiting.first || sched->branching.first));
}

uint32_t xm_sched_live(const xm_sched *sched)
{
    return sched->live;
}

uint64_t xm_sched_grown(const xm_sched *sched)
{
    return sched->pool.grown;
}

void xm_sched_stats(const xm_sched *sched, xray_infer_stats *out)
{
    out->requests_waiting = sched->waiting.count;
    out->requests_running = sched->live - sched->waiting.count;
    out->prompt_tokens = sched->prompt_tokens;
    out->generation_tokens = sched->generation_tokens;
    out->steps = sched->steps;
    out->kv_tokens = 0;
    for (uint32_t i = 0; i < sched->limits.slots; i++)
        if (sched->slots[i].request)
            out->kv_tokens += sched->slots[i].position;
    out->kv_capacity =
        (uint64_t)sched->limits.slots * sched->limits.request.row_bound;
    out->prefix_tokens_saved = sched->saved_tokens;
    out->preemptions = 0;
}
