/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the sizes of an instance and plans its memory.
 */
#include <stdio.h>
#include <string.h>

#include <xray/plugin.h>

#include "model/serve/engine_internal.h"

#define LEAST_DRAWS 64u
/* Ranks that share a model compute logits for so many draws at once, at most.
 */
#define MOST_LOGITS ((uint64_t)1 << 24)
#define MOST_RANKS 8u

const xray_choice xm_engine_weight_choices[] = {
    { "auto", XM_ENGINE_WEIGHTS_AUTO,
      "shared with the trainer; without one, a copy as [model] dtype says" },
    { "float32", XM_ENGINE_WEIGHTS_FLOAT32, "a copy of the engine's own" },
    { "bfloat16", XM_ENGINE_WEIGHTS_BFLOAT16,
      "a copy whose matrices are rounded to bfloat16" },
    { NULL, 0, NULL },
};

static xray_status read_model(const char *name, const xray_model *model,
                              xr_err *err, xm_config *out)
{
    if (!model || !model->config_json)
        return xr_fail(err, XRAY_E_CONFIG, "%s: the model has no config.json",
                       name);
    if (model->dtype != XRAY_F32 && model->dtype != XRAY_BF16) {
        (void)xr_fail_key(err, XRAY_E_CONFIG, "model", "dtype",
                          ": this engine computes in float32 or bfloat16");
        return xr_fail_in(err, XRAY_E_CONFIG, "%s", name);
    }
    char where[1024];
    (void)snprintf(where, sizeof(where), "%s/config.json",
                   model->path ? model->path : "model");
    xray_status status = xm_config_parse(model->config_json, where, err, out);
    out->dtype = model->dtype == XRAY_BF16 ? XRAY_BF16 : 0;
    return status;
}

xray_status xm_engine_find_sizes(const xm_engine_kind *kind, const void *config,
                                 const xray_model *model,
                                 const xray_world *world,
                                 const xray_workload *load, xr_err *err,
                                 xm_engine_sizes *out)
{
    xm_config whole;
    memcpy(&out->options, config, sizeof(out->options));
    uint32_t ranks = (uint32_t)out->options.tensor_model_parallel_size;
    ranks = ranks ? ranks : 1;
    xray_status status = read_model(kind->name, model, err, &whole);
    if (status == XRAY_OK)
        status = xm_config_share(&whole, world ? world->rank % ranks : 0, ranks,
                                 err, &out->model);
    return status == XRAY_OK
               ? kind->find_bounds(config, &out->model, load, err, &out->bounds)
               : status;
}

int xm_engine_keeps_copy(int64_t weights, int alone)
{
    return alone || weights != XM_ENGINE_WEIGHTS_AUTO;
}

int xm_engine_copy_flags(int64_t weights, const xray_model *model)
{
    if (weights == XM_ENGINE_WEIGHTS_BFLOAT16 ||
        (weights == XM_ENGINE_WEIGHTS_AUTO && model->dtype == XRAY_BF16))
        return XM_WEIGHTS_BF16;
    return 0;
}

xray_kv xm_engine_describe_kv(const xm_config *model, uint32_t block_tokens,
                              uint32_t slot_blocks)
{
    return (xray_kv){
        .header = XRAY_HEADER(xray_kv),
        .table_stride = slot_blocks,
        .block_tokens = block_tokens,
        .kv_heads = model->kv_heads,
        .head_dim = model->head_dim,
        .dtype = model->dtype ? model->dtype : XRAY_F32,
    };
}

uint64_t xm_engine_slot_bytes(const xm_config *model, const xray_workload *load,
                              uint32_t block_tokens, uint32_t slot_blocks)
{
    const xray_kv kv = xm_engine_describe_kv(model, block_tokens, slot_blocks);
    uint64_t block = 2ull * block_tokens * model->kv_heads * model->head_dim *
                     xm_config_act_bytes(model);
    if (load->device)
        block = load->device->plan_kv_block(load->device_config, &kv);
    return block * slot_blocks * model->layers;
}

