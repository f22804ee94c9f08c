/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocates and frees the weights, the arrays of a step, and the workspace of
 * keys and values.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/str.h"
#include "model/serve/engine_internal.h"

/* ---- weights ------------------------------------------------------------ */

static xray_status fill_own_weights(xm_engine *self, const xray_setup *setup,
                                    xr_err *err)
{
    const xray_model *model = setup->model;
    self->own->calls = self->calls;
    if (self->shared) {
        self->version = self->shared->version(self->shared->owner);
        return xm_weights_import(self->own, self->shared, err);
    }
    if (model->random_init)
        return xm_weights_random(self->own, &self->model, model->seed, err);
    if (!model->path)
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: the model has no folder to read weights from",
                       self->name);
    return xm_weights_load(self->own, model->path, err);
}

static xray_status create_own_weights(xm_engine *self, const xray_setup *setup,
                                      int64_t weights, xr_err *err)
{
    int flags = xm_engine_copy_flags(weights, setup->model);
    self->bf16 = flags != 0;
    xray_status status = xm_layout_create(&self->model, 0, err, &self->layout);
    if (status != XRAY_OK)
        return status;
    self->arrived =
        xr_calloc(self->layout->param_count, sizeof(*self->arrived));
    if (!self->arrived)
        return xr_fail(err, XRAY_E_NOMEM, "%s: no host memory", self->name);
    status = xm_weights_create(self->layout, self->device, self->device_self,
                               self->owner, flags, err, &self->own);
    if (status == XRAY_OK)
        status = fill_own_weights(self, setup, err);
    if (status == XRAY_OK)
        status = xm_weights_changed(self->own, self->version, err);
    return status;
}

static void log_unshared_weights(const xm_engine *self, const xr_err *why)
{
    char line[sizeof(why->text) + 80];
    (void)snprintf(line, sizeof(line),
                   "the trainer's weights cannot be shared (%s); a copy is "
                   "kept",
                   why->text);
    self->host->log(self->host, XRAY_LOG_INFO, line);
}

xray_status xm_engine_create_weights(xm_engine *self, const xray_setup *setup,
                                     int64_t weights, xr_err *err)
{
    uint64_t positions = self->bounds.row_bound;
    self->shared = setup->weights;
    if (!xm_engine_keeps_copy(weights,
                              !self->shared || self->bounds.ranks > 1)) {
        xr_err why = { "" };
        xray_status shared =
            xm_decoder_create(&self->model, self->shared, positions,
                              self->owner, &why, &self->decoder);
        if (shared == XRAY_OK)
            return XRAY_OK;
        if (shared == XRAY_E_NOMEM)
            return xr_fail(err, shared, "%s", why.text);
        if (xr_host_logs(self->host, XRAY_LOG_INFO))
            log_unshared_weights(self, &why);
    }
    xray_status status = create_own_weights(self, setup, weights, err);
    if (status != XRAY_OK)
        return status;
    return xm_decoder_create(&self->model, &self->own->table, positions,
                             self->owner, err, &self->decoder);
}

/* ---- arrays ------------------------------------------------------------- */

static xray_status alloc_device(xm_engine *self, uint32_t tag, uint64_t bytes,
                                const char *what, xr_err *err, void **out)
{
    xray_status status =
        self->device->alloc(self->device_self, self->owner, tag, bytes, out);
    if (status == XRAY_OK)
        return status;
    return xr_fail(err, status,
                   "%s: no device memory for %" PRIu64 " bytes of %s",
                   self->name, bytes, what);
}

/* Makes what steps ahead need and never change. */
static xray_status prepare_ahead(xm_engine *self, xr_err *err)
{
    uint32_t slots = self->bounds.slots;
    for (uint32_t i = 0; i < slots; i++)
        self->host_arrays.limit[i] = (int32_t)self->bounds.row_bound;
    xray_status status =
        xm_engine_upload(self, self->device_arrays.limit,
                         self->host_arrays.limit, slots * sizeof(int32_t));
    for (int i = 0; i < 2 && status == XRAY_OK; i++)
        status = self->device->event_create(self->device_self, &self->done[i]);
    if (status == XRAY_OK)
        status = self->device->event_create(self->device_self, &self->uploaded);
    return status == XRAY_OK
               ? status
               : xr_fail(err, status, "%s: the device makes no events",
                         self->name);
}

