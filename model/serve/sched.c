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
    s->rows =
        xr_calloc((size_t)slots * limits->request.row_bound, sizeof(*s->rows));
    s->unused = xr_calloc(slots, sizeof(*s->unused));
    s->busy = xr_calloc(slots, sizeof(*s->busy));
    s->drawn = xr_calloc(slots, sizeof(*s->drawn));
    s->copies = xr_calloc(slots, sizeof(*s->copies));
    s->ahead = xr_calloc(slots, sizeof(*s->ahead));
    s->scores = xr_calloc(limits->step_tokens, sizeof(*s->scores));
    s->seen = xr_calloc(limits->request.vocab, sizeof(*s->seen));
    if (!s->slots || !s->rows || !s->unused || !s->busy || !s->drawn ||
        !s->copies || !s->scores || !s->seen || !s->ahead) {
        xm_sched_destroy(s);
        return xr_fail(err, XRAY_E_NOMEM, "no memory for %" PRIu32 " slots",
                       slots);
    }
    for (uint32_t i = 0; i < slots; i++) /* the lowest slot is used first */
        s->unused[i] = slots - 1 - i;
    s->unused_count = slots;
    xray_status status =
        limits->paging.table ? xm_paging_open(s, err) : XRAY_OK;
    if (status != XRAY_OK) {
        xm_sched_destroy(s);
        return status;
    }
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
    free(sched->rows);
    free(sched->unused);
    free(sched->busy);
    free(sched->drawn);
    free(sched->copies);
    free(sched->ahead);
    free(sched->scores);
    free(sched->seen);
    free(sched->out_spans);
    xm_paging_close(&sched->paging);
    free(sched);
}

xray_status xm_sched_submit(xm_sched *sched, const xray_request *request,
                            xr_err *err)
{
    xm_request *r = NULL;
    xray_request copy;
    xray_status status = xm_request_read(request, err, &copy);
    if (status == XRAY_OK)
        status =
            xm_pool_add(&sched->pool, &copy, &sched->limits.request, err, &r);
    if (status != XRAY_OK)
        return status;
    xm_queue_push(&sched->waiting, r);
    sched->live++;
    sched->outstanding += r->count;
    return XRAY_OK;
}

/* ---- samples that end --------------------------------------------------- */

void xm_sample_publish(xm_sched *sched, xm_sample *sample, uint32_t finish)
{
    sample->finish = finish;
    xm_note_finish(sched, sample->request, sample, finish);
    xm_sample_offer(sched, sample);
}