void xm_engine_find_bounds(const xm_config *model, uint64_t step_tokens,
                           xm_engine_bounds *bounds)
{
    xm_engine_bounds *b = bounds;
    const uint32_t vocab = xm_config_vocab(model);
    const xm_limits limits = { vocab, b->row_bound };
    const xm_slice *slice = &model->slice;
    uint64_t most = (uint64_t)b->slots * b->row_bound;
    /* Every running sequence gets its token in every step. */
    if (step_tokens < b->slots)
        step_tokens = b->slots;
    if (step_tokens > most)
        step_tokens = most;
    b->step_tokens = (uint32_t)step_tokens;
    uint64_t draws = b->slots * (1ull + b->speculate);
    draws = draws < step_tokens ? draws : step_tokens;
    b->draws = draws < LEAST_DRAWS ? LEAST_DRAWS : (uint32_t)draws;
    b->words = (vocab + 31) / 32;
    b->edits = xm_sched_edits(&limits);
    b->logits = (vocab + 15ull) / 16 * 16;
    b->ranks = slice->ranks ? slice->ranks : 1;
    b->logit_draws = XM_LOGIT_DRAWS;
    if (b->ranks < 2)
        return;
    /* Each rank has as many ids as the first one, the last one up to as many.
     */
    b->logits = (uint64_t)b->ranks *
                (slice->rank ? slice->vocab_first / slice->rank : model->vocab);
    if (b->logit_draws < MOST_LOGITS / b->logits)
        b->logit_draws = (uint32_t)(MOST_LOGITS / b->logits);
    if (b->logit_draws > b->draws)
        b->logit_draws = b->draws;
    b->draws = b->logit_draws;
}

/* ---- arrays of a step --------------------------------------------------- */

static void *reserve_array(void *base, size_t *end, size_t count, size_t size)
{
    size_t at = *end;
    *end = (at + count * size + 63) & ~(size_t)63;
    return base ? (unsigned char *)base + at : NULL;
}

size_t xm_engine_lay_out_arrays(const xm_engine_bounds *bounds, void *base,
                                xm_engine_arrays *out)
{
    size_t end = 0;
    size_t tokens = bounds->step_tokens;
    size_t draws = bounds->draws;
    xm_engine_arrays a;
    a.ids = reserve_array(base, &end, tokens, sizeof(int32_t));
    a.seq = reserve_array(base, &end, tokens, sizeof(int32_t));
    a.positions = reserve_array(base, &end, tokens, sizeof(int32_t));
    a.last = reserve_array(base, &end, tokens, sizeof(int32_t));
    a.index = reserve_array(base, &end, draws, sizeof(int32_t));
    a.draws = reserve_array(base, &end, draws, sizeof(xray_draw));
    for (size_t i = 0; i < 2; i++) {
        a.drawn[i].token = reserve_array(base, &end, draws, sizeof(int32_t));
        a.drawn[i].raw_logp = reserve_array(base, &end, draws, sizeof(float));
        a.drawn[i].logp = reserve_array(base, &end, draws, sizeof(float));
    }
    size_t table =
        bounds->blocks ? (size_t)bounds->slots * bounds->slot_blocks : 0;
    a.table = reserve_array(base, &end, table, sizeof(int32_t));
    a.stop = reserve_array(base, &end, bounds->slots, sizeof(int32_t));
    a.limit = reserve_array(base, &end, bounds->slots, sizeof(int32_t));
    a.rows = reserve_array(base, &end, 1, sizeof(int32_t));
    const size_t some = XM_LOGIT_DRAWS;
    const size_t picks = some * XM_MAX_PICKS;
    a.edit_start = reserve_array(base, &end, some + 1, sizeof(int32_t));
    a.allowed_set = reserve_array(base, &end, some, sizeof(int32_t));
    a.edits = reserve_array(base, &end, bounds->edits, sizeof(xray_logit_edit));
    a.allowed =
        reserve_array(base, &end, some * bounds->words, sizeof(uint32_t));
    a.pick_ids = reserve_array(base, &end, picks, sizeof(int32_t));
    a.pick_logp = reserve_array(base, &end, picks, sizeof(float));
    const size_t ranks = bounds->ranks > 1 ? bounds->ranks : 0;
    a.order =
        reserve_array(base, &end, bounds->logit_draws * ranks, sizeof(int32_t));
    a.digests = reserve_array(base, &end, ranks ? ranks + 1 : 0,
                              XM_DIGEST_FLOATS * sizeof(float));
    if (out)
        *out = a;
    return end;
}

/* ---- plan --------------------------------------------------------------- */

