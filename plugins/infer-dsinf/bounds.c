/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the sizes of an instance from options, model and workload, and plans
 * its memory.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include <xray/plugin.h>

#include "plugins/infer-dsinf/dsinf.h"

#define LEAST_DRAWS 64u

/* Refuses the value of a key; the text continues after the key's name. */
XRAY_PRINTF(4, 5)
static xray_status refuse_option(xr_err *err, const char *section,
                                 const char *key, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    (void)xr_fail_key(err, XRAY_E_CONFIG, section, key, "%s", text);
    return xr_fail_in(err, XRAY_E_CONFIG, "dsinf");
}

xray_status dsinf_read_model(const xray_model *model, xr_err *err,
                             xm_config *out)
{
    if (!model || !model->config_json)
        return xr_fail(err, XRAY_E_CONFIG,
                       "dsinf: the model has no config.json");
    if (model->dtype != XRAY_F32 && model->dtype != XRAY_BF16)
        return refuse_option(err, "model", "dtype",
                             ": this engine computes in float32 or bfloat16");
    char where[1024];
    (void)snprintf(where, sizeof(where), "%s/config.json",
                   model->path ? model->path : "model");
    xray_status status = xm_config_parse(model->config_json, where, err, out);
    out->dtype = model->dtype == XRAY_BF16 ? XRAY_BF16 : 0;
    return status;
}

int dsinf_keeps_copy(const dsinf_config *config, int alone)
{
    return alone || config->weights != DSINF_WEIGHTS_AUTO;
}

int dsinf_copy_flags(const dsinf_config *config, const xray_model *model)
{
    if (config->weights == DSINF_WEIGHTS_BFLOAT16 ||
        (config->weights == DSINF_WEIGHTS_AUTO && model->dtype == XRAY_BF16))
        return XM_WEIGHTS_BF16;
    return 0;
}

/* Bytes of a slot in all layers; where the device is not known, those of the
 * elements without padding. */
static uint64_t count_slot_bytes(const xm_config *model,
                                 const xray_workload *load,
                                 uint32_t slot_blocks)
{
    const xray_kv kv = dsinf_describe_kv(model, slot_blocks);
    uint64_t block = 2ull * DSINF_BLOCK_TOKENS * model->kv_heads *
                     model->head_dim * xm_config_act_bytes(model);
    if (load->device)
        block = load->device->plan_kv_block(load->device_config, &kv);
    return block * slot_blocks * model->layers;
}

/* Makes as many slots as the workload has rows, unless the options allow
 * fewer. */
static xray_status find_slots(const dsinf_config *config,
                              const xray_workload *load, dsinf_bounds *bounds,
                              xr_err *err)
{
    uint64_t slots = load->rows;
    uint64_t asked = (uint64_t)config->max_num_seqs;
    if (asked && asked < slots)
        slots = asked;
    uint64_t fit =
        config->kv_memory ? config->kv_memory / bounds->slot_bytes : slots;
    if (fit == 0)
        return refuse_option(
            err, NULL, "kv_memory",
            " of %" PRIu64 " bytes is too small: one row of %" PRIu32
            " tokens takes %" PRIu64 " bytes",
            config->kv_memory, bounds->row_bound, bounds->slot_bytes);
    if (asked && slots > fit)
        return refuse_option(
            err, NULL, "max_num_seqs",
            " = %" PRIu64 " rows of %" PRIu32 " tokens take %" PRIu64
            " bytes, more than kv_memory = %" PRIu64 "; %" PRIu64 " rows fit",
            slots, bounds->row_bound, slots * bounds->slot_bytes,
            config->kv_memory, fit);
    if (slots > fit)
        slots = fit;
    bounds->slots = (uint32_t)slots;
    return XRAY_OK;
}

