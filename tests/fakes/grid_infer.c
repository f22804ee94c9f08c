/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the engine: all samples go one token further in a step, for which
 * the ranks of an engine join the halves of the logits. Each then draws the
 * same tokens.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <xray/batch.h>
#include <xray/box.h>
#include <xray/numerics.h>

#include "tests/fakes/grid.h"

#define OWNER "infer.grid"
#define MOST_STOPS 8u

typedef struct sample {
    uint64_t id;
    uint64_t key; /* of its draws */
    uint32_t number;
    uint32_t prompt_count;
    uint32_t count;
    uint32_t most;
    uint32_t finish; /* XRAY_FINISH_NONE: it is running */
    int32_t previous;
    float temperature;
    uint32_t stop_count;
    int32_t stop_ids[MOST_STOPS];
    int32_t *tokens;
    float *raw_logp;
    float *logp;
    xray_span span;
} sample;

typedef struct engine {
    grid_world world;
    uint32_t vocab;
    uint32_t half_rows; /* of the larger half */
    uint32_t max_positions;
    uint32_t most_samples; /* of a step */
    uint64_t version;
    const xray_weights *shared; /* NULL: the tables are its own */
    uint32_t leased;
    grid_rows held; /* rows of `head` */
    float *own[2];  /* [vocab, HIDDEN]; of `head` the rows held */
    const float *embed;
    const float *head; /* begins with the first row held */
    float *logits;     /* [HALVES, most_samples, half_rows] */
    sample *samples;   /* in the order of the requests */
    uint32_t count;
    uint32_t cap;
    sample given; /* valid until the next poll */
    xray_tensor tensors[2];
    xray_weights weights;
    xray_infer_stats stats;
} engine;

static xray_status refuse_call(const engine *self, xray_status status,
                               const char *where, const char *why)
{
    return self->world.host->fail(self->world.host, status, where, why);
}

static void free_sample(sample *s)
{
    free(s->tokens);
    free(s->raw_logp);
    free(s->logp);
    *s = (sample){ 0 };
}

/* ---- the instance -------------------------------------------------------- */

static xray_status plan_infer(const xray_host *host, const void *options,
                              const xray_model *model, const xray_world *world,
                              const xray_workload *load, xray_plan *out)
{
    static const xray_axis one = { .name = XRAY_AXIS_TENSOR, .size = 1 };
    static const xray_axis two = { .name = XRAY_AXIS_TENSOR, .size = 2 };
    const grid_config *config = options;
    (void)load;
    (void)world;
    if (model->vocab_size < 2)
        return host->fail(host, XRAY_E_CONFIG, NULL,
                          "a vocabulary of 2 or more is expected");
    xray_plan own = {
        .header = XRAY_HEADER(xray_plan),
        .axes = config->tp == 2 ? &two : &one,
        .axis_count = 1,
        .axis_stride = sizeof(xray_axis),
        .answers = (uint32_t)config->tp - 1, /* the last rank */
    };
    own.bytes[XRAY_TAG_WEIGHTS] =
        2 * sizeof(float) * HIDDEN * model->vocab_size;
    xray_fill(out, &own);
    return XRAY_OK;
}

static void destroy_infer(void *ptr)
{
    engine *self = ptr;
    if (!self)
        return;
    const grid_world *w = &self->world;
    void *const device[] = { self->own[0], self->own[1], self->logits };
    for (size_t i = 0; i < sizeof(device) / sizeof(device[0]); i++)
        if (device[i])
            w->device->free(w->device_self, device[i]);
    while (self->count)
        free_sample(&self->samples[--self->count]);
    if (self->leased)
        self->shared->release(self->shared->owner);
    free_sample(&self->given);
    free(self->samples);
    free(self);
}

static uint64_t infer_version(void *owner)
{
    return ((const engine *)owner)->version;
}

static xray_status lease_own(void *owner)
{
    (void)owner;
    return XRAY_OK;
}

static void release_own(void *owner)
{
    (void)owner;
}

static void describe_own(engine *self)
{
    const uint32_t rows = self->held.end - self->held.first;
    self->weights = (xray_weights){ .header = XRAY_HEADER(xray_weights),
                                    .tensor_count = 2,
                                    .tensor_stride = sizeof(xray_tensor),
                                    .tensors = self->tensors,
                                    .device = self->world.device,
                                    .device_self = self->world.device_self,
                                    .owner = self,
                                    .version = infer_version,
                                    .lease = lease_own,
                                    .release = release_own };
    self->tensors[0] = (xray_tensor){ .name = "embed",
                                      .dtype = XRAY_F32,
                                      .dims = 2,
                                      .shape = { self->vocab, HIDDEN },
                                      .data = self->own[0] };
    xray_box_make_plain(&self->tensors[0]);
    self->tensors[1] = self->tensors[0];
    self->tensors[1].name = "head";
    self->tensors[1].lo[0] = self->held.first;
    self->tensors[1].extent[0] = rows;
    self->tensors[1].data = self->own[1];
    self->embed = self->own[0];
    self->head = self->own[1];
}