xray_status xm_engine_alloc_arrays(xm_engine *self, xr_err *err)
{
    xray_device_info info = { .header = XRAY_HEADER(xray_device_info) };
    xray_status status = self->device->info(self->device_self, &info);
    if (status != XRAY_OK)
        return xr_fail(err, status,
                       "%s: the device gives no information about itself",
                       self->name);
    self->host_memory = info.host_memory;
    uint64_t hidden_bytes = (uint64_t)self->bounds.draws * self->model.hidden *
                            xm_config_act_bytes(&self->model);
    status = alloc_device(self, XRAY_TAG_WORKSPACE, hidden_bytes,
                          "hidden states", err, &self->gathered);
    if (status != XRAY_OK)
        return status;
    void *logits = NULL;
    uint64_t count = self->bounds.logit_draws * self->bounds.logits;
    status = alloc_device(self, XRAY_TAG_WORKSPACE,
                          xm_engine_count_logits(&self->bounds) * sizeof(float),
                          "logits", err, &logits);
    if (status != XRAY_OK)
        return status;
    self->logits = logits;
    self->parts = self->bounds.ranks > 1 ? self->logits + count : NULL;
    self->changed = self->logits + count * (self->bounds.ranks > 1 ? 2 : 1);
    size_t bytes = xm_engine_lay_out_arrays(&self->bounds, NULL, NULL);
    status = alloc_device(self, XRAY_TAG_WORKSPACE, bytes, "step arrays", err,
                          &self->device_block);
    if (status != XRAY_OK)
        return status;
    (void)xm_engine_lay_out_arrays(&self->bounds, self->device_block,
                                   &self->device_arrays);
    self->host_arrays = self->device_arrays;
    if (self->host_memory)
        return prepare_ahead(self, err);
    status = self->device->host_alloc(self->device_self, self->owner, bytes,
                                      &self->host_block);
    if (status != XRAY_OK)
        return xr_fail(err, status,
                       "%s: no host memory for %zu bytes of step arrays",
                       self->name, bytes);
    (void)xm_engine_lay_out_arrays(&self->bounds, self->host_block,
                                   &self->host_arrays);
    return prepare_ahead(self, err);
}

/* ---- keys and values ---------------------------------------------------- */

xray_status xm_engine_alloc_kv(xm_engine *self, xr_err *err)
{
    uint32_t layers = self->model.layers;
    if (!self->kv)
        self->kv = xr_calloc(layers, sizeof(*self->kv));
    if (!self->kv)
        return xr_fail(err, XRAY_E_NOMEM, "%s: no host memory", self->name);
    xray_kv plane = xm_engine_describe_kv(
        &self->model, self->bounds.block_tokens, self->bounds.slot_blocks);
    if (self->bounds.blocks)
        plane.table = self->device_arrays.table;
    self->block_bytes = self->device->kv_block_bytes(self->device_self, &plane);
    uint64_t plane_bytes =
        self->block_bytes * xm_engine_count_blocks(&self->bounds);
    self->kv_bytes = plane_bytes * layers;
    xray_status status =
        alloc_device(self, XRAY_TAG_KV, self->kv_bytes,
                     "keys and values (max_num_seqs or kv_memory lower it)",
                     err, &self->kv_memory);
    if (status != XRAY_OK)
        return status;
    for (uint32_t i = 0; i < layers; i++) {
        self->kv[i] = plane;
        self->kv[i].blocks = (unsigned char *)self->kv_memory + i * plane_bytes;
    }
    return XRAY_OK;
}

void xm_engine_free_kv(xm_engine *self)
{
    xm_engine_forget_graphs(self);
    self->device->free(self->device_self, self->kv_memory);
    self->kv_memory = NULL;
}

xray_status xm_engine_copy_slot(xm_engine *self, const xm_slot_copy *copy)
{
    const xm_engine_bounds *b = &self->bounds;
    uint64_t blocks = (copy->positions + b->block_tokens - 1) / b->block_tokens;
    uint64_t slot_stride = self->block_bytes * (b->blocks ? 1 : b->slot_blocks);
    for (uint32_t i = 0; i < self->model.layers; i++) {
        unsigned char *plane = self->kv[i].blocks;
        xray_status status = self->device->copy(
            self->device_self, NULL, plane + copy->to * slot_stride,
            plane + copy->from * slot_stride, blocks * self->block_bytes,
            XRAY_COPY_ON_DEVICE);
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}

void xm_engine_destroy(void *ptr)
{
    xm_engine *self = ptr;
    if (!self)
        return;
    if (self->leased)
        self->shared->release(self->shared->owner);
    xm_sched_destroy(self->sched);
    xr_err lost = { "" };
    if (xm_trace_close(self->trace, &lost) != XRAY_OK)
        xm_engine_lose_trace(self, &lost);
    xm_space_destroy(self->space);
    xm_decoder_destroy(self->decoder);
    xm_weights_destroy(self->own);
    xm_layout_destroy(self->layout);
    free(self->arrived);
    xm_engine_free_kv(self);
    self->device->free(self->device_self, self->gathered);
    self->device->free(self->device_self, self->logits);
    self->device->free(self->device_self, self->device_block);
    self->device->host_free(self->device_self, self->host_block);
    for (int i = 0; i < 2; i++)
        self->device->event_destroy(self->device_self, self->done[i]);
    self->device->event_destroy(self->device_self, self->uploaded);
    free(self->kv);
    free(self);
}
