/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the inference backend: it samples from the table, request by
 * request. A random draw depends only on seed, step, prompt, sample and
 * position.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <xray/batch.h>
#include <xray/numerics.h>

#include "table.h"

#define REQUESTS 4096u

typedef struct sample {
    uint64_t id;
    uint32_t number;
    uint32_t count;
    uint32_t finish;
    int32_t *tokens;
    float *raw_logp;
    float *logp;
    xray_span span;
} sample;

typedef struct engine {
    const xray_host *host;
    const xray_weights *weights; /* shared, or NULL: own */
    float *own;
    const float *table;
    float *raw;
    float *row;
    uint32_t vocab;
    uint32_t max_positions;
    uint64_t version;
    xray_request waiting[REQUESTS]; /* ids and stop_ids are copies */
    uint32_t waiting_count;
    uint32_t leased;
    sample *done; /* samples that poll has not returned yet, last one first */
    size_t done_count;
    size_t done_cap;
    sample given; /* valid until the next poll */
    xray_infer_stats stats;
} engine;

static uint64_t key_of(const xray_request *r)
{
    uint64_t key = r->seed * 0x9E3779B97F4A7C15u + r->step;
    return (key ^ key >> 29) * 0xBF58476D1CE4E5B9u + r->prompt_id;
}

static void free_request(engine *self, uint32_t i)
{
    union {
        const int32_t *read;
        void *owned;
    } ids = { self->waiting[i].ids }, stops = { self->waiting[i].stop_ids };
    free(ids.owned);
    free(stops.owned);
    self->waiting[i] = self->waiting[--self->waiting_count];
}

static void free_sample(sample *s)
{
    free(s->tokens);
    free(s->raw_logp);
    free(s->logp);
    *s = (sample){ 0 };
}

static void engine_destroy(void *ptr)
{
    engine *self = ptr;
    if (!self)
        return;
    while (self->waiting_count)
        free_request(self, 0);
    while (self->done_count)
        free_sample(&self->done[--self->done_count]);
    if (self->leased)
        self->weights->release(self->weights->owner);
    free_sample(&self->given);
    free(self->done);
    free(self->own);
    free(self->raw);
    free(self->row);
    free(self);
}

static xray_status engine_create(const xray_setup *setup, const void *config,
                                 const xray_workload *load, void **out_self)
{
    const xray_model *model = setup->model;
    uint64_t count = (uint64_t)model->vocab_size * model->vocab_size;
    engine *self = calloc(1, sizeof(*self));
    (void)config;
    (void)load;
    if (self) {
        self->own = calloc(count, sizeof(float));
        self->raw = calloc(model->vocab_size, sizeof(float));
        self->row = calloc(model->vocab_size, sizeof(float));
    }
    if (!self || !self->own || !self->raw || !self->row) {
        engine_destroy(self);
        return setup->host->fail(setup->host, XRAY_E_NOMEM, __func__,
                                 "out of memory");
    }
    self->host = setup->host;
    self->weights = setup->weights;
    self->table = self->weights ? self->weights->tensors[0].data : self->own;
    self->vocab = model->vocab_size;
    self->max_positions = model->max_positions;
    self->stats.header = (xray_header)XRAY_HEADER(xray_infer_stats);
    if (!self->weights && !model->random_init) {
        xray_status status =
            table_read(self->host, model->path, self->own, count);
        if (status != XRAY_OK) {
            engine_destroy(self);
            return status;
        }
    }
    *out_self = self;
    return XRAY_OK;
}

static int32_t *copy_ids(const int32_t *ids, uint32_t count)
{
    int32_t *copy = malloc((count + 1) * sizeof(*copy));
    if (copy && count)
        memcpy(copy, ids, count * sizeof(*copy));
    return copy;
}

static xray_status engine_submit(void *ptr, const xray_request *request)
{
    engine *self = ptr;
    const xray_host *host = self->host;
    if (!request->id_count || self->waiting_count == REQUESTS)
        return host->fail(host, XRAY_E_ARG, __func__,
                          "the prompt is empty or the queue is full");
    if (request->top_p < 1 || request->top_k || request->min_p > 0)
        return host->fail(host, XRAY_E_ARG, __func__,
                          "a table knows no top_p, top_k or min_p");
    xray_request *to = &self->waiting[self->waiting_count++];
    *to = *request;
    to->ids = copy_ids(request->ids, request->id_count);
    to->stop_ids = copy_ids(request->stop_ids, request->stop_count);
    if (!to->ids || !to->stop_ids) {
        free_request(self, self->waiting_count - 1);
        return host->fail(host, XRAY_E_NOMEM, __func__, "out of memory");
    }
    if (self->weights && !self->leased++)
        return self->weights->lease(self->weights->owner);
    return XRAY_OK;
}

static int32_t pick_token(const engine *self, const xray_request *r,
                          uint32_t number, uint32_t position)
{
    uint32_t best = 0;
    if (r->temperature <= 0) {
        for (uint32_t i = 1; i < self->vocab; i++)
            if (self->row[i] > self->row[best])
                best = i;
        return (int32_t)best;
    }
    double left =
        ((double)xray_philox(key_of(r), number, position, 0, 0).w[0] + 0.5) /
        4294967296.0;
    while (best + 1 < self->vocab && (left -= exp((double)self->row[best])) > 0)
        best++;
    return (int32_t)best;
}

