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
    float *prompt_logp; /* [prompt_count] */
    int32_t *top_ids;   /* [count, top_count] */
    float *top_logp;
    float *logp_of_ids; /* [count, id_count] */
    uint32_t prompt_count;
    uint32_t top_count;
    uint32_t id_count;
    xray_span span;
} sample;

typedef struct engine {
    const xray_host *host;
    const xray_weights *weights; /* shared, or NULL: own */
    float *own;
    const float *table;
    float *raw;
    float *row;
    float *changed; /* logits as a request wishes them */
    uint32_t vocab;
    uint32_t max_positions;
    uint64_t version;
    xray_request *waiting[REQUESTS]; /* copies */
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
    free(self->waiting[i]);
    self->waiting[i] = self->waiting[--self->waiting_count];
}

static void free_sample(sample *s)
{
    free(s->tokens);
    free(s->raw_logp);
    free(s->logp);
    free(s->prompt_logp);
    free(s->top_ids);
    free(s->top_logp);
    free(s->logp_of_ids);
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
    free(self->changed);
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
        self->changed = calloc(model->vocab_size, sizeof(float));
    }
    if (!self || !self->own || !self->raw || !self->row || !self->changed) {
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

/* The capabilities of this engine. */
#define OFFERS                                                          \
    (XRAY_INFER_MIN_TOKENS | XRAY_INFER_PENALTIES | XRAY_INFER_BIASES | \
     XRAY_INFER_MASKS | XRAY_INFER_FORCED_IDS | XRAY_INFER_TOP_LOGP |   \
     XRAY_INFER_LOGP_IDS | XRAY_INFER_PROMPT_LOGP)

static xray_status engine_submit(void *ptr, const xray_request *request)
{
    engine *self = ptr;
    const xray_host *host = self->host;
    if (!request->id_count || self->waiting_count == REQUESTS)
        return host->fail(host, XRAY_E_ARG, __func__,
                          "the prompt is empty or the queue is full");
    if (xray_request_needs(request) & ~(uint64_t)OFFERS)
        return host->fail(host, XRAY_E_UNSUPPORTED, __func__,
                          "a table knows no top_p, top_k or min_p, streams "
                          "nothing, and ends a sample only at stop_ids or "
                          "max_tokens");
    xray_request *copy = table_keep(request);
    if (!copy)
        return host->fail(host, XRAY_E_NOMEM, __func__, "out of memory");
    self->waiting[self->waiting_count++] = copy;
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

/* Adds what else the request wishes to know about token `at` of a sample. */
static void note_wishes(engine *self, const xray_request *r, sample *s,
                        uint32_t at)
{
    if (s->top_count)
        table_likeliest(self->raw, self->vocab, s->top_count,
                        s->top_ids + (size_t)at * s->top_count,
                        s->top_logp + (size_t)at * s->top_count);
    for (uint32_t i = 0; i < s->id_count; i++)
        s->logp_of_ids[(size_t)at * s->id_count + i] =
            self->raw[r->logp_ids[i]];
}

static void fill_prompt_logp(engine *self, const xray_request *r, sample *s)
{
    for (uint32_t i = 1; i < s->prompt_count; i++) {
        table_logp(self->table, self->vocab, r->ids[i - 1], 1.0f, self->raw);
        s->prompt_logp[i] = self->raw[r->ids[i]];
    }
}

/* Draws from the logits as the request changes them, or takes the id that it
 * forces. */
static int32_t next_token(engine *self, const xray_request *r, const sample *s,
                          int32_t previous)
{
    float temperature = r->temperature > 0 ? r->temperature : 1.0f;
    if (s->count < r->forced_count)
        return r->forced_ids[s->count];
    memcpy(self->changed, self->table + (size_t)previous * self->vocab,
           self->vocab * sizeof(float));
    table_change(r, s->tokens, s->count, self->vocab, self->changed);
    table_logp(self->changed, self->vocab, 0, temperature, self->row);
    return pick_token(self, r, s->number, r->id_count + s->count);
}

static void generate_tokens(engine *self, const xray_request *r, sample *s)
{
    int32_t previous = r->ids[r->id_count - 1];
    float temperature = r->temperature > 0 ? r->temperature : 1.0f;
    s->finish = XRAY_FINISH_LENGTH;
    fill_prompt_logp(self, r, s);
    while (s->count < r->max_tokens &&
           r->id_count + s->count < self->max_positions) {
        int32_t token = next_token(self, r, s, previous);
        table_logp(self->table, self->vocab, previous, 1.0f, self->raw);
        table_logp(self->table, self->vocab, previous, temperature, self->row);
        s->tokens[s->count] = token;
        s->raw_logp[s->count] = self->raw[token];
        s->logp[s->count] = self->row[token];
        note_wishes(self, r, s, s->count++);
        previous = token;
        if (is_stop(r, token)) {
            s->finish = XRAY_FINISH_STOP;
            break;
        }
    }
    s->span = (xray_span){ .first = r->id_count,
                           .last = r->id_count + s->count,
                           .version = self->version };
    self->stats.generation_tokens += s->count;
}

/* Memory for the tokens of a sample and for what is to be known of them; -1: it
 * is out. */
static int open_sample(const engine *self, const xray_request *r, sample *s)
{
    size_t most = r->max_tokens + (size_t)1;
    s->prompt_count = r->prompt_logp ? r->id_count : 0;
    s->top_count = r->top_count < self->vocab ? r->top_count : self->vocab;
    s->id_count = r->logp_id_count;
    s->tokens = calloc(most, sizeof(*s->tokens));
    s->raw_logp = calloc(most, sizeof(float));
    s->logp = calloc(most, sizeof(float));
    s->prompt_logp = calloc(s->prompt_count + (size_t)1, sizeof(float));
    s->top_ids = calloc(most * (s->top_count + 1), sizeof(*s->top_ids));
    s->top_logp = calloc(most * (s->top_count + 1), sizeof(float));
    s->logp_of_ids = calloc(most * (s->id_count + 1), sizeof(float));
    return s->tokens && s->raw_logp && s->logp && s->prompt_logp &&
                   s->top_ids && s->top_logp && s->logp_of_ids
               ? 0
               : -1;
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
    if (open_sample(self, r, &s)) {
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
    const xray_request *r = self->waiting[at];
    for (uint32_t i = 0; i < r->count && status == XRAY_OK; i++)
        status = add_sample(self, r, i, aborted);
    self->stats.prompt_tokens += r->id_count;
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
        return XRAY_END;
    self->stats.steps++;
    xray_status status = finish_request(self, 0, 0);
    if (status != XRAY_OK)
        return status;
    return self->waiting_count ? XRAY_OK : XRAY_END;
}

static xray_status engine_poll(void *ptr, xray_sample_out *out)
{
    engine *self = ptr;
    free_sample(&self->given);
    if (!self->done_count)
        return self->waiting_count ? XRAY_AGAIN : XRAY_END;
    self->given = self->done[--self->done_count];
    const sample *s = &self->given;
    const xray_sample_out own = {
        .header = XRAY_HEADER(xray_sample_out),
        .id = s->id,
        .sample = s->number,
        .token_count = s->count,
        .tokens = s->tokens,
        .raw_logp = s->raw_logp,
        .logp = s->logp,
        .finish = s->finish,
        .span_count = s->count ? 1 : 0,
        .spans = &s->span,
        .span_stride = sizeof(s->span),
        .prompt_logp = s->prompt_count ? s->prompt_logp : NULL,
        .prompt_count = s->prompt_count,
        .top_count = s->top_count,
        .top_ids = s->top_count ? s->top_ids : NULL,
        .top_logp = s->top_count ? s->top_logp : NULL,
        .logp_of_ids = s->id_count ? s->logp_of_ids : NULL,
    };
    xray_fill(out, &own);
    return XRAY_OK;
}

static xray_status engine_abort(void *ptr, uint64_t id, uint32_t number)
{
    engine *self = ptr;
    if (number != XRAY_ALL_SAMPLES)
        return self->host->fail(self->host, XRAY_E_UNSUPPORTED, __func__,
                                "one sample cannot be aborted alone");
    for (uint32_t i = 0; i < self->waiting_count; i++)
        if (self->waiting[i]->id == id)
            return finish_request(self, i, 1);
    return XRAY_OK;
}

static xray_status engine_stats(void *ptr, xray_infer_stats *out)
{
    const engine *self = ptr;
    xray_infer_stats own = self->stats;
    own.requests_waiting = self->waiting_count;
    xray_fill(out, &own);
    return XRAY_OK;
}

/* Copies a box of the table, which may be a part of it, row by row. */
static void take_box(engine *self, const xray_tensor *from)
{
    const float *data = from->data;
    for (uint64_t r = 0; data && r < from->extent[0]; r++)
        memcpy(self->own + (from->lo[0] + r) * self->vocab + from->lo[1],
               data + r * from->stride[0], from->extent[1] * sizeof(float));
}

static xray_status engine_update(void *ptr, const xray_weights *from,
                                 uint64_t version)
{
    engine *self = ptr;
    if (self->waiting_count)
        return self->host->fail(self->host, XRAY_E_STATE, __func__,
                                "requests are running");
    for (uint32_t i = 0; from && !self->weights && i < from->tensor_count; i++)
        take_box(self, &from->tensors[i]);
    self->version = version;
    return XRAY_OK;
}

const xray_infer_ops table_infer_ops = {
    .header = XRAY_HEADER(xray_infer_ops),
    .capabilities = OFFERS,
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
