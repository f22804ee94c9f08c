/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates and destroys the parts of an instance.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/hash.h"
#include "core/base/str.h"
#include "model/hf/param_slots.h"
#include "model/train/trainer_internal.h"

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

xray_status xm_trainer_alloc_floats(const xm_trainer *self, uint32_t tag,
                                    uint64_t count, xr_err *err, float **out)
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

static xray_status init_or_load_weights(xm_trainer *self,
                                        const xray_model *model, xr_err *err)
{
    self->weights->calls = self->calls;
    xray_status status =
        model->random_init
            ? xm_weights_random(self->weights, &self->model, model->seed, err)
            : xm_weights_load(self->weights, model->path, err);
    return xm_group_agree(&self->group, status, err);
}

static xray_status create_weights(xm_trainer *self, xr_err *err)
{
    if (self->hooks.open_weights)
        return self->hooks.open_weights(self, err);
    xray_status status = xm_weights_create(
        self->layout, self->device, self->device_self, self->owner,
        self->trainable ? XM_WEIGHTS_TRAINABLE : 0, err, &self->weights);
    if (status == XRAY_OK)
        self->table = &self->weights->table;
    return status;
}

/* 1: the tensor is published here, as it is by the first of the stages and the
 * ranks of a context that have it. */
static int is_published(const xm_trainer *self, const char *name)
{
    const xm_param *param = xm_layout_find(self->layout, name);
    return param && self->context.rank == 0 &&
           (param->slot != XM_EMBED || xm_config_is_first(&self->model));
}

/* Publishes the weights, and of tensors that others publish that nothing is
 * here. */
static xray_status publish_weights(xm_trainer *self, xr_err *err)
{
    const xm_layout *whole = self->whole;
    const xray_weights *table = &self->weights->table;
    uint32_t count = 0;
    self->published = *table;
    if (!self->layout->stage && self->context.rank == 0)
        return XRAY_OK;
    self->tensors = xr_calloc((size_t)table->tensor_count + whole->param_count,
                              sizeof(*self->tensors));
    if (!self->tensors)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", self->owner);
    for (uint32_t i = 0; i < table->tensor_count; i++)
        if (is_published(self, table->tensors[i].name))
            self->tensors[count++] = table->tensors[i];
    for (uint32_t i = 0; i < whole->param_count; i++) {
        const xm_param *param = &whole->params[i];
        if (!is_published(self, param->name))
            count += xm_range_boxes(param, (xm_range){ 0, 0 }, NULL,
                                    &self->tensors[count]);
    }
    self->published.tensors = self->tensors;
    self->published.tensor_count = count;
    return XRAY_OK;
}

/* ---- slices ------------------------------------------------------------- */

/* A pass without rows joins nothing. */
static xray_status join_slices(void *ctx, uint32_t what, float *rows,
                               uint64_t tokens, uint64_t dim, xr_err *err)
{
    const xm_trainer *self = ctx;
    (void)err;
    return tokens ? xm_join_rows(&self->join, what, rows, tokens, dim)
                  : XRAY_OK;
}

static xray_status join_parts(void *ctx, const xm_parts *call, xr_err *err)
{
    (void)err;
    return xm_join_parts(&((const xm_trainer *)ctx)->join, call);
}

static xm_join context_of(const xm_trainer *self)
{
    return (xm_join){ .comm = self->group.comm,
                      .group = self->context.group,
                      .ranks = self->context.size,
                      .rank = self->context.rank };
}

static xray_status join_context(void *ctx, const xm_parts *call, xr_err *err)
{
    const xm_join context = context_of(ctx);
    (void)err;
    return xm_join_parts(&context, call);
}

/* ---- training ----------------------------------------------------------- */

/* The range of a bucket's elements whose summed gradients are on this rank;
 * *out_data is the first of them. */
static xm_range local_grads(const xm_trainer *self, uint32_t bucket,
                            float **out_data)
{
    xm_range share = xm_bucket_share(self->layout, bucket);
    *out_data = NULL;
    if (bucket < self->layout->frozen)
        return (xm_range){ 0, 0 };
    if (self->grad_shares) {
        *out_data = self->grad_shares[bucket];
        return share;
    }
    *out_data = self->grads->buckets[bucket];
    if (self->all_moments)
        return (xm_range){ 0, self->layout->bucket_sizes[bucket] };
    if (share.count)
        *out_data += share.first;
    return share;
}

/* Fills the table of gradients: names and shapes of the weights over other
 * memory. */
static xray_status fill_grad_table(xm_trainer *self, xr_err *err)
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
static xray_status set_update_pointers(xm_trainer *self, xr_err *err)
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
        if (!self->hooks.open_weights && range.count)
            self->update_data[0][b] += range.first;
    }
    return XRAY_OK;
}

