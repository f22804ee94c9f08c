/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates and destroys an instance of zero3.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/str.h"
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

xray_status z3_alloc_floats(const z3 *self, uint32_t tag, uint64_t count,
                            xr_err *err, float **out)
{
    void *data = NULL;
    if (count == 0)
        return XRAY_OK;
    xray_status status = self->device->alloc(self->device_self, self->owner,
                                             tag, count * sizeof(float), &data);
    *out = data;
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status,
                         "%s: no device memory for %" PRIu64 " floats of %s",
                         self->owner, count,
                         tag == XRAY_TAG_GRADS ? "gradients" : "weights");
}

/* ---- create ------------------------------------------------------------- */

static xray_status init_or_load_weights(z3 *self, const xray_model *model,
                                        xr_err *err)
{
    self->weights->calls = self->calls;
    xray_status status =
        model->random_init
            ? xm_weights_random(self->weights, &self->model, model->seed, err)
            : xm_weights_load(self->weights, model->path, err);
    return z3_group_agree(&self->group, status, err);
}

static xray_status create_weights(z3 *self, const z3_config *config,
                                  xr_err *err)
{
    if (!self->sharding.gathers)
        return xm_weights_create(self->layout, self->device, self->device_self,
                                 self->owner, self->trainable ? 1 : 0, err,
                                 &self->weights);
    xray_status status = z3_gather_open(self, config, err);
    if (status == XRAY_OK)
        status = xm_weights_create_share(self->layout, self->device,
                                         self->device_self, self->gather.shares,
                                         err, &self->weights);
    return status;
}

/* The range of a bucket's elements whose summed gradients are on this rank;
 * *out_data is the first of them. */
static xm_range local_grads(const z3 *self, uint32_t bucket, float **out_data)
{
    xm_range share = xm_bucket_share(self->layout, bucket);
    *out_data = NULL;
    if (bucket < self->layout->frozen)
        return (xm_range){ 0, 0 };
    if (self->sharding.scatters) {
        *out_data = self->reduce.shares[bucket];
        return share;
    }
    *out_data = self->grads->buckets[bucket];
    if (self->sharding.all_moments)
        return (xm_range){ 0, self->layout->bucket_sizes[bucket] };
    *out_data += share.first;
    return share;
}

/* Fills the table of gradients: names and shapes of the weights over other
 * memory. */
static xray_status fill_grad_table(z3 *self, xr_err *err)
{
    uint32_t count = self->layout->param_count;
    self->grad_tensors =
        xr_calloc((size_t)count * XM_SHARE_BOXES, sizeof(*self->grad_tensors));
    if (!self->grad_tensors)
        return xr_fail(err, XRAY_E_NOMEM, "no memory for %" PRIu32 " tensors",
                       count);
    uint32_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        const xm_param *param = &self->layout->params[i];
        float *data = NULL;
        xm_range here = local_grads(self, param->bucket, &data);
        xm_range own = xm_param_in(param, here);
        if (!data)
            continue;
        if (own.count)
            data += param->offset + own.first - here.first;
        used += xm_range_boxes(param, own, data, &self->grad_tensors[used]);
    }
    self->grad_table = self->weights->table;
    self->grad_table.tensors = self->grad_tensors;
    self->grad_table.tensor_count = used;
    self->grad_table.tensor_stride = sizeof(xray_tensor);
    return XRAY_OK;
}

/* Sets the pointers at which the update finds weights and gradients of the
 * elements with moments. */
static xray_status set_update_pointers(z3 *self, xr_err *err)
{
    const xm_layout *layout = self->layout;
    for (int k = 0; k < 2; k++) {
        self->update_data[k] = xr_calloc(layout->bucket_count, sizeof(float *));
        if (!self->update_data[k])
            return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", self->owner);
    }
    self->norm_data = xr_calloc(layout->bucket_count, sizeof(float *));
    if (!self->norm_data)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", self->owner);
    for (uint32_t b = 0; b < layout->bucket_count; b++) {
        xm_range range = local_grads(self, b, &self->update_data[1][b]);
        self->update_data[0][b] = self->weights->buckets[b];
        if (!self->sharding.gathers)
            self->update_data[0][b] += range.first;
    }
    return XRAY_OK;
}

static xray_status alloc_token_arrays(z3 *self, xr_err *err)
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

static xray_status create_moments(z3 *self, const z3_config *config,
                                  xr_err *err)
{
    xm_adamw_options adamw = { .beta1 = config->beta1,
                               .beta2 = config->beta2,
                               .eps = config->eps,
                               .weight_decay = config->weight_decay,
                               .all_elements = self->sharding.all_moments };
    xray_status status = XRAY_OK;
    if (config->offload_optimizer)
        status = z3_host_memory_map_file(
            config->offload_dir,
            xm_adamw_state_bytes(self->layout, adamw.all_elements), err,
            &self->moments);
    adamw.memory = self->moments.data;
    if (status == XRAY_OK)
        status = xm_adamw_create(self->layout, self->device, self->device_self,
                                 &adamw, self->owner, err, &self->adamw);
    if (status == XRAY_OK)
        self->adamw->calls = self->calls;
    return status;
}

static xray_status create_training(z3 *self, const z3_config *config,
                                   xr_err *err)
{
    xray_status status = self->sharding.scatters
                             ? z3_reduce_open(self, err)
                             : xm_grads_create(&self->model, self->layout,
                                               self->device, self->device_self,
                                               self->owner, err, &self->grads);
    if (status == XRAY_OK)
        status = create_moments(self, config, err);
    if (status == XRAY_OK)
        status = fill_grad_table(self, err);
    if (status == XRAY_OK)
        status = set_update_pointers(self, err);
    if (status == XRAY_OK)
        status = alloc_token_arrays(self, err);
    return status;
}