static xray_status start_own(engine *self, const xray_model *model)
{
    const size_t size = (size_t)self->vocab * HIDDEN;
    float *tables = calloc(STAGES * size, sizeof(float));
    if (!tables)
        return refuse_call(self, XRAY_E_NOMEM, __func__, "out of memory");
    xray_status status = grid_start(self->world.host, model, tables);
    if (status == XRAY_OK) {
        memcpy(self->own[0], tables, size * sizeof(float));
        memcpy(self->own[1], tables + size + (size_t)self->held.first * HIDDEN,
               xray_box_count(&self->tensors[1]) * sizeof(float));
    }
    free(tables);
    return status;
}

static xray_status open_tables(engine *self, const xray_setup *setup)
{
    const uint64_t size = (uint64_t)self->vocab * HIDDEN;
    void *blocks[3] = { NULL, NULL, NULL };
    const uint64_t bytes[3] = { size * sizeof(float), size * sizeof(float),
                                (uint64_t)HALVES * self->most_samples *
                                    self->half_rows * sizeof(float) };
    xray_status status = XRAY_OK;
    for (int i = 0; i < 3 && status == XRAY_OK; i++)
        status = grid_alloc(&self->world, OWNER, XRAY_TAG_WEIGHTS, bytes[i],
                            &blocks[i]);
    self->own[0] = blocks[0];
    self->own[1] = blocks[1];
    self->logits = blocks[2];
    if (status != XRAY_OK)
        return status;
    describe_own(self);
    self->shared = setup->weights;
    if (self->shared) {
        self->embed = self->shared->tensors[0].data;
        self->head = (const float *)self->shared->tensors[1].data +
                     (size_t)self->held.first * HIDDEN;
        return XRAY_OK;
    }
    return start_own(self, setup->model);
}

static xray_status create_infer(const xray_setup *setup, const void *options,
                                const xray_workload *load, void **out_self)
{
    grid_config config = *(const grid_config *)options;
    engine *self = calloc(1, sizeof(*self));
    if (!self)
        return setup->host->fail(setup->host, XRAY_E_NOMEM, __func__,
                                 "out of memory");
    config.pp = 1;
    self->vocab = setup->model->vocab_size;
    self->half_rows = grid_half(self->vocab, 0).end;
    self->max_positions = setup->model->max_positions;
    self->most_samples = (uint32_t)load->rows;
    self->stats.header = (xray_header)XRAY_HEADER(xray_infer_stats);
    xray_status status = grid_open_world(setup, &config, &self->world);
    if (status == XRAY_OK) {
        self->held = config.tp == 1
                         ? (grid_rows){ 0, self->vocab }
                         : grid_half(self->vocab, self->world.tp.rank);
        status = open_tables(self, setup);
    }
    if (status != XRAY_OK) {
        destroy_infer(self);
        return status;
    }
    *out_self = self;
    return XRAY_OK;
}

/* ---- requests ------------------------------------------------------------ */

static xray_status add_sample(engine *self, const xray_request *r, uint32_t i)
{
    if (self->count == self->cap) {
        uint32_t cap = self->cap ? 2 * self->cap : 64;
        sample *more = realloc(self->samples, cap * sizeof(*more));
        if (!more)
            return refuse_call(self, XRAY_E_NOMEM, __func__, "out of memory");
        self->samples = more;
        self->cap = cap;
    }
    sample s = { .id = r->id,
                 .key = xray_philox_key(r->seed, r->step, r->prompt_id),
                 .number = r->first_sample + i,
                 .prompt_count = r->id_count,
                 .most = r->max_tokens,
                 .previous = r->ids[r->id_count - 1],
                 .temperature = r->temperature,
                 .stop_count = r->stop_count };
    if (r->stop_count)
        memcpy(s.stop_ids, r->stop_ids, r->stop_count * sizeof(int32_t));
    s.tokens = calloc(r->max_tokens + 1u, sizeof(*s.tokens));
    s.raw_logp = calloc(r->max_tokens + 1u, sizeof(float));
    s.logp = calloc(r->max_tokens + 1u, sizeof(float));
    if (!s.tokens || !s.raw_logp || !s.logp) {
        free_sample(&s);
        return refuse_call(self, XRAY_E_NOMEM, __func__, "out of memory");
    }
    self->samples[self->count++] = s;
    return XRAY_OK;
}

