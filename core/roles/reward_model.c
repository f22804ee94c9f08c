/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the built-in reward model as a reward whose scores the training
 * backend computes.
 */
#include "core/roles/reward_model.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"
#include "core/roles/role_calls.h"
#include "core/run/run_setup.h"

typedef struct reward_model {
    const xray_host *host;
    xr_roles *roles;
    /* Samples of the submission being answered. */
    const xray_sample_in *samples;
    uint64_t count;
    uint64_t stride;
    uint64_t next; /* the next sample to answer */
    uint64_t done; /* samples below this one have their values */
    xr_rows rows;
    xr_views views;
    int32_t *response; /* [response_cap] a response and one more token */
    uint8_t *mask;     /* [mask_cap] */
    float *values;     /* [rows.token_cap] */
    uint32_t response_cap;
    uint32_t mask_cap;
    uint64_t first; /* sample of row 0 of `rows` */
} reward_model;

static xray_status reward_model_create(const xray_host *host,
                                       const void *config, void **out_self)
{
    const xr_reward_model_config *own = config;
    if (!own->path || !*own->path) {
        xr_err err;
        (void)xr_fail_key(&err, XRAY_E_CONFIG, NULL, "path",
                          ": is not set; it names the folder of the reward "
                          "model");
        return xr_host_tell(host, XRAY_E_CONFIG, "create", &err);
    }
    reward_model *self = xr_calloc(1, sizeof(*self));
    if (!self)
        return host->fail(host, XRAY_E_NOMEM, "create", "out of memory");
    self->host = host;
    *out_self = self;
    return XRAY_OK;
}

static void reward_model_destroy(void *ptr)
{
    reward_model *self = ptr;
    if (!self)
        return;
    xr_rows_free(&self->rows);
    xr_views_free(&self->views);
    free(self->response);
    free(self->mask);
    free(self->values);
    free(self);
}

void xr_reward_model_bind(void *ptr, xr_roles *roles)
{
    reward_model *self = ptr;
    self->roles = roles;
}

static xray_status reward_model_submit(void *ptr, const xray_sample_in *samples,
                                       uint64_t count, uint64_t stride)
{
    reward_model *self = ptr;
    if (!self->roles || !self->roles->reward_model.self)
        return self->host->fail(self->host, XRAY_E_STATE, "submit",
                                "the reward model is not loaded");
    self->samples = samples;
    self->count = count;
    self->stride = stride;
    self->next = self->done = 0;
    return XRAY_OK;
}

static const xray_sample_in *sample_at(const reward_model *self, uint64_t i)
{
    const char *at = (const char *)self->samples;
    return (const xray_sample_in *)(const void *)(at + i * self->stride);
}

/* Returns the end of the samples that the next call takes: as many rows as the
 * models are ready for. */
static uint64_t find_chunk_end(const reward_model *self, uint64_t *out_tokens)
{
    uint64_t most = xr_step_rows(&self->roles->run->ini);
    uint64_t end = self->done;
    *out_tokens = 0;
    for (; end < self->count && end - self->done < most; end++)
        *out_tokens += (uint64_t)sample_at(self, end)->prompt_id_count +
                       sample_at(self, end)->id_count + 1;
    return end;
}

static xray_status grow_batch(reward_model *self, uint64_t rows,
                              uint64_t tokens, xr_err *err)
{
    xray_status status = XRAY_OK;
    if (rows > self->rows.row_cap || tokens > self->rows.token_cap) {
        uint64_t old_rows = self->rows.row_cap;
        uint64_t old_tokens = self->rows.token_cap;
        xr_rows_free(&self->rows);
        xr_views_free(&self->views);
        free(self->values);
        rows = rows > old_rows ? rows : old_rows;
        tokens = tokens > old_tokens ? tokens : old_tokens;
        self->values = xr_calloc(tokens, sizeof(*self->values));
        status = self->values ? xr_rows_init(&self->rows, rows, tokens, err)
                              : xr_fail(err, XRAY_E_NOMEM,
                                        "out of memory for %llu tokens",
                                        (unsigned long long)tokens);
        if (status == XRAY_OK)
            status = xr_views_init(&self->views, rows, err);
    }
    return status;
}