/* Names the ranks of an engine, and what sharing KV heads does to the bits. */
static void plan_ranks(const xm_config *model, xray_plan *out)
{
    static const xray_axis axes[] = {
        { XRAY_AXIS_TENSOR, 2, 0 },          { XRAY_AXIS_TENSOR, 3, 0 },
        { XRAY_AXIS_TENSOR, 4, 0 },          { XRAY_AXIS_TENSOR, 5, 0 },
        { XRAY_AXIS_TENSOR, 6, 0 },          { XRAY_AXIS_TENSOR, 7, 0 },
        { XRAY_AXIS_TENSOR, MOST_RANKS, 0 },
    };
    if (model->slice.ranks < 2)
        return;
    out->axes = &axes[model->slice.ranks - 2];
    out->axis_count = 1;
    out->axis_stride = sizeof(xray_axis);
    if (model->slice.kv_ranks > 1 && !out->numerics)
        out->numerics = XRAY_NUMERICS_FP32_SHARED_KV;
    else if (model->slice.kv_ranks > 1 && model->dtype == XRAY_BF16)
        out->numerics = XRAY_NUMERICS_BF16_SHARED_KV;
}

/* Floats of logits, of changed ones and of their parts. */
uint64_t xm_engine_count_logits(const xm_engine_bounds *b)
{
    uint64_t rows = b->logit_draws * (b->ranks > 1 ? 2ull : 1);
    return (rows + XM_LOGIT_DRAWS) * b->logits;
}

static xray_status plan_instance(const xm_engine_sizes *sizes,
                                 const xray_model *model,
                                 const xray_workload *load, xr_err *err,
                                 xray_plan *out)
{
    const xm_config *m = &sizes->model;
    const xm_engine_bounds *b = &sizes->bounds;
    xray_plan own = { .header = XRAY_HEADER(xray_plan),
                      .micro_multiple = 1,
                      .token_multiple = 1,
                      .evictable = XM_ENGINE_EVICTABLE };
    int flags = 0;
    if (xm_engine_keeps_copy(sizes->options.weights,
                             !load->shared || b->ranks > 1)) {
        flags = xm_engine_copy_flags(sizes->options.weights, model);
        xm_layout *layout = NULL;
        xray_status status = xm_layout_create(m, 0, err, &layout);
        if (status != XRAY_OK)
            return status;
        own.bytes[XRAY_TAG_WEIGHTS] = xm_weights_bytes(layout, flags, load);
        xm_layout_destroy(layout);
    }
    const xm_passes passes = { .tokens = b->step_tokens,
                               .row_tokens = b->row_bound,
                               .passes = XRAY_PASS_CACHE | XRAY_PASS_SAMPLE };
    own.bytes[XRAY_TAG_KV] =
        b->slot_bytes / b->slot_blocks * xm_engine_count_blocks(b);
    own.bytes[XRAY_TAG_ACTIVATIONS] =
        xm_space_bytes(m, b->step_tokens, b->slots, b->row_bound, 0);
    own.bytes[XRAY_TAG_WORKSPACE] =
        (uint64_t)b->draws * m->hidden * xm_config_act_bytes(m) +
        xm_engine_count_logits(b) * sizeof(float) +
        xm_engine_lay_out_arrays(b, NULL, NULL) +
        xm_decoder_bytes(m, b->row_bound);
    xm_tell_work(m, &passes, load);
    /* Rounded weights give other log-probabilities than the component's
     * contract promises; where activations are bf16, so are weights, however
     * they are kept. */
    if (m->dtype == XRAY_BF16)
        own.numerics = XRAY_NUMERICS_BF16;
    else if (flags)
        own.numerics = XRAY_NUMERICS_FP32_BF16_WEIGHTS;
    plan_ranks(m, &own);
    xray_fill(out, &own);
    return XRAY_OK;
}

static xray_status check_trace(const char *name, const char *path, xr_err *err)
{
    xray_status status = path && *path ? xm_trace_check(path, err) : XRAY_OK;
    return status == XRAY_OK ? status : xr_fail_in(err, status, "%s", name);
}

xray_status xm_engine_plan(const xm_engine_kind *kind, const xray_host *host,
                           const void *config, const xray_model *model,
                           const xray_world *world, const xray_workload *load,
                           xray_plan *out)
{
    xr_err err = { "" };
    xm_engine_sizes sizes;
    xray_status status =
        xm_engine_find_sizes(kind, config, model, world, load, &err, &sizes);
    if (status == XRAY_OK)
        status = check_trace(kind->name, sizes.options.trace, &err);
    if (status == XRAY_OK)
        status = plan_instance(&sizes, model, load, &err, out);
    return status == XRAY_OK ? status
                             : xr_host_tell(host, status, "plan", &err);
}