static xray_status submit_infer(void *ptr, const xray_request *r)
{
    engine *self = ptr;
    xray_status status = XRAY_OK;
    if (!r->id_count || r->stop_count > MOST_STOPS || !r->max_tokens ||
        r->id_count >= self->max_positions)
        return refuse_call(self, XRAY_E_ARG, __func__,
                           "a prompt with room for tokens and up to 8 stop ids "
                           "are expected");
    if (xray_request_needs(r))
        return refuse_call(self, XRAY_E_UNSUPPORTED, __func__,
                           "two tables sample from all ids and end a sample "
                           "only at stop_ids or max_tokens");
    for (uint32_t i = 0; i < r->count && status == XRAY_OK; i++)
        status = add_sample(self, r, i);
    if (status == XRAY_OK && self->shared && !self->leased) {
        self->leased = 1;
        status = self->shared->lease(self->shared->owner);
    }
    self->stats.prompt_tokens += r->id_count;
    return status;
}

/* ---- steps --------------------------------------------------------------- */

/* The logits of sample `row` of a step, by halves. */
static float *logits_of(const engine *self, uint32_t half, uint32_t rows,
                        uint32_t row)
{
    return self->logits + ((size_t)half * rows + row) * self->half_rows;
}

/* Each rank computes its half of the logits of all rows; then all have both. */
static xray_status compute_logits(engine *self, sample *const *rows,
                                  uint32_t count)
{
    for (uint32_t half = 0; half < HALVES; half++) {
        const grid_rows part = grid_half(self->vocab, half);
        if (self->world.tp.size > 1 && half != self->world.tp.rank)
            continue;
        for (uint32_t i = 0; i < count; i++)
            for (uint32_t v = part.first; v < part.end; v++)
                logits_of(self, half, count, i)[v - part.first] = grid_logit(
                    self->embed + (size_t)rows[i]->previous * HIDDEN,
                    self->head + (size_t)(v - self->held.first) * HIDDEN);
    }
    if (self->world.tp.size == 1)
        return XRAY_OK;
    return grid_gather(&self->world, &self->world.tp,
                       logits_of(self, self->world.tp.rank, count, 0),
                       self->logits,
                       (uint64_t)count * self->half_rows * sizeof(float));
}

static double log_prob(const engine *self, uint32_t rows, uint32_t row,
                       double temperature, uint32_t token)
{
    grid_part part[HALVES];
    for (uint32_t half = 0; half < HALVES; half++)
        part[half] =
            grid_summarize(logits_of(self, half, rows, row),
                           grid_half(self->vocab, half), temperature, token);
    return grid_join(&part[0], &part[1]).logp;
}

static double pick_threshold(const sample *s)
{
    uint32_t position = s->prompt_count + s->count;
    return (double)xray_unit(
        xray_philox(s->key, 0, position, s->number, 0).w[0]);
}

/* Draws by the cumulative distribution, or takes the first of the likeliest. */
static uint32_t pick_token(const engine *self, const sample *s, uint32_t rows,
                           uint32_t row)
{
    double left = pick_threshold(s);
    double best_logp = -HUGE_VAL;
    uint32_t best = 0;
    for (uint32_t v = 0; v < self->vocab; v++) {
        double logp =
            log_prob(self, rows, row,
                     s->temperature > 0 ? (double)s->temperature : 1, v);
        if (s->temperature > 0) {
            best = v;
            left -= exp(logp);
            if (left <= 0)
                break;
        } else if (logp > best_logp) {
            best_logp = logp;
            best = v;
        }
    }
    return best;
}

static void extend_sample(engine *self, sample *s, uint32_t rows, uint32_t row)
{
    uint32_t token = pick_token(self, s, rows, row);
    double temperature = s->temperature > 0 ? (double)s->temperature : 1;
    s->tokens[s->count] = (int32_t)token;
    s->raw_logp[s->count] = (float)log_prob(self, rows, row, 1, token);
    s->logp[s->count] = (float)log_prob(self, rows, row, temperature, token);
    s->previous = (int32_t)token;
    s->count++;
    self->stats.generation_tokens++;
    if (s->count == s->most ||
        s->prompt_count + s->count == self->max_positions)
        s->finish = XRAY_FINISH_LENGTH;
    for (uint32_t i = 0; i < s->stop_count; i++)
        if (s->stop_ids[i] == (int32_t)token)
            s->finish = XRAY_FINISH_STOP;
    s->span = (xray_span){ .last = s->count, .version = self->version };
}

