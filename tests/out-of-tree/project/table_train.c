/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the training backend: plain gradient descent on the table.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <xray/box.h>
#include <xray/services.h>

#include "table.h"

typedef struct trainer {
    const xray_host *host;
    const xray_call_service *calls;      /* NULL in a host without it */
    const xray_metrics_service *metrics; /* the same */
    uint64_t tokens_seen;
    uint32_t vocab;
    uint32_t leases;
    uint64_t version;
    uint64_t count; /* vocab * vocab */
    float *table;
    double *grad;
    float *row; /* [vocab] */
    float *dlogp;
    float *dentropy;
    float *logp;
    float *entropy;
    uint64_t tokens; /* bound of a batch */
    xray_tensor tensor;
    xray_weights weights;
} trainer;

static uint64_t weights_version(void *owner)
{
    return ((const trainer *)owner)->version;
}

static xray_status weights_lease(void *owner)
{
    ((trainer *)owner)->leases++;
    return XRAY_OK;
}

static void weights_release(void *owner)
{
    ((trainer *)owner)->leases--;
}

static void trainer_destroy(void *ptr)
{
    trainer *self = ptr;
    if (!self)
        return;
    free(self->table);
    free(self->grad);
    free(self->row);
    free(self->dlogp);
    free(self->dentropy);
    free(self->logp);
    free(self->entropy);
    free(self);
}

static void publish_weights(trainer *self, const xray_setup *setup)
{
    self->tensor = (xray_tensor){
        .name = "table",
        .dtype = XRAY_F32,
        .dims = 2,
        .shape = { self->vocab, self->vocab, 0, 0 },
        .data = self->table,
    };
    xray_box_make_plain(&self->tensor);
    self->weights = (xray_weights){
        .header = XRAY_HEADER(xray_weights),
        .tensor_count = 1,
        .tensor_stride = sizeof(self->tensor),
        .tensors = &self->tensor,
        .device = setup->device,
        .device_self = setup->device_self,
        .owner = self,
        .version = weights_version,
        .lease = weights_lease,
        .release = weights_release,
    };
}

static xray_status trainer_create(const xray_setup *setup, const void *config,
                                  const xray_workload *load, void **out_self)
{
    const xray_model *model = setup->model;
    uint64_t count = (uint64_t)model->vocab_size * model->vocab_size;
    trainer *self = calloc(1, sizeof(*self));
    (void)config;
    if (self) {
        self->table = calloc(count, sizeof(float));
        self->grad = calloc(count, sizeof(double));
        self->row = calloc(model->vocab_size, sizeof(float));
        self->dlogp = calloc(load->tokens, sizeof(float));
        self->dentropy = calloc(load->tokens, sizeof(float));
        self->logp = calloc(load->tokens, sizeof(float));
        self->entropy = calloc(load->tokens, sizeof(float));
    }
    if (!self || !self->table || !self->grad || !self->row || !self->dlogp ||
        !self->dentropy || !self->logp || !self->entropy) {
        trainer_destroy(self);
        return setup->host->fail(setup->host, XRAY_E_NOMEM, __func__,
                                 "out of memory");
    }
    self->host = setup->host;
    self->calls = setup->host->service(setup->host, XRAY_SERVICE_CALLS);
    self->metrics = setup->host->service(setup->host, XRAY_SERVICE_METRICS);
    self->vocab = model->vocab_size;
    self->count = count;
    self->tokens = load->tokens;
    publish_weights(self, setup);
    *out_self = self;
    return XRAY_OK;
}

static const xray_weights *trainer_weights(void *self)
{
    return &((const trainer *)self)->weights;
}

static float get_temperature(const xray_batch *batch, uint32_t row)
{
    return batch->temperature ? batch->temperature[row] : 1.0f;
}

static float compute_entropy(const float *logp, uint32_t vocab)
{
    double sum = 0;
    for (uint32_t i = 0; i < vocab; i++)
        sum -= exp((double)logp[i]) * (double)logp[i];
    return (float)sum;
}

static int is_wanted(const xray_batch *batch, uint32_t row, int32_t t)
{
    return t > batch->row_start[row] &&
           (!batch->loss_mask || batch->loss_mask[t] != 0);
}

/* The loops below ask this once per row. After XRAY_E_CANCELED the host only
 * cleans up. */
static xray_status check_stop(const trainer *self)
{
    if (!self->calls || !self->calls->stopping(self->calls))
        return XRAY_OK;
    return self->host->fail(self->host, XRAY_E_CANCELED, __func__,
                            "the run is stopped");
}

static xray_status forward_batch(trainer *self, const xray_batch *batch,
                                 uint32_t outputs, xray_outputs *out)
{
    if (outputs & XRAY_OUTPUT_VALUE)
        return self->host->fail(self->host, XRAY_E_UNSUPPORTED, __func__,
                                "a table has no value head");
    for (uint32_t r = 0; r < batch->rows; r++) {
        xray_status status = check_stop(self);
        if (status != XRAY_OK)
            return status;
        for (int32_t t = batch->row_start[r]; t < batch->row_start[r + 1];
             t++) {
            int wanted = is_wanted(batch, r, t);
            if (wanted)
                table_logp(self->table, self->vocab, batch->ids[t - 1],
                           get_temperature(batch, r), self->row);
            if (outputs & XRAY_OUTPUT_LOGP)
                out->logp[t] = wanted ? self->row[batch->ids[t]] : 0.0f;
            if (outputs & XRAY_OUTPUT_ENTROPY)
                out->entropy[t] =
                    wanted ? compute_entropy(self->row, self->vocab) : 0.0f;
        }
    }
    return XRAY_OK;
}

