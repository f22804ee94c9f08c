/* SPDX-License-Identifier: Apache-2.0
 *
 * Says into how many segments the sums of a model are cut, and cuts a model
 * into slices of entire segments and into stages of entire layers.
 */
#include <string.h>

#include <xray/operators.h>

#include "model/hf/config.h"

#define VOCAB_UNIT 128u

static uint32_t count_ranks(const xm_config *config)
{
    return config->slice.ranks ? config->slice.ranks : 1;
}

static uint64_t pad_vocab(uint64_t vocab)
{
    return (vocab + VOCAB_UNIT - 1) / VOCAB_UNIT * VOCAB_UNIT;
}

uint32_t xm_segments(const xm_config *config)
{
    uint32_t sizes = config->heads | config->kv_heads | config->ffn;
    uint32_t most = XRAY_SEGMENTS / count_ranks(config);
    uint32_t segments = 1;
    while (segments < most && sizes % (2 * segments) == 0)
        segments *= 2;
    return segments;
}

uint64_t xm_vocab_segment(const xm_config *config)
{
    uint64_t segments = (uint64_t)xm_segments(config) * count_ranks(config);
    return segments > 1 ? pad_vocab(xm_config_vocab(config)) / segments : 0;
}

/* Tells whether ranks can have equal parts, or one KV head each. */
static int can_share(const xm_config *model, uint32_t ranks)
{
    return (model->heads | model->ffn) % ranks == 0 &&
           (model->kv_heads % ranks == 0 || ranks % model->kv_heads == 0);
}

xray_status xm_config_slice(const xm_config *model, uint32_t rank,
                            uint32_t ranks, xr_err *err, xm_config *out)
{
    uint32_t most = 1;
    *out = *model;
    if (ranks < 2)
        return XRAY_OK;
    while (most < XRAY_SEGMENTS && can_share(model, 2 * most))
        most *= 2;
    if (most % ranks)
        return xr_fail(err, XRAY_E_CONFIG,
                       "a model of %u query heads, %u KV heads and %u MLP "
                       "columns can be shared by at most %u tensor-parallel "
                       "ranks, in a power of two, not by %u",
                       model->heads, model->kv_heads, model->ffn, most, ranks);
    uint64_t rows = pad_vocab(model->vocab) / ranks;
    if (rows * (ranks - 1) >= model->vocab)
        return xr_fail(err, XRAY_E_CONFIG,
                       "a vocabulary of %u ids has no row for the last of %u "
                       "tensor-parallel ranks, each of which has %llu",
                       model->vocab, ranks, (unsigned long long)rows);
    uint64_t left = model->vocab - rows * rank;
    out->heads /= ranks;
    out->slice.kv_ranks = ranks > model->kv_heads ? ranks / model->kv_heads : 1;
    out->kv_heads /= ranks / out->slice.kv_ranks;
    out->ffn /= ranks;
    out->vocab = (uint32_t)(left < rows ? left : rows);
    out->slice.rank = rank;
    out->slice.ranks = ranks;
    out->slice.vocab = model->vocab;
    out->slice.vocab_first = (uint32_t)(rows * rank);
    return XRAY_OK;
}

xray_status xm_config_share(const xm_config *model, uint32_t rank,
                            uint32_t ranks, xr_err *err, xm_config *out)
{
    xr_err why = { "" };
    uint32_t next = ranks;
    if (xm_config_slice(model, rank, ranks, &why, out) == XRAY_OK)
        return XRAY_OK;
    while (next > 1 && xm_config_slice(model, 0, next, NULL, out) != XRAY_OK)
        next--;
    return xr_fail_key(err, XRAY_E_CONFIG, NULL, "tensor_model_parallel_size",
                       " = %u: %s; the next size that works is %u", ranks,
                       why.text, next);
}

xray_status xm_config_stage(const xm_config *model, uint32_t first,
                            uint32_t layers, xr_err *err, xm_config *out)
{
    const xm_stage_layers whole = { first, layers, 0, 1 };
    return xm_config_chunks(model, &whole, err, out);
}

xray_status xm_config_chunks(const xm_config *model, const xm_stage_layers *s,
                             xr_err *err, xm_config *out)
{
    uint64_t last = s->first + (s->chunks - 1) * (uint64_t)s->step;
    if (s->layers == 0 || s->chunks == 0 || last >= model->layers ||
        s->layers > model->layers - last ||
        (s->chunks > 1 && s->step < s->layers))
        return xr_fail(err, XRAY_E_CONFIG,
                       "a stage of %u layers from layer %u on is not part of a "
                       "model of %u layers",
                       s->layers, s->first, model->layers);
    *out = *model;
    out->layers = s->chunks * s->layers;
    out->slice.layers = model->layers;
    out->slice.first_layer = s->first;
    out->slice.chunk = s->chunks > 1 ? s->layers : 0;
    out->slice.step = s->chunks > 1 ? s->step : 0;
    memset(out->sliding, 0, sizeof out->sliding);
    for (uint32_t l = 0; l < out->layers; l++)
        out->sliding[l / 64] |=
            (uint64_t)xm_config_slides(model, xm_config_layer(out, l))
            << (l % 64);
    return XRAY_OK;
}
