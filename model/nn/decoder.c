/* SPDX-License-Identifier: Apache-2.0
 *
 * Binds a decoder to a published table of weights, and makes its rotary tables.
 */
#include "model/nn/decoder.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"
#include "model/nn/internal.h"

xm_dims xm_dims_of(const xm_config *config)
{
    uint64_t q = (uint64_t)config->heads * config->head_dim;
    uint64_t kv = (uint64_t)config->kv_heads * config->head_dim;
    return (xm_dims){ .hidden = config->hidden,
                      .q = q,
                      .kv = kv,
                      .qkv = q + 2 * kv,
                      .ffn = config->ffn,
                      .up = (config->gated ? 2 : 1) * (uint64_t)config->ffn };
}

static xm_bound_param *find_bound_param(xm_decoder *d, const xm_param *param)
{
    if (param->slot >= XM_BLOCK_SLOTS)
        return &d->outer[param->slot - XM_BLOCK_SLOTS];
    return &d->layers[param->bucket - 1].p[param->slot];
}

/* Fused parameters must be one matrix, or one vector, to the device. */
static xray_status check_joined_tensor(const xm_param *param,
                                       const xray_tensor *tensor,
                                       const xray_tensor *before, xr_err *err)
{
    uint64_t rows = before->extent[0];
    const unsigned char *end = (const unsigned char *)before->data +
                               xray_box_count(before) * sizeof(float);
    if (param->matrix < 0 && tensor->data == end)
        return XRAY_OK;
    if (param->matrix >= 0 && tensor->weight == before->weight &&
        tensor->weight_row == before->weight_row + rows)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_UNSUPPORTED,
                   "tensor %s does not follow %s as one matrix or vector, so "
                   "these weights cannot be shared and must be copied",
                   param->name, before->name);
}

static xray_status bind_param(xm_decoder *d, const xray_weights *table,
                              const xm_param *param, const xray_tensor **before,
                              xr_err *err)
{
    const xray_tensor *tensor = NULL;
    xray_status status = xm_tensor_find(table, param, err, &tensor);
    if (status != XRAY_OK)
        return status;
    if (param->matrix >= 0 && !tensor->weight)
        return xr_fail(err, XRAY_E_UNSUPPORTED,
                       "tensor %s is published without a handle for products",
                       param->name);
    if (param->joined)
        status = check_joined_tensor(param, tensor, *before, err);
    else if (param->matrix >= 0 && tensor->weight_row != 0)
        status = xr_fail(err, XRAY_E_UNSUPPORTED,
                         "tensor %s starts at row %llu of its handle, expected "
                         "row 0",
                         param->name, (unsigned long long)tensor->weight_row);
    xm_bound_param *bound = find_bound_param(d, param);
    bound->data = tensor->data;
    bound->dtype = tensor->dtype;
    bound->weight = param->matrix >= 0 ? tensor->weight : NULL;
    bound->offset = param->offset;
    *before = tensor;
    return status;
}

static xray_status bind_all_params(xm_decoder *d, const xray_weights *table,
                                   xr_err *err)
{
    const xray_tensor *before = NULL;
    for (uint32_t i = 0; i < d->layout->param_count; i++) {
        xray_status status =
            bind_param(d, table, &d->layout->params[i], &before, err);
        if (status != XRAY_OK)
            return status;
    }
    if (d->config.tied)
        d->outer[XM_LM_HEAD - XM_BLOCK_SLOTS] = *xm_outer(d, XM_EMBED);
    return XRAY_OK;
}

static int has_value_head(const xray_weights *table, const xm_config *config)
{
    xm_param probe = { .name = XM_VALUE_HEAD,
                       .rows = 1,
                       .cols = config->hidden,
                       .count = config->hidden };
    const xray_tensor *tensor = NULL;
    xm_param_make_whole(&probe);
    return xm_tensor_find(table, &probe, NULL, &tensor) == XRAY_OK;
}

/* Models with learned positions have no rotary table. In Gemma 3 sliding layers
 * have one of their own. */
static uint32_t count_rope_tables(const xm_config *config)
{
    const xm_rope *a = &config->rope;
    const xm_rope *b = &config->rope_local;
    uint32_t slides = 0;
    if (config->learned_positions)
        return 0;
    for (uint32_t l = 0; l < config->layers; l++)
        slides |= (uint32_t)xm_config_slides(config, l);
    return slides && memcmp(a, b, sizeof *a) != 0 ? 2 : 1;
}

