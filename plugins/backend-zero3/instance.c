/* SPDX-License-Identifier: Apache-2.0
 *
 * Making and unmaking an instance; its weights out and in.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/str.h"
#include "model/hf/safetensors.h"
#include "model/train/checkpoint.h"
#include "plugins/backend-zero3/zero3.h"

static const char *role_name(uint32_t role)
{
    switch (role) {
    case XRAY_ROLE_ACTOR:
        return "actor";
    case XRAY_ROLE_REFERENCE:
        return "reference";
    case XRAY_ROLE_CRITIC:
        return "critic";
    case XRAY_ROLE_ROLLOUT:
        return "rollout";
    case XRAY_ROLE_REWARD:
        return "reward";
    default:
        return "model";
    }
}

/* ---- create ------------------------------------------------------------- */

static xray_status make_weights(z3 *self, const xray_model *model, xr_err *err)
{
    xray_status status = xm_layout_create(&self->model, (int)self->value_head,
                                          err, &self->layout);
    if (status == XRAY_OK)
        status = xm_weights_create(
            self->layout, self->device, self->device_self, self->owner,
            self->trainable ? 1 : 0, err, &self->weights);
    if (status != XRAY_OK)
        return status;
    return model->random_init
               ? xm_weights_random(self->weights, &self->model, model->seed,
                                   err)
               : xm_weights_load(self->weights, model->path, err);
}

/* The table of gradients: the weights' names and shapes over other memory. */
static xray_status make_grad_table(z3 *self, xr_err *err)
{
    uint32_t count = self->layout->param_count;
    self->grad_tensors = xr_calloc(count, sizeof(*self->grad_tensors));
    if (!self->grad_tensors)
        return xr_fail(err, XRAY_E_NOMEM, "no memory for %" PRIu32 " tensors",
                       count);
    for (uint32_t i = 0; i < count; i++) {
        const xm_param *param = &self->layout->params[i];
        self->grad_tensors[i] = (xray_tensor){
            .name = param->name,
            .dtype = XRAY_F32,
            .dims = param->cols ? 2 : 1,
            .shape = { param->rows, param->cols },
            .count = param->count,
            .data = self->grads->buckets[param->bucket] + param->offset,
        };
    }
    self->grad_table = self->weights->table;
    self->grad_table.tensors = self->grad_tensors;
    self->grad_table.tensor_count = count;
    self->grad_table.tensor_stride = sizeof(xray_tensor);
    return XRAY_OK;
}

static xray_status make_token_arrays(z3 *self, xr_err *err)
{
    uint64_t tokens = self->load.tokens;
    float *memory = xr_calloc(Z3_TOKEN_ARRAYS * tokens, sizeof(float));
    if (!memory)
        return xr_fail(err, XRAY_E_NOMEM,
                       "no host memory for the loss of %" PRIu64 " tokens",
                       tokens);
    self->token_memory = memory;
    self->tokens = (z3_tokens){ .logp = memory,
                                .entropy = memory + tokens,
                                .value = memory + 2 * tokens,
                                .dlogp = memory + 3 * tokens,
                                .dentropy = memory + 4 * tokens,
                                .dvalue = memory + 5 * tokens };
    return XRAY_OK;
}

static xray_status make_training(z3 *self, const z3_config *config, xr_err *err)
{
    xm_adamw_options adamw = { .beta1 = config->beta1,
                               .beta2 = config->beta2,
                               .eps = config->eps,
                               .weight_decay = config->weight_decay };
    xray_status status =
        xm_grads_create(&self->model, self->layout, self->device,
                        self->device_self, self->owner, err, &self->grads);
    if (status == XRAY_OK)
        status = xm_adamw_create(self->layout, self->device, self->device_self,
                                 &adamw, self->owner, err, &self->adamw);
    if (status == XRAY_OK)
        status = make_grad_table(self, err);
    if (status == XRAY_OK)
        status = make_token_arrays(self, err);
    return status;
}

static xray_status make(z3 *self, const xray_model *model,
                        const z3_config *config, xr_err *err)
{
    const xray_workload *load = &self->load;
    xm_pack_limits limits = z3_limits(&self->model, load);
    xray_status status = make_weights(self, model, err);
    if (status == XRAY_OK)
        status = xm_decoder_create(&self->model, &self->weights->table,
                                   load->row_tokens, self->owner, err,
                                   &self->decoder);
    if (status == XRAY_OK)
        status = xm_space_create(self->decoder, load->tokens, load->rows,
                                 load->row_tokens,
                                 z3_space_flags(config, self->trainable),
                                 self->owner, err, &self->space);
    if (status == XRAY_OK)
        status = xm_packer_create(&limits, self->device, self->device_self,
                                  self->owner, err, &self->packer);
    if (status == XRAY_OK && self->trainable)
        status = make_training(self, config, err);
    return status;
}