/* Samples beyond the most of a step wait, in the order of the requests. */
static uint32_t gather_running(engine *self, sample **rows)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < self->count && count < self->most_samples; i++)
        if (self->samples[i].finish == XRAY_FINISH_NONE)
            rows[count++] = &self->samples[i];
    return count;
}

static int is_idle(const engine *self)
{
    for (uint32_t i = 0; i < self->count; i++)
        if (self->samples[i].finish == XRAY_FINISH_NONE)
            return 0;
    return 1;
}

static void end_lease(engine *self)
{
    if (!self->leased || !is_idle(self))
        return;
    self->leased = 0;
    self->shared->release(self->shared->owner);
}

static xray_status step_infer(void *ptr)
{
    engine *self = ptr;
    if (is_idle(self))
        return XRAY_END;
    sample **rows = calloc(self->most_samples, sizeof(sample *));
    if (!rows)
        return refuse_call(self, XRAY_E_NOMEM, __func__, "out of memory");
    uint32_t count = gather_running(self, rows);
    xray_status status = compute_logits(self, rows, count);
    for (uint32_t i = 0; i < count && status == XRAY_OK; i++)
        extend_sample(self, rows[i], count, i);
    free(rows);
    self->stats.steps++;
    if (status != XRAY_OK)
        return status;
    end_lease(self);
    return is_idle(self) ? XRAY_END : XRAY_OK;
}

static xray_status poll_infer(void *ptr, xray_sample_out *out)
{
    engine *self = ptr;
    uint32_t at = 0;
    free_sample(&self->given);
    while (at < self->count && self->samples[at].finish == XRAY_FINISH_NONE)
        at++;
    if (at == self->count)
        return is_idle(self) ? XRAY_END : XRAY_AGAIN;
    sample *s = &self->given;
    *s = self->samples[at];
    self->count--;
    memmove(&self->samples[at], &self->samples[at + 1],
            (self->count - at) * sizeof(*s));
    const xray_sample_out own = { .header = XRAY_HEADER(xray_sample_out),
                                  .id = s->id,
                                  .sample = s->number,
                                  .token_count = s->count,
                                  .tokens = s->tokens,
                                  .raw_logp = s->raw_logp,
                                  .logp = s->logp,
                                  .finish = s->finish,
                                  .span_count = 1,
                                  .spans = &s->span,
                                  .span_stride = sizeof(s->span) };
    xray_fill(out, &own);
    return XRAY_OK;
}

static xray_status abort_infer(void *ptr, uint64_t id, uint32_t number)
{
    engine *self = ptr;
    for (uint32_t i = 0; i < self->count; i++)
        if (self->samples[i].id == id &&
            (number == XRAY_ALL_SAMPLES || self->samples[i].number == number) &&
            self->samples[i].finish == XRAY_FINISH_NONE)
            self->samples[i].finish = XRAY_FINISH_ABORT;
    end_lease(self);
    return XRAY_OK;
}

static xray_status report_stats(void *ptr, xray_infer_stats *out)
{
    xray_fill(out, &((const engine *)ptr)->stats);
    return XRAY_OK;
}

/* ---- weights ------------------------------------------------------------- */

/* Copies what a box has of a table that this rank holds. */
static void take_box(const xray_tensor *own, const xray_tensor *box)
{
    xray_tensor from;
    xray_tensor to;
    if (!xray_box_cut(box, own, &from))
        return;
    (void)xray_box_cut(own, box, &to);
    for (uint64_t r = 0; r < to.extent[0]; r++)
        memcpy((float *)to.data + r * to.stride[0],
               (const float *)from.data + r * from.stride[0],
               to.extent[1] * sizeof(float));
}

static xray_status update_infer(void *ptr, const xray_weights *from,
                                uint64_t version)
{
    engine *self = ptr;
    if (!is_idle(self))
        return refuse_call(self, XRAY_E_STATE, __func__,
                           "requests are running");
    for (uint32_t i = 0; from && !self->shared && i < from->tensor_count; i++) {
        const xray_tensor *box = &from->tensors[i];
        take_box(&self->tensors[strcmp(box->name, "head") == 0 ? 1 : 0], box);
    }
    self->version = version;
    return XRAY_OK;
}

static const xray_weights *infer_weights(void *ptr)
{
    const engine *self = ptr;
    return self->shared ? NULL : &self->weights;
}

const xray_infer_ops grid_infer_ops = {
    .header = XRAY_HEADER(xray_infer_ops),
    .capabilities = XRAY_INFER_ABORT_SAMPLE,
    .plan = plan_infer,
    .create = create_infer,
    .destroy = destroy_infer,
    .submit = submit_infer,
    .step = step_infer,
    .poll = poll_infer,
    .abort = abort_infer,
    .stats = report_stats,
    .update = update_infer,
    .weights = infer_weights,
};