static int is_stop(const xray_request *r, int32_t token)
{
    for (uint32_t i = 0; i < r->stop_count; i++)
        if (r->stop_ids[i] == token)
            return 1;
    return 0;
}

static void generate_tokens(engine *self, const xray_request *r, sample *s)
{
    int32_t previous = r->ids[r->id_count - 1];
    float temperature = r->temperature > 0 ? r->temperature : 1.0f;
    s->finish = XRAY_FINISH_LENGTH;
    while (s->count < r->max_tokens &&
           r->id_count + s->count < self->max_positions) {
        table_logp(self->table, self->vocab, previous, 1.0f, self->raw);
        table_logp(self->table, self->vocab, previous, temperature, self->row);
        int32_t token = pick_token(self, r, s->number, r->id_count + s->count);
        s->tokens[s->count] = token;
        s->raw_logp[s->count] = self->raw[token];
        s->logp[s->count++] = self->row[token];
        previous = token;
        if (is_stop(r, token)) {
            s->finish = XRAY_FINISH_STOP;
            break;
        }
    }
    s->span = (xray_span){ .last = s->count, .version = self->version };
    self->stats.generation_tokens += s->count;
}

/* Adds one sample of a request to `done`; aborted ones stay empty. */
static xray_status add_sample(engine *self, const xray_request *r, uint32_t i,
                              int aborted)
{
    if (self->done_count == self->done_cap) {
        size_t cap = self->done_cap ? 2 * self->done_cap : 64;
        sample *done = realloc(self->done, cap * sizeof(*done));
        if (!done)
            return self->host->fail(self->host, XRAY_E_NOMEM, __func__,
                                    "out of memory");
        self->done = done;
        self->done_cap = cap;
    }
    sample s = { .id = r->id,
                 .number = r->first_sample + i,
                 .finish = XRAY_FINISH_ABORT };
    s.tokens = calloc(r->max_tokens + 1u, sizeof(*s.tokens));
    s.raw_logp = calloc(r->max_tokens + 1u, sizeof(float));
    s.logp = calloc(r->max_tokens + 1u, sizeof(float));
    if (!s.tokens || !s.raw_logp || !s.logp) {
        free_sample(&s);
        return self->host->fail(self->host, XRAY_E_NOMEM, __func__,
                                "out of memory");
    }
    if (!aborted)
        generate_tokens(self, r, &s);
    self->done[self->done_count++] = s;
    return XRAY_OK;
}

static xray_status finish_request(engine *self, uint32_t at, int aborted)
{
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; i < self->waiting[at].count && status == XRAY_OK; i++)
        status = add_sample(self, &self->waiting[at], i, aborted);
    self->stats.prompt_tokens += self->waiting[at].id_count;
    free_request(self, at);
    if (!self->waiting_count && self->leased) {
        self->leased = 0;
        self->weights->release(self->weights->owner);
    }
    return status;
}

static xray_status engine_step(void *ptr)
{
    engine *self = ptr;
    if (!self->waiting_count)
        return XRAY_OK;
    self->stats.steps++;
    xray_status status = finish_request(self, 0, 0);
    if (status != XRAY_OK)
        return status;
    return self->waiting_count ? XRAY_AGAIN : XRAY_OK;
}

static xray_status engine_poll(void *ptr, xray_sample_out *out)
{
    engine *self = ptr;
    free_sample(&self->given);
    if (!self->done_count)
        return XRAY_END;
    self->given = self->done[--self->done_count];
    const sample *s = &self->given;
    out->id = s->id;
    out->sample = s->number;
    out->token_count = s->count;
    out->tokens = s->tokens;
    out->raw_logp = s->raw_logp;
    out->logp = s->logp;
    out->finish = s->finish;
    out->span_count = 1;
    out->spans = &s->span;
    return XRAY_OK;
}

static xray_status engine_abort(void *ptr, uint64_t id)
{
    engine *self = ptr;
    for (uint32_t i = 0; i < self->waiting_count; i++)
        if (self->waiting[i].id == id)
            return finish_request(self, i, 1);
    return XRAY_OK;
}

static xray_status engine_stats(void *ptr, xray_infer_stats *out)
{
    const engine *self = ptr;
    *out = self->stats;
    out->requests_waiting = self->waiting_count;
    return XRAY_OK;
}

static xray_status engine_update(void *ptr, const xray_weights *from,
                                 uint64_t version)
{
    engine *self = ptr;
    if (self->waiting_count)
        return self->host->fail(self->host, XRAY_E_STATE, __func__,
                                "requests are running");
    if (from && !self->weights)
        memcpy(self->own, from->tensors[0].data,
               (size_t)self->vocab * self->vocab * sizeof(float));
    self->version = version;
    return XRAY_OK;
}

const xray_infer_ops table_infer_ops = {
    .header = XRAY_HEADER(xray_infer_ops),
    .plan = table_plan,
    .create = engine_create,
    .destroy = engine_destroy,
    .submit = engine_submit,
    .step = engine_step,
    .poll = engine_poll,
    .abort = engine_abort,
    .stats = engine_stats,
    .update = engine_update,
};
