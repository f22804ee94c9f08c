/* SPDX-License-Identifier: Apache-2.0
 *
 * Gives out the tables of weights and gradients, exports and imports weights,
 * and saves and loads checkpoints.
 */
#include <string.h>

#include "model/hf/safetensors.h"
#include "model/train/checkpoint.h"
#include "plugins/backend-zero3/zero3.h"

const xray_weights *z3_weights(void *ptr)
{
    return &((z3 *)ptr)->weights->table;
}

static const xray_weights *find_gradients(void *ptr)
{
    z3 *self = ptr;
    xr_err err = { "" };
    if (!self->trainable)
        return NULL;
    xray_status status = z3_check_resident(self, Z3_BIT_GRADS, &err);
    if (status == XRAY_OK)
        status = z3_sum_full_grads(self, &err);
    if (status != XRAY_OK) {
        (void)z3_report(self->host, status, "gradients", &err);
        return NULL;
    }
    return &self->grad_table;
}

static xray_status import_weights(void *ptr, const xray_weights *from)
{
    z3 *self = ptr;
    xr_err err = { "" };
    xray_status status = z3_check_resident(self, Z3_BIT_WEIGHTS, &err);
    if (status == XRAY_OK)
        status = self->sharding.gathers
                     ? xm_weights_import_share(self->weights, from, &err)
                     : xm_weights_import(self->weights, from, &err);
    z3_gather_forget(&self->gather);
    return z3_report(self->host, status, "import", &err);
}

const void *z3_extension(void *ptr, const char *id)
{
    static const xray_train_debug debug = {
        .header = XRAY_HEADER(xray_train_debug),
        .gradients = find_gradients,
        .import = import_weights,
    };
    (void)ptr;
    return strcmp(id, XRAY_EXT_TRAIN_DEBUG) == 0 ? &debug : NULL;
}

/* ---- exports: all weights, one part at a time ---------------------------- */

static xray_status fail_export(const z3 *self, const char *what, xr_err *err)
{
    return xr_fail(err, XRAY_E_STATE, "%s: %s", self->owner, what);
}

xray_status z3_export_begin(void *ptr)
{
    z3 *self = ptr;
    xr_err err = { "" };
    xray_status status = z3_check_resident(self, Z3_BIT_WEIGHTS, &err);
    if (status == XRAY_OK && self->exporting)
        status = fail_export(self, "an export has begun already", &err);
    if (status == XRAY_OK) {
        self->exporting = 1;
        self->export_at = 0;
    }
    return z3_report(self->host, status, "export_begin", &err);
}

/* Fills the export with the tensors of a bucket, which are consecutive in the
 * table. */
static void fill_export_part(z3 *self, uint32_t bucket)
{
    const xm_layout *layout = self->layout;
    uint32_t first = 0;
    uint32_t end = 0;
    while (first < layout->param_count &&
           layout->params[first].bucket != bucket)
        first++;
    for (end = first; end < layout->param_count; end++)
        if (layout->params[end].bucket != bucket)
            break;
    self->export_part = self->gather.view;
    self->export_part.tensors = self->gather.tensors + first;
    self->export_part.tensor_count = end - first;
}

static xray_status export_next_part(z3 *self, xr_err *err,
                                    const xray_weights **out)
{
    if (!self->exporting)
        return fail_export(self, "no export has begun", err);
    uint32_t parts = self->sharding.gathers ? self->layout->bucket_count : 1;
    if (self->export_at == parts)
        return XRAY_END;
    uint32_t part = self->export_at++;
    *out = &self->weights->table;
    if (!self->sharding.gathers)
        return XRAY_OK;
    xray_status status = z3_gather_need(self, part, 0, err);
    if (status == XRAY_OK)
        status = self->device->sync(self->device_self, NULL);
    fill_export_part(self, part);
    *out = &self->export_part;
    return status;
}

xray_status z3_export_next(void *ptr, const xray_weights **out_part)
{
    z3 *self = ptr;
    xr_err err = { "" };
    xray_status status = export_next_part(self, &err, out_part);
    return z3_report(self->host, status, "export_next", &err);
}

void z3_export_end(void *ptr)
{
    ((z3 *)ptr)->exporting = 0;
}

/* ---- checkpoints -------------------------------------------------------- */

static xray_status save_checkpoint(z3 *self, const char *dir, xr_err *err)
{
    xm_agreement agreement = { .ctx = &self->group,
                               .agree = z3_group_agree,
                               .rank = self->group.rank };
    /* On one rank the weights may be a single share in host memory, which is
     * then all of them. */
    int several = self->group.size > 1 || self->sharding.gathers;
    xray_status status =
        several ? xm_weights_save_share(self->weights, dir, XM_ST_SHARD_BYTES,
                                        &agreement, err)
                : xm_weights_save(self->weights, dir, XM_ST_SHARD_BYTES, err);
    if (status != XRAY_OK || !self->trainable)
        return status;
    uint64_t version = self->weights->version;
    return several
               ? xm_optim_save_share(self->adamw, dir, version, &agreement, err)
               : xm_optim_save(self->adamw, dir, version, err);
}

xray_status z3_save(void *ptr, const char *dir)
{
    z3 *self = ptr;
    xr_err err = { "" };
    xray_status status =
        z3_check_resident(self, Z3_BIT_WEIGHTS | Z3_BIT_MOMENTS, &err);
    if (status == XRAY_OK)
        status = save_checkpoint(self, dir, &err);
    return z3_report(self->host, status, "save", &err);
}

/* The optimizer's file is checked completely before the weights are touched,
 * and the weights check a file before they take a value from it: a checkpoint
 * that is refused leaves the instance as it was. */
static xray_status load_trained_state(z3 *self, const char *dir, xr_err *err)
{
    xm_optim *optim = NULL;
    xray_status status = xm_optim_open(self->layout, dir, err, &optim);
    status = z3_group_agree(&self->group, status, err);
    if (status == XRAY_OK)
        status = xm_weights_load(self->weights, dir, err);
    if (status == XRAY_OK)
        status = xm_optim_restore(optim, self->adamw, err);
    if (status == XRAY_OK)
        status = z3_zero_grads(self, err);
    if (status == XRAY_OK)
        self->weights->version = xm_optim_version(optim);
    xm_optim_close(optim);
    return status;
}

xray_status z3_load(void *ptr, const char *dir)
{
    z3 *self = ptr;
    xr_err err = { "" };
    xray_status status = z3_check_resident(
        self, Z3_BIT_WEIGHTS | Z3_BIT_MOMENTS | Z3_BIT_GRADS, &err);
    if (status != XRAY_OK)
        return z3_report(self->host, status, "load", &err);
    status = self->trainable ? load_trained_state(self, dir, &err)
                             : xm_weights_load(self->weights, dir, &err);
    z3_gather_forget(&self->gather);
    status = z3_group_agree(&self->group, status, &err);
    return z3_report(self->host, status, "load", &err);
}