/* A streamed sample may be in the queue already. */
void xm_sample_offer(xm_sched *sched, xm_sample *sample)
{
    if (sample->in_out)
        return;
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
        xm_request_free_spans(request);
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

static xm_sample *pop_result(xm_sched *sched)
{
    xm_sample *s = sched->first_out;
    sched->first_out = s->next_out;
    if (!sched->first_out)
        sched->last_out = NULL;
    s->in_out = 0;
    s->request->unpolled--;
    if (s->finish != XRAY_FINISH_NONE)
        sched->outstanding--;
    return s;
}

xray_status xm_sched_poll(xm_sched *sched, xray_sample_out *out)
{
    xm_request *before = sched->polled;
    sched->polled = NULL;
    if (before)
        xm_request_reclaim(sched, before);
    if (!sched->first_out)
        return sched->outstanding ? XRAY_AGAIN : XRAY_END;
    if (xm_sched_reserve_out_spans(sched, sched->first_out->span_count) !=
        XRAY_OK)
        return XRAY_E_NOMEM;
    xm_sample *s = pop_result(sched);
    xm_request *r = s->request;
    sched->polled = r;
    size_t given = s->given;
    uint32_t prompt_count = given ? 0 : r->scored;
    const xm_wishes *w = &r->wishes;
    const xray_sample_out own = {
        .header = XRAY_HEADER(xray_sample_out),
        .id = r->id,
        .sample = s->number,
        .token_count = s->token_count - s->given,
        .tokens = s->tokens + s->given,
        .raw_logp = s->raw_logp + s->given,
        .logp = s->logp + s->given,
        .finish = s->finish,
        .span_count = xm_sample_copy_spans(sched, s, s->token_count - s->given),
        .spans = sched->out_spans,
        .span_stride = sizeof(xray_span),
        .first = s->given - s->round_start,
        .prompt_logp = prompt_count ? r->prompt_logp : NULL,
        .prompt_count = prompt_count,
        .top_count = w->top_count,
        .top_ids = w->top_count ? s->top_ids + given * w->top_count : NULL,
        .top_logp = w->top_count ? s->top_logp + given * w->top_count : NULL,
        .logp_of_ids =
            w->logp_id_count ? s->logp_of_ids + given * w->logp_id_count : NULL,
    };
    s->given = s->token_count;
    xray_fill(out, &own);
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

static xray_status find_sample(xm_request *r, uint32_t number, xr_err *err,
                               xm_sample **out)
{
    /* Numbers count up from that of the first sample. */
    uint32_t first = r->samples->number;
    if (number < first || number - first >= r->count)
        return xr_fail(err, XRAY_E_ARG,
                       "request %" PRIu64 ": it has no sample %" PRIu32, r->id,
                       number);
    *out = &r->samples[number - first];
    return XRAY_OK;
}

/* In a paged cache a held sample has no slot: its blocks stay cached while no
 * other sequence needs them. */
static int has_slot(const xm_sched *sched, const xm_sample *sample)
{
    return sample->state == XM_SAMPLE_RUNNING ||
           (sample->state == XM_SAMPLE_HELD && !sched->paging.blocks);
}

static uint32_t find_slot(const xm_sched *sched, const xm_sample *sample)
{
    uint32_t i = 0;
    while (sched->slots[i].sample != sample)
        i++;
    return i;
}

/* Takes a sample out of the list of those that wait for a slot. */
static void leave_ready(xm_sched *sched, xm_sample *sample)
{
    xm_request *r = sample->request;
    xm_ready_remove(r, sample);
    if (!r->ready && r->queued)
        xm_queue_remove(&sched->branching, r);
}

static void end_sample(xm_sched *sched, xm_sample *sample)
{
    if (sample->state == XM_SAMPLE_DONE)
        return;
    if (sample->finish == XRAY_FINISH_NONE)
        xm_sample_publish(sched, sample, XRAY_FINISH_ABORT);
    xm_sample_close(sched, sample);
}

/* The request's prompt, which may be still to compute, goes with its last
 * sample. */
static void abort_request(xm_sched *sched, xm_request *r)
{
    if (r->queued)
        xm_queue_remove(r->queued == XM_QUEUE_WAITING ? &sched->waiting
                                                      : &sched->branching,
                        r);
    r->ready = NULL;
    xm_note_finish(sched, r, NULL, XRAY_FINISH_ABORT);
    for (uint32_t i = 0; i < r->count; i++)
        end_sample(sched, &r->samples[i]);
    for (uint32_t i = 0; i < sched->limits.slots; i++)
        if (sched->slots[i].request == r)
            xm_slot_vacate(sched, i);
}

static void abort_sample(xm_sched *sched, xm_sample *sample)
{
    uint32_t state = sample->state;
    if (sample->request->open == 1 && state != XM_SAMPLE_DONE) {
        abort_request(sched, sample->request);
        return;
    }
    if (state == XM_SAMPLE_READY)
        leave_ready(sched, sample);
    if (has_slot(sched, sample))
        xm_slot_vacate(sched, find_slot(sched, sample));
    end_sample(sched, sample);
}

xray_status xm_sched_abort(xm_sched *sched, uint64_t id, uint32_t sample,
                           xr_err *err)
{
    xm_request *r = NULL;
    xm_sample *s = NULL;
    xray_status status = find_request(sched, id, err, &r);
    if (status == XRAY_OK && sample != XRAY_ALL_SAMPLES)
        status = find_sample(r, sample, err, &s);
    if (status != XRAY_OK)
        return status;
    if (s)
        abort_sample(sched, s);
    else
        abort_request(sched, r);
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
    xm_sample *s = NULL;
    status = find_sample(r, number, err, &s);
    if (status != XRAY_OK)
        return status;
    int waits = s->state == XM_SAMPLE_HELD || s->state == XM_SAMPLE_READY;
    if (!waits || s->finish == XRAY_FINISH_NONE)
        return xr_fail(err, XRAY_E_ARG,
                       "request %" PRIu64 ": sample %" PRIu32
                       " is not held (hold = 1, finished, not released)",
                       id, number);
    *out = s;
    return XRAY_OK;
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
        if ((uint32_t)tokens[i] >= limits->vocab)
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
    if (count)
        memcpy(s->row + s->row_count - s->request->id_count, tokens,
               count * sizeof(*tokens));
    s->round_start = s->token_count;
    s->span_count = 0;
    s->row_count += count;
    sched->outstanding++;
    s->finish = XRAY_FINISH_NONE;
    if (s->state == XM_SAMPLE_HELD && sched->paging.blocks) {
        xm_paging_requeue(sched, s->request, s);
    } else if (s->state == XM_SAMPLE_HELD) {
        /* The token sampled last has not been fed to the model yet. */
        uint32_t slot = find_slot(sched, s);
        xm_slot_start(sched, slot, s, sched->slots[slot].position);
    }
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
    if (has_slot(sched, s))
        xm_slot_vacate(sched, find_slot(sched, s));
    else if (s->state == XM_SAMPLE_READY)
        leave_ready(sched, s);
    xm_sample_close(sched, s);
    xm_request_reclaim(sched, r);
    return XRAY_OK;
}

/* ---- pause -------------------------------------------------------------- */

/* A request forgets its id when nothing of it is left, which changes the list
 * that is walked. */
static void abort_all(xm_sched *sched)
{
    for (uint32_t i = 0; i < sched->pool.bucket_count; i++)
        for (xm_request *r = sched->pool.buckets[i]; r;) {
            xm_request *next = r->hash_next;
            abort_request(sched, r);
            xm_request_reclaim(sched, r);
            r = next;
        }
    xm_sched_compact(sched);
}

xray_status xm_sched_pause(xm_sched *sched, uint32_t mode, xr_err *err)
{
    if (mode < XRAY_PAUSE_WAIT || mode > XRAY_PAUSE_ABORT)
        return xr_fail(err, XRAY_E_ARG,
                       "pause: mode %" PRIu32 ", 1 to 3 was expected", mode);
    sched->paused = mode;
    if (mode == XRAY_PAUSE_ABORT)
        abort_all(sched);
    return XRAY_OK;
}

void xm_sched_resume(xm_sched *sched)
{
    sched->paused = 0;
}

/* ---- state and statistics ----------------------------------------------- */

int xm_sched_has_work(const xm_sched *sched)
{
    if (sched->paused == XRAY_PAUSE_KEEP)
        return 0;
    int waits = sched->waiting.first && !sched->paused;
    return sched->busy_count > 0 ||
           (sched->unused_count > 0 && (waits || sched->branching.first));
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
    const xm_sched_limits *limits = &sched->limits;
    xray_infer_stats own = {
        .header = XRAY_HEADER(xray_infer_stats),
        .requests_waiting = sched->waiting.count,
        .requests_running = sched->live - sched->waiting.count,
        .prompt_tokens = sched->prompt_tokens,
        .generation_tokens = sched->generation_tokens,
        .steps = sched->steps,
        .kv_capacity = (uint64_t)limits->slots * limits->request.row_bound,
        .prefix_tokens_saved = sched->saved_tokens,
        .recomputed_tokens = sched->recomputed_tokens,
        .num_draft_tokens = sched->draft_tokens,
        .num_accepted_tokens = sched->accepted_tokens,
    };
    for (uint32_t i = 0; i < limits->slots; i++)
        if (sched->slots[i].request)
            own.kv_tokens += sched->slots[i].position;
    if (sched->paging.blocks) {
        uint32_t free = xm_blocks_stats_of(sched->paging.blocks)->free;
        uint64_t size = limits->paging.blocks.block_tokens;
        own.kv_capacity = limits->paging.blocks.blocks * size;
        own.kv_tokens = own.kv_capacity - free * size;
        own.preemptions = sched->paging.preemptions;
    }
    xray_fill(out, &own);
}
