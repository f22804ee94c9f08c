/* SPDX-License-Identifier: Apache-2.0
 *
 * Exports the weights of a model that is cut in slices: each part of an export
 * is one tensor, which every rank gathers from all slices. Parts of a tensor
 * that are consecutive rows form it where they arrive; others are copied to
 * their places.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "core/base/box.h"
#include "core/base/str.h"
#include "plugins/backend-megatron/megatron.h"

static uint64_t count_all(const xm_param *param)
{
    return param->all_rows * (param->cols ? param->all_cols : 1);
}

/* The most elements that a slice has of parameter `i`. */
static uint64_t count_most(const mg_export *export, uint32_t i)
{
    uint64_t most = 0;
    for (uint32_t r = 0; r < export->ranks; r++)
        if (export->layouts[r]->params[i].count > most)
            most = export->layouts[r]->params[i].count;
    return most;
}

/* 1: every rank has all of parameter `i`. */
static int is_everywhere(const mg_export *export, uint32_t i)
{
    const xm_param *param = &export->layouts[0]->params[i];
    return param->count == count_all(param);
}

/* 1: the parts of all ranks, one after the other, are the tensor. Parts in
 * columns, or of several pieces, begin elsewhere. */
static int is_in_order(const mg_export *export, uint32_t i)
{
    uint64_t rows = export->layouts[0]->params[i].rows;
    for (uint32_t r = 0; r < export->ranks; r++)
        if (export->layouts[r]->params[i].pieces[0].first != r * rows)
            return 0;
    return 1;
}

static void count_memory(mg_export *export)
{
    const xm_layout *layout = export->layouts[0];
    for (uint32_t i = 0; i < layout->param_count; i++) {
        uint64_t all = count_all(&layout->params[i]);
        uint64_t most = count_most(export, i) * export->ranks;
        if (is_everywhere(export, i))
            continue;
        if (most > export->slice_count)
            export->slice_count = most;
        if (!is_in_order(export, i) && all > export->whole_count)
            export->whole_count = all;
    }
}

xray_status mg_export_plan(const xm_config *model, uint32_t value_head,
                           uint32_t ranks, xr_err *err, mg_export *out)
{
    xray_status status = XRAY_OK;
    *out = (mg_export){ .ranks = ranks };
    out->layouts = xr_calloc(ranks, sizeof(xm_layout *));
    if (!out->layouts)
        return xr_fail(err, XRAY_E_NOMEM, "no memory for %" PRIu32 " layouts",
                       ranks);
    for (uint32_t r = 0; r < ranks && status == XRAY_OK; r++) {
        xm_config slice;
        status = xm_config_slice(model, r, ranks, err, &slice);
        if (status == XRAY_OK)
            status = xm_layout_create(&slice, value_head != 0, err,
                                      &out->layouts[r]);
    }
    if (status == XRAY_OK)
        count_memory(out);
    return status;
}

void mg_export_free(mg_export *export)
{
    for (uint32_t r = 0; export->layouts && r < export->ranks; r++)
        xm_layout_destroy(export->layouts[r]);
    free(export->layouts);
    *export = (mg_export){ 0 };
}

/* ---- one tensor --------------------------------------------------------- */

static xray_tensor describe_whole(const xm_param *param, float *data)
{
    xray_tensor whole = { .name = param->name,
                          .dtype = XRAY_F32,
                          .dims = param->cols ? 2 : 1,
                          .shape = { param->all_rows, param->all_cols },
                          .data = data };
    xray_box_make_plain(&whole);
    return whole;
}

/* Gathers the parts of all ranks, each in so many elements. */
static xray_status gather_parts(megatron *self, const float *own,
                                uint64_t own_count, uint64_t count)
{
    const xm_trainer *base = &self->base;
    float *to = self->export.slices + base->tensor.rank * count;
    xray_status status =
        base->device->copy(base->device_self, NULL, to, own,
                           own_count * sizeof(float), XRAY_COPY_ON_DEVICE);
    return status == XRAY_OK
               ? base->group.comm->all_gather(base->tensor.group, NULL, to,
                                              self->export.slices, count,
                                              XRAY_F32)
               : status;
}