static uint64_t count_rope_floats(const xm_config *config, uint64_t positions)
{
    return positions * (config->rotary / 2) * 2;
}

uint64_t xm_decoder_bytes(const xm_config *config, uint64_t positions)
{
    return count_rope_tables(config) * count_rope_floats(config, positions) *
           sizeof(float);
}

static xray_status fill_rope_table(xm_decoder *d, const xm_rope *rope,
                                   float *table, const char *owner, xr_err *err)
{
    uint32_t half = d->config.rotary / 2;
    double *inv_freq = xr_calloc(half, sizeof *inv_freq);
    if (!inv_freq)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", owner);
    xm_rope_frequencies(&d->config, rope, inv_freq);
    xray_rope_table call = { XRAY_HEADER(xray_rope_table),
                             .inv_freq = inv_freq,
                             .table = table,
                             .positions = d->positions,
                             .half = half,
                             .scale = (float)rope->scale };
    xray_status status = d->device->rope_table(d->device_self, NULL, &call);
    if (status == XRAY_OK)
        status = d->device->sync(d->device_self, NULL);
    free(inv_freq);
    if (status != XRAY_OK)
        return xr_fail(err, status,
                       "%s: the device could not make the rotary table", owner);
    return XRAY_OK;
}

static xray_status make_rope_tables(xm_decoder *d, const char *owner,
                                    xr_err *err)
{
    uint32_t tables = count_rope_tables(&d->config);
    void *table = NULL;
    if (tables == 0)
        return XRAY_OK;
    xray_status status =
        d->device->alloc(d->device_self, owner, XRAY_TAG_WORKSPACE,
                         xm_decoder_bytes(&d->config, d->positions), &table);
    if (status != XRAY_OK)
        return xr_fail(err, status,
                       "%s: no device memory for the rotary table of %llu "
                       "positions",
                       owner, (unsigned long long)d->positions);
    d->rope = table;
    d->rope_local = d->rope;
    status = fill_rope_table(d, &d->config.rope, d->rope, owner, err);
    if (status != XRAY_OK || tables == 1)
        return status;
    d->rope_local = d->rope + count_rope_floats(&d->config, d->positions);
    return fill_rope_table(d, &d->config.rope_local, d->rope_local, owner, err);
}

static xray_status fill_decoder(xm_decoder *d, const xray_weights *table,
                                const char *owner, xr_err *err)
{
    xray_status status = xm_layout_create(
        &d->config, has_value_head(table, &d->config), err, &d->layout);
    if (status != XRAY_OK)
        return status;
    d->layers = xr_calloc(d->config.layers, sizeof *d->layers);
    if (!d->layers)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", owner);
    status = bind_all_params(d, table, err);
    return status == XRAY_OK ? make_rope_tables(d, owner, err) : status;
}

static int has_valid_rotary(const xm_config *config)
{
    return config->rotary > 0 && config->rotary % 2 == 0 &&
           config->rotary <= config->head_dim;
}

xray_status xm_decoder_create(const xm_config *config,
                              const xray_weights *weights, uint64_t positions,
                              const char *owner, xr_err *err, xm_decoder **out)
{
    int rotates = !config->learned_positions;
    if (positions == 0 || (rotates && !has_valid_rotary(config)))
        return xr_fail(err, XRAY_E_ARG,
                       "%s: a decoder needs at least one position, and an even "
                       "number of rotary dimensions up to the size of a head; "
                       "got %llu positions and %u rotary dimensions of %u",
                       owner, (unsigned long long)positions, config->rotary,
                       config->head_dim);
    xm_decoder *d = xr_calloc(1, sizeof *d);
    if (!d)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", owner);
    d->config = *config;
    d->device = weights->device;
    d->device_self = weights->device_self;
    d->positions = positions;
    /* The table of learned positions has no row past max_positions. */
    if (!rotates && positions > config->max_positions)
        d->positions = config->max_positions;
    xray_status status = fill_decoder(d, weights, owner, err);
    if (status != XRAY_OK) {
        xm_decoder_destroy(d);
        return status;
    }
    *out = d;
    return XRAY_OK;
}

void xm_decoder_destroy(xm_decoder *d)
{
    if (!d)
        return;
    d->device->free(d->device_self, d->rope);
    xm_layout_destroy(d->layout);
    free(d->layers);
    free(d);
}

const xm_config *xm_decoder_config(const xm_decoder *decoder)
{
    return &decoder->config;
}

const xray_weight *xm_decoder_lm_head(const xm_decoder *decoder)
{
    return xm_outer(decoder, XM_LM_HEAD)->weight;
}