static xray_status trainer_forward(void *ptr, const xray_batch *const *batches,
                                   uint32_t count, uint32_t outputs,
                                   xray_outputs *out)
{
    xray_outputs part = *out;
    for (uint32_t i = 0; i < count; i++) {
        xray_status status = forward_batch(ptr, batches[i], outputs, &part);
        if (status != XRAY_OK)
            return status;
        part.logp = part.logp ? part.logp + batches[i]->tokens : NULL;
        part.entropy = part.entropy ? part.entropy + batches[i]->tokens : NULL;
    }
    return XRAY_OK;
}

/* dz_j = (dlogp (1[j = token] - p_j) - dH p_j (log p_j + H)) / temperature. */
static void add_gradient(trainer *self, const xray_batch *batch, uint32_t row,
                         int32_t t)
{
    double *grad = self->grad + (size_t)batch->ids[t - 1] * self->vocab;
    double temperature = (double)get_temperature(batch, row);
    table_logp(self->table, self->vocab, batch->ids[t - 1],
               get_temperature(batch, row), self->row);
    for (uint32_t j = 0; j < self->vocab; j++) {
        double p = exp((double)self->row[j]);
        double hit = (int32_t)j == batch->ids[t];
        grad[j] += ((double)self->dlogp[t] * (hit - p) -
                    (double)self->dentropy[t] * p *
                        ((double)self->row[j] + (double)self->entropy[t])) /
                   temperature;
    }
}

static xray_status add_gradients(trainer *self,
                                 const xray_batch *const *batches,
                                 uint32_t count, const xray_loss *loss)
{
    for (uint32_t i = 0; i < count; i++) {
        const xray_batch *batch = batches[i];
        xray_outputs out = { .header = XRAY_HEADER(xray_outputs),
                             .logp = self->logp,
                             .entropy = self->entropy };
        xray_loss_call call = { .header = XRAY_HEADER(xray_loss_call),
                                .batch = batch,
                                .logp = self->logp,
                                .entropy = self->entropy,
                                .dlogp = self->dlogp,
                                .dentropy = self->dentropy };
        if (batch->tokens > self->tokens)
            return self->host->fail(self->host, XRAY_E_RANGE, __func__,
                                    "a micro-batch is over the bound");
        xray_status status = forward_batch(
            self, batch, XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY, &out);
        if (status != XRAY_OK)
            return status;
        memset(self->dlogp, 0, batch->tokens * sizeof(float));
        memset(self->dentropy, 0, batch->tokens * sizeof(float));
        status = loss->fn(loss->ctx, &call);
        if (status != XRAY_OK)
            return status;
        self->tokens_seen += batch->tokens;
        for (uint32_t r = 0; r < batch->rows; r++)
            for (int32_t t = batch->row_start[r]; t < batch->row_start[r + 1];
                 t++)
                if (is_wanted(batch, r, t))
                    add_gradient(self, batch, r, t);
    }
    return XRAY_OK;
}

/* Part of a mini-batch must not get into the next update. */
static xray_status trainer_backward(void *ptr, const xray_batch *const *batches,
                                    uint32_t count, const xray_loss *loss)
{
    trainer *self = ptr;
    xray_status status = add_gradients(self, batches, count, loss);
    if (status != XRAY_OK)
        memset(self->grad, 0, self->count * sizeof(*self->grad));
    return status;
}

static xray_status trainer_step(void *ptr, double lr, double max_norm,
                                xray_step_result *out)
{
    trainer *self = ptr;
    double square = 0;
    if (self->leases)
        return self->host->fail(self->host, XRAY_E_STATE, __func__,
                                "the weights are leased");
    for (uint64_t i = 0; i < self->count; i++)
        square += self->grad[i] * self->grad[i];
    xray_step_result own = { .header = XRAY_HEADER(xray_step_result),
                             .grad_norm = sqrt(square),
                             .skipped = isfinite(square) ? 0u : 1u,
                             .bad_tensor = isfinite(square) ? NULL : "table" };
    if (!own.skipped) {
        double clip = max_norm > 0 && own.grad_norm > max_norm
                          ? max_norm / own.grad_norm
                          : 1.0;
        for (uint64_t i = 0; i < self->count; i++)
            self->table[i] -= (float)(lr * clip * self->grad[i]);
        self->version++;
    }
    memset(self->grad, 0, self->count * sizeof(*self->grad));
    own.version = self->version;
    xray_fill(out, &own);
    if (self->metrics)
        (void)self->metrics->put(self->metrics, "tokens",
                                 (double)self->tokens_seen);
    self->tokens_seen = 0;
    return XRAY_OK;
}

static xray_status trainer_save(void *ptr, const char *dir)
{
    const trainer *self = ptr;
    return table_write(self->host, dir, self->table, self->count);
}

static xray_status trainer_load(void *ptr, const char *dir)
{
    trainer *self = ptr;
    return table_read(self->host, dir, self->table, self->count);
}

const xray_train_ops table_train_ops = {
    .header = XRAY_HEADER(xray_train_ops),
    .plan = table_plan,
    .create = trainer_create,
    .destroy = trainer_destroy,
    .weights = trainer_weights,
    .forward = trainer_forward,
    .forward_backward = trainer_backward,
    .optimizer_step = trainer_step,
    .save = trainer_save,
    .load = trainer_load,
};