/* Copies the gathered parts to their places. */
static xray_status place_parts(megatron *self, uint32_t i, uint64_t count,
                               const xray_tensor *whole)
{
    const xr_box_device device = { self->base.device, self->base.device_self };
    xray_status status = XRAY_OK;
    for (uint32_t r = 0; r < self->export.ranks; r++) {
        xray_tensor boxes[XM_SHARE_BOXES];
        xray_tensor to;
        const xm_param *param = &self->export.layouts[r]->params[i];
        uint32_t used = xm_range_boxes(param, (xm_range){ 0, param->count },
                                       self->export.slices + r * count, boxes);
        for (uint32_t b = 0; b < used && status == XRAY_OK; b++) {
            (void)xray_box_cut(whole, &boxes[b], &to);
            status = xr_box_copy(device, &to, &boxes[b], XRAY_COPY_ON_DEVICE);
        }
    }
    return status;
}

static xray_status gather_tensor(megatron *self, uint32_t i)
{
    mg_export *export = &self->export;
    const xm_param *param = &self->base.layout->params[i];
    float *own = self->base.weights->buckets[param->bucket] + param->offset;
    uint64_t count = count_most(export, i);
    export->tensor = describe_whole(param, own);
    if (is_everywhere(export, i))
        return XRAY_OK;
    xray_status status = gather_parts(self, own, param->count, count);
    export->tensor.data = export->slices;
    if (status != XRAY_OK || is_in_order(export, i))
        return status;
    export->tensor.data = export->whole;
    return place_parts(self, i, count, &export->tensor);
}

/* ---- hooks -------------------------------------------------------------- */

static xray_status export_tensor(xm_trainer *base, uint32_t part, xr_err *err,
                                 const xray_weights **out)
{
    megatron *self = (megatron *)base;
    if (part >= base->layout->param_count)
        return XRAY_END;
    xray_status status = gather_tensor(self, part);
    if (status == XRAY_OK)
        status = base->device->sync(base->device_self, NULL);
    self->export.part = base->weights->table;
    self->export.part.tensors = &self->export.tensor;
    self->export.part.tensor_count = 1;
    *out = &self->export.part;
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status, "%s: %s could not be gathered",
                         base->owner, base->layout->params[part].name);
}

static xray_status open_export(xm_trainer *base, xr_err *err)
{
    mg_export *export = &((megatron *)base)->export;
    xray_status status = xm_trainer_alloc_floats(
        base, XRAY_TAG_WEIGHTS, export->slice_count, err, &export->slices);
    return status == XRAY_OK ? xm_trainer_alloc_floats(base, XRAY_TAG_WEIGHTS,
                                                       export->whole_count, err,
                                                       &export->whole)
                             : status;
}

static void close_export(xm_trainer *base)
{
    const mg_export *export = &((megatron *)base)->export;
    base->device->free(base->device_self, export->slices);
    base->device->free(base->device_self, export->whole);
}

static void visit_blocks(const xm_trainer *base, uint32_t tag,
                         xm_block_visit *visit)
{
    const mg_export *export = &((const megatron *)base)->export;
    if (tag != XRAY_TAG_WEIGHTS)
        return;
    xm_visit_block(visit, export->slices, export->slice_count, 0);
    xm_visit_block(visit, export->whole, export->whole_count, 0);
}

void mg_export_hook(megatron *self)
{
    if (self->export.ranks < 2)
        return;
    self->base.hooks.open_export = open_export;
    self->base.hooks.close_export = close_export;
    self->base.hooks.export_part = export_tensor;
    self->base.hooks.visit_blocks = visit_blocks;
}