static xray_status grow_row_arrays(reward_model *self, const xray_sample_in *in,
                                   xr_err *err)
{
    uint32_t response = in->id_count + 1;
    uint32_t tokens = response + in->prompt_id_count;
    if (response > self->response_cap) {
        free(self->response);
        self->response = xr_calloc(response, sizeof(*self->response));
        self->response_cap = self->response ? response : 0;
    }
    if (tokens > self->mask_cap) {
        free(self->mask);
        self->mask = xr_calloc(tokens, 1);
        self->mask_cap = self->mask ? tokens : 0;
    }
    return self->response_cap >= response && self->mask_cap >= tokens
               ? XRAY_OK
               : xr_fail(err, XRAY_E_NOMEM, "out of memory for a row of %u",
                         tokens);
}

/* The value of a token is that of the state before it, so one more token is
 * appended; its id does not matter. */
static xray_status add_sample_row(reward_model *self, const xray_sample_in *in,
                                  uint64_t at, xr_err *err)
{
    uint32_t tokens = in->prompt_id_count + in->id_count + 1;
    if (!in->prompt_ids)
        return xr_fail(err, XRAY_E_ARG,
                       "sample %llu has no prompt ids, a reward model needs "
                       "them",
                       (unsigned long long)in->id);
    xray_status status = grow_row_arrays(self, in, err);
    if (status != XRAY_OK)
        return status;
    memset(self->mask, 0, tokens);
    self->mask[tokens - 1] = 1;
    if (in->id_count)
        memcpy(self->response, in->ids, in->id_count * sizeof(*in->ids));
    self->response[in->id_count] = 0;
    xr_row_in row = { .prompt = in->prompt_ids,
                      .prompt_count = in->prompt_id_count,
                      .response = self->response,
                      .response_count = in->id_count + 1,
                      .mask = self->mask,
                      .row_id = at,
                      .temperature = 1 };
    return xr_rows_add(&self->rows, &row, err);
}

/* Computes the values of the next samples. */
static xray_status compute_values(reward_model *self, xr_err *err)
{
    xray_outputs out = { .header = XRAY_HEADER(xray_outputs) };
    uint64_t tokens = 0;
    uint64_t end = find_chunk_end(self, &tokens);
    xray_status status = grow_batch(self, end - self->done, tokens, err);
    if (status != XRAY_OK)
        return status;
    xr_rows_clear(&self->rows);
    for (uint64_t i = self->done; i < end && status == XRAY_OK; i++)
        status = add_sample_row(self, sample_at(self, i), i, err);
    const xr_cut cut = {
        .count = self->rows.batch.rows,
        .budget = xr_run_workload(self->roles->run, XRAY_ROLE_REWARD).tokens
    };
    if (status == XRAY_OK)
        status = xr_views_cut(&self->views, &self->rows, &cut, err);
    if (status != XRAY_OK)
        return status;
    out.value = self->values;
    status = xr_role_forward(self->roles, XRAY_ROLE_REWARD, &self->views,
                             XRAY_OUTPUT_VALUE, &out, err);
    if (status != XRAY_OK)
        return status;
    self->first = self->done;
    self->done = end;
    return XRAY_OK;
}

static xray_status reward_model_poll(void *ptr, uint64_t wait_ns,
                                     xray_score *out)
{
    reward_model *self = ptr;
    xr_err err = { "" };
    (void)wait_ns;
    if (self->next == self->count)
        return XRAY_END;
    if (self->next == self->done) {
        xray_status status = compute_values(self, &err);
        if (status != XRAY_OK)
            return self->host->fail(self->host, status, "poll", err.text);
    }
    uint64_t row = self->next - self->first;
    const xray_score own = {
        .header = XRAY_HEADER(xray_score),
        .id = sample_at(self, self->next)->id,
        .score = (double)self->values[self->rows.row_start[row + 1] - 1]
    };
    xray_fill(out, &own);
    self->next++;
    return XRAY_OK;
}

static const xray_reward_ops reward_model_ops = {
    .header = XRAY_HEADER(xray_reward_ops),
    .create = reward_model_create,
    .destroy = reward_model_destroy,
    .submit = reward_model_submit,
    .poll = reward_model_poll,
};

const xray_reward_ops *xr_reward_ops(const xr_part *part)
{
    return part->component == &xr_reward_model_component
               ? &reward_model_ops
               : (const xray_reward_ops *)part->ops;
}
