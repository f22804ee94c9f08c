/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the decoder of a part of a model, and joins it with the others.
 */
#include "tests/nn/joined.h"

static xray_status join_rows(void *ctx, uint32_t what, float *rows,
                             uint64_t tokens, uint64_t dim, xr_err *err)
{
    const joined *by = ctx;
    (void)err;
    return xm_join_rows(&by->slices, what, rows, tokens, dim);
}

static xray_status join_parts(void *ctx, const xm_parts *call, xr_err *err)
{
    const joined *by = ctx;
    (void)err;
    return xm_join_parts(&by->slices, call);
}

static xray_status join_context(void *ctx, const xm_parts *call, xr_err *err)
{
    const joined *by = ctx;
    (void)err;
    return xm_join_parts(&by->context, call);
}

void joined_make(joined *by, const fixture *model, uint64_t positions,
                 fixture *f)
{
    const xm_watch watch = { .ctx = by,
                             .join = join_rows,
                             .parts = join_parts,
                             .context = join_context };
    int value = xm_layout_find(model->layout, XM_VALUE_HEAD) != NULL;
    xr_err err = { "" };
    fixture_ok(xm_layout_create(&f->config, value, &err, &f->layout), &err);
    fixture_ok(xm_weights_create(f->layout, f->device.ops, f->device.self,
                                 "test", XM_WEIGHTS_TRAINABLE, &err,
                                 &f->weights),
               &err);
    fixture_ok(xm_weights_import(f->weights, &model->weights->table, &err),
               &err);
    fixture_ok(xm_decoder_create(&f->config, &f->weights->table, positions,
                                 "test", &err, &f->decoder),
               &err);
    xm_decoder_watch(f->decoder, &watch);
}