xray_status dsinf_find_bounds(const dsinf_config *config,
                              const xm_config *model, const xray_workload *load,
                              xr_err *err, dsinf_bounds *out)
{
    dsinf_bounds b = { 0 };
    if (load->rows == 0 || load->rows > INT32_MAX || load->row_tokens < 2)
        return xr_fail(err, XRAY_E_CONFIG,
                       "dsinf: the workload has %" PRIu64 " rows of %" PRIu64
                       " tokens, expected at least one row of two tokens",
                       load->rows, load->row_tokens);
    b.row_bound = load->row_tokens < model->max_positions
                      ? (uint32_t)load->row_tokens
                      : model->max_positions;
    b.slot_blocks = (b.row_bound + DSINF_BLOCK_TOKENS - 1) / DSINF_BLOCK_TOKENS;
    b.slot_bytes = count_slot_bytes(model, load, b.slot_blocks);
    if (b.slot_bytes == 0)
        return xr_fail(err, XRAY_E_CONFIG,
                       "dsinf: the device has no cache for heads of dimension "
                       "%" PRIu32 " in blocks of %u tokens",
                       model->head_dim, DSINF_BLOCK_TOKENS);
    xray_status status = find_slots(config, load, &b, err);
    if (status != XRAY_OK)
        return status;
    /* Every running sequence gets its token in every step. */
    uint64_t tokens = (uint64_t)config->max_num_batched_tokens;
    uint64_t most = (uint64_t)b.slots * b.row_bound;
    if (tokens < b.slots)
        tokens = b.slots;
    if (tokens > most)
        tokens = most;
    b.step_tokens = (uint32_t)tokens;
    b.draws = b.slots < LEAST_DRAWS ? LEAST_DRAWS : b.slots;
    const xm_limits limits = { model->vocab, b.row_bound };
    b.words = (model->vocab + 31) / 32;
    b.edits = xm_sched_edits(&limits);
    b.logits = (model->vocab + 15ull) / 16 * 16;
    *out = b;
    return XRAY_OK;
}

/* ---- arrays of a step --------------------------------------------------- */

static void *reserve_array(void *base, size_t *end, size_t count, size_t size)
{
    size_t at = *end;
    *end = (at + count * size + 63) & ~(size_t)63;
    return base ? (unsigned char *)base + at : NULL;
}

size_t dsinf_lay_out_arrays(const dsinf_bounds *bounds, void *base,
                            dsinf_arrays *out)
{
    size_t end = 0;
    size_t tokens = bounds->step_tokens;
    size_t draws = bounds->draws;
    dsinf_arrays a;
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
    if (out)
        *out = a;
    return end;
}

/* ---- plan --------------------------------------------------------------- */

static xray_status find_plan(const dsinf_config *config,
                             const xray_model *model, const xray_workload *load,
                             xr_err *err, xray_plan *out)
{
    xm_config m;
    dsinf_bounds b;
    xray_status status = dsinf_read_model(model, err, &m);
    if (status == XRAY_OK)
        status = dsinf_find_bounds(config, &m, load, err, &b);
    if (status != XRAY_OK)
        return status;
    xray_plan own = { .header = XRAY_HEADER(xray_plan),
                      .micro_multiple = 1,
                      .token_multiple = 1,
                      .evictable = DSINF_EVICTABLE };
    int flags = 0;
    if (dsinf_keeps_copy(config, !load->shared)) {
        flags = dsinf_copy_flags(config, model);
        xm_layout *layout = NULL;
        status = xm_layout_create(&m, 0, err, &layout);
        if (status != XRAY_OK)
            return status;
        own.bytes[XRAY_TAG_WEIGHTS] = xm_weights_bytes(layout, flags, load);
        xm_layout_destroy(layout);
    }
    const xm_passes passes = { .tokens = b.step_tokens,
                               .row_tokens = b.row_bound,
                               .passes = XRAY_PASS_CACHE | XRAY_PASS_SAMPLE };
    own.bytes[XRAY_TAG_KV] = b.slots * b.slot_bytes;
    own.bytes[XRAY_TAG_ACTIVATIONS] =
        xm_space_bytes(&m, b.step_tokens, b.slots, b.row_bound, 0);
    own.bytes[XRAY_TAG_WORKSPACE] =
        (uint64_t)b.draws * m.hidden * xm_config_act_bytes(&m) +
        2 * XM_LOGIT_DRAWS * b.logits * sizeof(float) +
        dsinf_lay_out_arrays(&b, NULL, NULL) +
        xm_decoder_bytes(&m, b.row_bound);
    xm_tell_work(&m, &passes, load);
    /* Rounded weights give other log-probabilities than the component's
     * contract promises; where activations are bf16, so are weights, however
     * they are kept. */
    if (m.dtype == XRAY_BF16)
        own.numerics = XRAY_NUMERICS_BF16;
    else if (flags)
        own.numerics = XRAY_NUMERICS_FP32_BF16_WEIGHTS;
    xray_fill(out, &own);
    return XRAY_OK;
}

xray_status dsinf_plan(const xray_host *host, const void *config,
                       const xray_model *model, const xray_world *world,
                       const xray_workload *load, xray_plan *out)
{
    (void)world; /* Ranks serve independently of each other. */
    xr_err err = { "" };
    xray_status status = find_plan(config, model, load, &err, out);
    return status == XRAY_OK ? status
                             : dsinf_report(host, status, "plan", &err);
}