xray_status z3_create(const xray_setup *setup, const void *config,
                      const xray_workload *load, void **out_self)
{
    xr_err err = { "" };
    xm_config model;
    xray_status status =
        z3_check(config, setup->model, setup->world, load, &err, &model);
    if (status != XRAY_OK)
        return z3_done(setup->host, status, "create", &err);
    z3 *self = calloc(1, sizeof(*self));
    if (!self) {
        (void)xr_fail(&err, XRAY_E_NOMEM, "no memory for an instance");
        return z3_done(setup->host, XRAY_E_NOMEM, "create", &err);
    }
    self->host = setup->host;
    self->device = setup->device;
    self->device_self = setup->device_self;
    self->model = model;
    self->load = *load;
    self->trainable = setup->trainable != 0;
    self->value_head = (load->heads & XRAY_HEAD_VALUE) != 0;
    (void)snprintf(self->owner, sizeof(self->owner), "train.zero3/%s",
                   role_name(setup->role));
    status = make(self, setup->model, config, &err);
    if (status != XRAY_OK) {
        z3_destroy(self);
        return z3_done(setup->host, status, "create", &err);
    }
    *out_self = self;
    return XRAY_OK;
}

void z3_destroy(void *ptr)
{
    z3 *self = ptr;
    if (!self)
        return;
    free(self->token_memory);
    free(self->grad_tensors);
    xm_adamw_destroy(self->adamw);
    xm_grads_destroy(self->grads);
    xm_packer_destroy(self->packer);
    xm_space_destroy(self->space);
    xm_decoder_destroy(self->decoder);
    xm_weights_destroy(self->weights);
    xm_layout_destroy(self->layout);
    free(self);
}

/* ---- weights and gradients ---------------------------------------------- */

const xray_weights *z3_weights(void *ptr)
{
    return &((z3 *)ptr)->weights->table;
}

const xray_weights *z3_gradients(void *ptr)
{
    z3 *self = ptr;
    xr_err err = { "" };
    if (!self->trainable)
        return NULL;
    xray_status status = xm_grads_finish(self->grads, &err);
    if (status != XRAY_OK) {
        (void)z3_done(self->host, status, "gradients", &err);
        return NULL;
    }
    return &self->grad_table;
}

xray_status z3_import(void *ptr, const xray_weights *from)
{
    z3 *self = ptr;
    xr_err err = { "" };
    xray_status status = xm_weights_import(self->weights, from, &err);
    return z3_done(self->host, status, "import", &err);
}

/* ---- checkpoints -------------------------------------------------------- */

xray_status z3_save(void *ptr, const char *dir)
{
    z3 *self = ptr;
    xr_err err = { "" };
    xray_status status =
        xm_weights_save(self->weights, dir, XM_ST_SHARD_BYTES, &err);
    if (status == XRAY_OK && self->trainable)
        status = xm_optim_save(self->adamw, dir, self->weights->version, &err);
    return z3_done(self->host, status, "save", &err);
}

/* The optimizer's file is found whole before the weights are touched, and the
 * weights refuse a file before they take a value from it: so a checkpoint that
 * is refused leaves the instance as it was. */
static xray_status load_training(z3 *self, const char *dir, xr_err *err)
{
    xm_optim *optim = NULL;
    xray_status status = xm_optim_open(self->layout, dir, err, &optim);
    if (status != XRAY_OK)
        return status;
    status = xm_weights_load(self->weights, dir, err);
    if (status == XRAY_OK)
        status = xm_optim_restore(optim, self->adamw, err);
    if (status == XRAY_OK)
        status = xm_grads_zero(self->grads, err);
    if (status == XRAY_OK)
        self->weights->version = xm_optim_version(optim);
    xm_optim_close(optim);
    return status;
}

xray_status z3_load(void *ptr, const char *dir)
{
    z3 *self = ptr;
    xr_err err = { "" };
    xray_status status = self->trainable
                             ? load_training(self, dir, &err)
                             : xm_weights_load(self->weights, dir, &err);
    return z3_done(self->host, status, "load", &err);
}
