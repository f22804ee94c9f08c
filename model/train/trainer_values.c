/* SPDX-License-Identifier: Apache-2.0
 *
 * Gives out the tables of weights and gradients, exports and imports weights,
 * and saves and loads checkpoints.
 */
#include <string.h>

#include "model/hf/safetensors.h"
#include "model/train/checkpoint.h"
#include "model/train/trainer_internal.h"

const xray_weights *xm_trainer_weights(void *ptr)
{
    return &((xm_trainer *)ptr)->published;
}

static const xray_weights *find_gradients(void *ptr)
{
    xm_trainer *self = ptr;
    xr_err err = { "" };
    if (!self->trainable)
        return NULL;
    xray_status status =
        xm_trainer_check_resident(self, XM_TRAINER_BIT_GRADS, &err);
    if (status == XRAY_OK)
        status = xm_trainer_sum_full_grads(self, &err);
    if (status != XRAY_OK) {
        (void)xm_trainer_report(self->host, status, "gradients", &err);
        return NULL;
    }
    return &self->grad_table;
}

static xray_status import_weights(void *ptr, const xray_weights *from)
{
    xm_trainer *self = ptr;
    xr_err err = { "" };
    xray_status status =
        xm_trainer_check_resident(self, XM_TRAINER_BIT_WEIGHTS, &err);
    if (status == XRAY_OK)
        status = self->hooks.open_weights
                     ? xm_weights_import_share(self->weights, from, &err)
                     : xm_weights_import(self->weights, from, &err);
    xm_trainer_forget(self);
    return xm_trainer_report(self->host, status, "import", &err);
}

const void *xm_trainer_extension(void *ptr, const char *id)
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

static xray_status fail_export(const xm_trainer *self, const char *what,
                               xr_err *err)
{
    return xr_fail(err, XRAY_E_STATE, "%s: %s", self->owner, what);
}

xray_status xm_trainer_export_begin(void *ptr)
{
    xm_trainer *self = ptr;
    xr_err err = { "" };
    xray_status status =
        xm_trainer_check_resident(self, XM_TRAINER_BIT_WEIGHTS, &err);
    if (status == XRAY_OK && self->exporting)
        status = fail_export(self, "an export has begun already", &err);
    if (status == XRAY_OK) {
        self->exporting = 1;
        self->export_at = 0;
    }
    return xm_trainer_report(self->host, status, "export_begin", &err);
}

static xray_status export_next_part(xm_trainer *self, xr_err *err,
                                    const xray_weights **out)
{
    if (!self->exporting)
        return fail_export(self, "no export has begun", err);
    uint32_t part = self->export_at++;
    if (self->hooks.export_part)
        return self->hooks.export_part(self, part, err, out);
    *out = &self->published;
    return part ? XRAY_END : XRAY_OK;
}

xray_status xm_trainer_export_next(void *ptr, const xray_weights **out_part)
{
    xm_trainer *self = ptr;
    xr_err err = { "" };
    xray_status status = export_next_part(self, &err, out_part);
    return xm_trainer_report(self->host, status, "export_next", &err);
}

void xm_trainer_export_end(void *ptr)
{
    ((xm_trainer *)ptr)->exporting = 0;
}

/* ---- checkpoints -------------------------------------------------------- */

static xray_status save_checkpoint(xm_trainer *self, const char *dir,
                                   xr_err *err)
{
    xm_agreement agreement = { .ctx = &self->group,
                               .agree = xm_group_agree,
                               .rank = self->group.rank };
    /* On one rank the weights may be a single share in host memory, which is
     * then all of them. */
    int several = self->group.size > 1 || self->hooks.open_weights;
    xray_status status =
        several ? xm_weights_save_share(self->weights, self->whole, dir,
                                        XM_ST_SHARD_BYTES, &agreement, err)
                : xm_weights_save(self->weights, dir, XM_ST_SHARD_BYTES, err);
    if (status != XRAY_OK || !self->trainable)
        return status;
    uint64_t version = self->weights->version;
    return several ? xm_optim_save_share(self->adamw, self->whole, dir, version,
                                         &agreement, err)
                   : xm_optim_save(self->adamw, dir, version, err);
}

xray_status xm_trainer_save(void *ptr, const char *dir)
{
    xm_trainer *self = ptr;
    xr_err err = { "" };
    xray_status status = xm_trainer_check_resident(
        self, XM_TRAINER_BIT_WEIGHTS | XM_TRAINER_BIT_MOMENTS, &err);
    if (status == XRAY_OK)
        status = save_checkpoint(self, dir, &err);
    return xm_trainer_report(self->host, status, "save", &err);
}

/* The optimizer's file is checked completely before the weights are touched,
 * and the weights check a file before they take a value from it: a checkpoint
 * that is refused leaves the instance as it was. */
static xray_status load_trained_state(xm_trainer *self, const char *dir,
                                      xr_err *err)
{
    xm_optim *optim = NULL;
    xray_status status = xm_optim_open(self->whole, dir, err, &optim);
    status = xm_group_agree(&self->group, status, err);
    if (status == XRAY_OK)
        status = xm_weights_load(self->weights, dir, err);
    if (status == XRAY_OK)
        status = xm_optim_restore(optim, self->adamw, err);
    if (status == XRAY_OK)
        status = xm_trainer_zero_grads(self, err);
    if (status == XRAY_OK)
        self->weights->version = xm_optim_version(optim);
    xm_optim_close(optim);
    return status;
}

xray_status xm_trainer_load(void *ptr, const char *dir)
{
    xm_trainer *self = ptr;
    xr_err err = { "" };
    xray_status status = xm_trainer_check_resident(
        self,
        XM_TRAINER_BIT_WEIGHTS | XM_TRAINER_BIT_MOMENTS | XM_TRAINER_BIT_GRADS,
        &err);
    if (status != XRAY_OK)
        return xm_trainer_report(self->host, status, "load", &err);
    status = self->trainable ? load_trained_state(self, dir, &err)
                             : xm_weights_load(self->weights, dir, &err);
    xm_trainer_forget(self);
    status = xm_group_agree(&self->group, status, &err);
    return xm_trainer_report(self->host, status, "load", &err);
}