static xray_status create_decoder(z3 *self, const z3_config *config,
                                  xr_err *err)
{
    const xray_workload *load = &self->load;
    xm_pack_limits limits = z3_pack_limits(&self->model, load);
    xm_watch watch = { .ctx = self, .calls = self->calls };
    xray_status status = xm_decoder_create(
        &self->model,
        self->sharding.gathers ? &self->gather.view : &self->weights->table,
        load->row_tokens, self->owner, err, &self->decoder);
    if (status != XRAY_OK)
        return status;
    watch.need = self->sharding.gathers ? z3_gather_need : NULL;
    watch.begin = self->sharding.scatters ? z3_reduce_begin : NULL;
    watch.done = self->sharding.scatters ? z3_reduce_done : NULL;
    xm_decoder_watch(self->decoder, &watch);
    status = xm_space_create(self->decoder, load->tokens,
                             xm_packed_rows(load->rows), load->row_tokens,
                             z3_space_flags(config, &self->model, load),
                             self->owner, err, &self->space);
    if (status == XRAY_OK)
        status = xm_packer_create(&limits, self->device, self->device_self,
                                  self->owner, err, &self->packer);
    return status;
}

static xray_status check_offload(const z3 *self, const z3_config *config,
                                 xr_err *err)
{
    xray_device_info info = { .header = XRAY_HEADER(xray_device_info) };
    if (!config->offload_optimizer && !config->offload_param)
        return XRAY_OK;
    if (self->device->info(self->device_self, &info) == XRAY_OK &&
        info.host_memory)
        return XRAY_OK;
    return xr_fail(
        err, XRAY_E_CONFIG,
        "[train.zero3] offloading to host memory needs a device that "
        "computes in host memory, as cpu does");
}

static xray_status create_parts(z3 *self, const xray_setup *setup,
                                const z3_config *config, xr_err *err)
{
    uint32_t from = self->trainable ? setup->trainable_from_layer : 0;
    xray_status status = z3_group_open(setup, self->owner, err, &self->group);
    if (status != XRAY_OK)
        return status;
    status = check_offload(self, config, err);
    if (status == XRAY_OK)
        status = z3_create_layout(&self->model, self->value_head, setup->world,
                                  from, err, &self->layout);
    if (status == XRAY_OK)
        status = create_weights(self, config, err);
    if (status == XRAY_OK && !(self->load.outputs & XRAY_OUTPUT_LOGP))
        self->weights->flags |= XM_WEIGHTS_NO_LOGP;
    if (status == XRAY_OK)
        status = create_decoder(self, config, err);
    if (status == XRAY_OK && self->trainable)
        status = create_training(self, config, err);
    /* Either all ranks succeed or none does. */
    status = z3_group_agree(&self->group, status, err);
    return status == XRAY_OK ? init_or_load_weights(self, setup->model, err)
                             : status;
}

/* Copies the option, which belongs to the caller; NULL stands for the temporary
 * folder. */
static char *copy_offload_dir(const z3_config *config)
{
    return config->offload_dir && *config->offload_dir
               ? xr_strdup(config->offload_dir)
               : NULL;
}

xray_status z3_create(const xray_setup *setup, const void *config,
                      const xray_workload *load, void **out_self)
{
    xr_err err = { "" };
    xm_config model;
    xray_status status =
        z3_check_setup(config, setup->model, setup->world, load, &err, &model);
    if (status != XRAY_OK)
        return z3_report(setup->host, status, "create", &err);
    z3 *self = calloc(1, sizeof(*self));
    if (!self) {
        (void)xr_fail(&err, XRAY_E_NOMEM, "no memory for an instance");
        return z3_report(setup->host, XRAY_E_NOMEM, "create", &err);
    }
    self->host = setup->host;
    self->calls = xr_calls_of(setup->host);
    self->device = setup->device;
    self->device_self = setup->device_self;
    self->model = model;
    self->load = *load;
    self->trainable = setup->trainable != 0;
    self->value_head = (load->outputs & XRAY_OUTPUT_VALUE) != 0;
    self->sharding =
        z3_sharding_of(config, setup->world ? setup->world->size : 1);
    self->offload_dir = copy_offload_dir(config);
    (void)snprintf(self->owner, sizeof(self->owner), "train.zero3/%s",
                   role_name(setup->role));
    status = create_parts(self, setup, config, &err);
    if (status != XRAY_OK) {
        z3_destroy(self);
        return z3_report(setup->host, status, "create", &err);
    }
    *out_self = self;
    return XRAY_OK;
}

void z3_destroy(void *ptr)
{
    z3 *self = ptr;
    if (!self)
        return;
    z3_offload_close(self);
    free(self->token_memory);
    free(self->grad_tensors);
    free(self->update_data[0]);
    free(self->update_data[1]);
    free(self->norm_data);
    xm_adamw_destroy(self->adamw);
    z3_host_memory_unmap(&self->moments);
    if (self->sharding.scatters)
        z3_reduce_close(self);
    else
        xm_grads_destroy(self->grads);
    xm_packer_destroy(self->packer);
    xm_space_destroy(self->space);
    xm_decoder_destroy(self->decoder);
    if (self->sharding.gathers) {
        xm_weights_destroy_share(self->weights);
        z3_gather_close(self);
    } else {
        xm_weights_destroy(self->weights);
    }
    xm_layout_destroy(self->layout);
    if (self->group.size)
        z3_group_close(&self->group);
    free(self);
}