static xray_status alloc_token_arrays(xm_trainer *self, xr_err *err)
{
    uint64_t tokens = self->load.tokens;
    float *memory = xr_calloc(XM_TRAINER_TOKEN_ARRAYS * tokens, sizeof(float));
    if (!memory)
        return xr_fail(err, XRAY_E_NOMEM,
                       "no host memory for the loss of %" PRIu64 " tokens",
                       tokens);
    self->token_memory = memory;
    self->tokens = (xm_trainer_tokens){ .logp = memory,
                                        .entropy = memory + tokens,
                                        .value = memory + 2 * tokens,
                                        .dlogp = memory + 3 * tokens,
                                        .dentropy = memory + 4 * tokens,
                                        .dvalue = memory + 5 * tokens };
    return XRAY_OK;
}

/* Offloaded moments are in a mapped file on a device that computes in host
 * memory, elsewhere in page-locked memory. */
static xray_status
create_moments(xm_trainer *self, const xm_trainer_options *options, xr_err *err)
{
    xm_adamw_options adamw = { .beta1 = options->beta1,
                               .beta2 = options->beta2,
                               .eps = options->eps,
                               .weight_decay = options->weight_decay,
                               .all_elements = self->all_moments };
    xray_status status = XRAY_OK;
    if (options->offload_moments)
        adamw.streamed = !xm_computes_on_host(self->device, self->device_self);
    if (options->offload_moments && !adamw.streamed)
        status = xm_host_memory_map_file(
            &options->folder,
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

static xray_status create_training(xm_trainer *self,
                                   const xm_trainer_options *options,
                                   xr_err *err)
{
    xray_status status = self->hooks.open_grads
                             ? self->hooks.open_grads(self, err)
                             : xm_grads_create(&self->model, self->layout,
                                               self->device, self->device_self,
                                               self->owner, err, &self->grads);
    if (status == XRAY_OK && self->tensor.size > 1) {
        self->grads->join = join_slices;
        self->grads->join_ctx = self;
    }
    if (status == XRAY_OK)
        status = xm_folds_open(self, err);
    if (status == XRAY_OK)
        status = create_moments(self, options, err);
    if (status == XRAY_OK)
        status = fill_grad_table(self, err);
    if (status == XRAY_OK)
        status = set_update_pointers(self, err);
    if (status == XRAY_OK)
        status = alloc_token_arrays(self, err);
    return status;
}

static xray_status
create_flights(xm_trainer *self, const xm_trainer_options *options, xr_err *err)
{
    const xray_workload *load = &self->load;
    xm_pack_limits limits = xm_trainer_pack_limits(&self->model, load);
    uint32_t flags = xm_trainer_space_flags(options, &self->model, load);
    xray_status status = XRAY_OK;
    limits.context = context_of(self);
    self->chunks = self->model.layers / xm_config_chunk(&self->model);
    self->flight_count = xm_trainer_flights(options, &self->model, load);
    self->flights = xr_calloc(self->flight_count, sizeof(*self->flights));
    if (!self->flights)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", self->owner);
    for (uint32_t i = 0; i < self->flight_count && status == XRAY_OK; i++) {
        xm_flight *flight = &self->flights[i];
        status =
            i ? xm_space_create_beside(self->decoder, self->flights[0].space,
                                       self->owner, err, &flight->space)
              : xm_space_create(self->decoder, load->tokens,
                                xm_packed_rows(load->rows), load->row_tokens,
                                flags, self->owner, err, &flight->space);
        if (status == XRAY_OK)
            status = xm_packer_create(&limits, self->device, self->device_self,
                                      self->owner, err, &flight->packer);
    }
    return status;
}

static xray_status
create_decoder(xm_trainer *self, const xm_trainer_options *options, xr_err *err)
{
    const xray_workload *load = &self->load;
    xray_status status =
        xm_decoder_create(&self->model, self->table, load->row_tokens,
                          self->owner, err, &self->decoder);
    if (status != XRAY_OK)
        return status;
    xm_watch watch = self->hooks.watch;
    watch.ctx = self;
    watch.calls = self->calls;
    if (self->tensor.size > 1) {
        watch.join = join_slices;
        watch.parts = join_parts;
    }
    watch.context = join_context;
    if (self->overlap)
        watch.done = xm_trainer_sum_done_bucket;
    xm_decoder_watch(self->decoder, &watch);
    return create_flights(self, options, err);
}

/* Digests what decides which collectives an instance makes, and its bits. */
static uint64_t digest_setup(const xm_trainer *self, const xray_setup *setup,
                             const xm_trainer_options *options)
{
    const xray_model *model = setup->model;
    const xray_workload *load = &self->load;
    const double numbers[] = {
        options->beta1,
        options->beta2,
        options->eps,
        options->weight_decay,
        (double)options->recompute,
        options->sequence,
        self->all_moments,
        self->overlap,
        self->tensor.size,
        self->stages.size,
        self->chunks,
        self->kv.size,
        self->context.size,
        self->data.size,
        self->hooks.open_grads != NULL,
        self->hooks.open_weights != NULL,
        self->trainable,
        setup->trainable_from_layer,
        load->outputs,
        load->segments,
        (double)load->tokens,
        (double)load->rows,
        (double)load->row_tokens,
        model->dtype,
        model->random_init,
    };
    uint64_t json =
        xr_hash64(model->config_json, strlen(model->config_json), model->seed);
    return xr_hash64(numbers, sizeof(numbers), json);
}

static xray_status create_parts(xm_trainer *self, const xray_setup *setup,
                                const xm_trainer_options *options, xr_err *err)
{
    xm_config whole = xm_trainer_whole(&self->model);
    xray_status status = xm_group_open(setup, self->owner, err, &self->group);
    if (status != XRAY_OK)
        return status;
    self->join = (xm_join){ .comm = self->group.comm,
                            .group = self->tensor.group,
                            .ranks = self->tensor.size,
                            .rank = self->tensor.rank };
    status =
        xm_trainer_create_layout(&self->model, self->value_head, &self->data,
                                 self->from_layer, err, &self->layout);
    if (status == XRAY_OK)
        status = xm_trainer_create_layout(&whole, self->value_head, &self->data,
                                          self->from_layer, err, &self->whole);
    if (status == XRAY_OK)
        status = create_weights(self, err);
    if (status == XRAY_OK)
        status = publish_weights(self, err);
    if (status == XRAY_OK && !(self->load.outputs & XRAY_OUTPUT_LOGP))
        self->weights->flags |= XM_WEIGHTS_NO_LOGP;
    if (status == XRAY_OK)
        status = create_decoder(self, options, err);
    if (status == XRAY_OK && self->trainable)
        status = create_training(self, options, err);
    /* Either all ranks succeed or none does. */
    status = xm_group_agree_on(&self->group, status,
                               digest_setup(self, setup, options),
                               "options or another model", err);
    return status == XRAY_OK ? init_or_load_weights(self, setup->model, err)
                             : status;
}

/* Copies the option, which belongs to the caller; NULL stands for the temporary
 * folder. */
static char *copy_folder(const char *dir)
{
    return dir && *dir ? xr_strdup(dir) : NULL;
}

xray_status xm_trainer_open(xm_trainer *self, const xm_trainer_options *options,
                            const xray_setup *setup, const xray_workload *load,
                            xr_err *err)
{
    self->host = setup->host;
    self->calls = xr_calls_of(setup->host);
    self->device = setup->device;
    self->device_self = setup->device_self;
    self->load = *load;
    self->trainable = setup->trainable != 0;
    self->from_layer = self->trainable ? setup->trainable_from_layer : 0;
    if (self->stages.size == 0)
        self->stages.size = 1;
    self->value_head = (load->outputs & XRAY_OUTPUT_VALUE) != 0;
    self->all_moments = options->all_moments;
    /* A bucket of the last pass may still have segments to take up. */
    self->overlap = options->overlap && self->data.size > 1 && !load->segments;
    self->offload_dir = copy_folder(options->folder.dir);
    self->folder = (xm_host_folder){ .section = options->folder.section,
                                     .dir = self->offload_dir };
    (void)snprintf(self->owner, sizeof(self->owner), "%s/%s",
                   options->folder.section, role_name(setup->role));
    return create_parts(self, setup, options, err);
}

static void free_training(xm_trainer *self)
{
    free(self->token_memory);
    free(self->grad_tensors);
    free(self->update_data[0]);
    free(self->update_data[1]);
    free(self->norm_data);
    xm_adamw_destroy(self->adamw);
    xm_host_memory_unmap(&self->moments);
    xm_folds_close(self);
    if (self->hooks.open_grads)
        self->hooks.close_grads(self);
    else
        xm_grads_destroy(self->grads);
}

void xm_trainer_close(xm_trainer *self)
{
    xm_trainer_drop_copies(self);
    free(self->offload_dir);
    free_training(self);
    for (uint32_t i = 0; self->flights && i < self->flight_count; i++) {
        xm_packer_destroy(self->flights[i].packer);
        xm_space_destroy(self->flights[i].space);
    }
    free(self->flights);
    free(self->places);
    xm_flow_free(&self->flow);
    free(self->tensors);
    xm_decoder_destroy(self->decoder);
    if (self->hooks.open_weights)
        self->hooks.close_weights(self);
    else
        xm_weights_destroy(self->weights);
    xm_layout_destroy(self->layout);
    xm_layout_destroy(self->whole);
    if (self->group.size)
        xm_group_close(&self->group);
}
