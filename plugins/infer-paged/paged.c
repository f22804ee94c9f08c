/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares infer-paged, an engine whose sequences share a pool of blocks, and
 * plans and creates its instances. The engine of model/serve does the rest.
 */
#include <inttypes.h>

#include <xray/plugin.h>

#include "plugins/infer-paged/paged.h"

/* The most blocks that a pool may have. */
#define MOST_BLOCKS (1u << 30)

/* ---- sizes -------------------------------------------------------------- */

/* A pool is large enough for all sequences at their longest, unless kv_memory
 * allows less; then sequences are preempted. */
static xray_status find_blocks(const paged_config *config,
                               xm_engine_bounds *bounds, xr_err *err)
{
    uint64_t each = bounds->slot_bytes / bounds->slot_blocks;
    uint64_t blocks = (uint64_t)bounds->slots * bounds->slot_blocks;
    if (config->kv_memory && blocks > config->kv_memory / each)
        blocks = config->kv_memory / each;
    if (blocks < bounds->slot_blocks) {
        (void)xr_fail_key(
            err, XRAY_E_CONFIG, NULL, "kv_memory",
            " of %" PRIu64 " bytes is too small: one row of %" PRIu32
            " tokens takes %" PRIu64 " bytes; max_model_len shortens the rows",
            config->kv_memory, bounds->row_bound, bounds->slot_bytes);
        return xr_fail_in(err, XRAY_E_CONFIG, "paged");
    }
    bounds->blocks = (uint32_t)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS);
    bounds->watermark = (uint32_t)(config->watermark * bounds->blocks);
    bounds->caching = config->enable_prefix_caching;
    return XRAY_OK;
}

static xray_status check_options(const paged_config *config,
                                 const xray_workload *load, xr_err *err)
{
    int64_t least = load->prompt_tokens ? (int64_t)load->prompt_tokens + 1 : 2;
    xray_status status = XRAY_OK;
    if (config->block_size % XM_ENGINE_BLOCK_TOKENS)
        status = xr_fail_key(err, XRAY_E_CONFIG, NULL, "block_size",
                             " = %" PRId64 ", a multiple of %u was expected",
                             config->block_size, XM_ENGINE_BLOCK_TOKENS);
    else if (config->max_model_len && config->max_model_len < least)
        status = xr_fail_key(err, XRAY_E_CONFIG, NULL, "max_model_len",
                             " = %" PRId64 ", at least %" PRId64
                             " (the longest prompt and one token of its "
                             "sample), or 0, was expected",
                             config->max_model_len, least);
    else if (config->max_num_batched_tokens < config->max_num_seqs)
        status = xr_fail_key(
            err, XRAY_E_CONFIG, NULL, "max_num_batched_tokens",
            " = %" PRId64 ", at least max_num_seqs = %" PRId64
            " was expected: each sequence that runs has a token in every step",
            config->max_num_batched_tokens, config->max_num_seqs);
    return status == XRAY_OK ? status : xr_fail_in(err, status, "paged");
}

static xray_status paged_find_bounds(const void *options,
                                     const xm_config *model,
                                     const xray_workload *load, xr_err *err,
                                     xm_engine_bounds *out)
{
    const paged_config *config = options;
    xm_engine_bounds b = { 0 };
    uint64_t row = load->row_tokens;
    if (load->rows == 0 || load->rows > INT32_MAX || row < 2)
        return xr_fail(err, XRAY_E_CONFIG,
                       "paged: the workload has %" PRIu64 " rows of %" PRIu64
                       " tokens, expected at least one row of two tokens",
                       load->rows, row);
    xray_status status = check_options(config, load, err);
    if (status != XRAY_OK)
        return status;
    if (config->max_model_len && (uint64_t)config->max_model_len < row)
        row = (uint64_t)config->max_model_len;
    b.row_bound =
        row < model->max_positions ? (uint32_t)row : model->max_positions;
    b.block_tokens = (uint32_t)config->block_size;
    b.slot_blocks = (b.row_bound + b.block_tokens - 1) / b.block_tokens;
    b.slot_bytes =
        xm_engine_slot_bytes(model, load, b.block_tokens, b.slot_blocks);
    if (b.slot_bytes == 0)
        return xr_fail(err, XRAY_E_CONFIG,
                       "paged: the device has no cache for heads of dimension "
                       "%" PRIu32 " in blocks of %" PRIu32 " tokens",
                       model->head_dim, b.block_tokens);
    b.slots = (uint32_t)load->rows;
    if (config->max_num_seqs && config->max_num_seqs < b.slots)
        b.slots = (uint32_t)config->max_num_seqs;
    status = find_blocks(config, &b, err);
    if (status != XRAY_OK)
        return status;
    b.speculate = (uint32_t)config->speculate;
    xm_engine_find_bounds(model, (uint64_t)config->max_num_batched_tokens, &b);
    *out = b;
    return XRAY_OK;
}

/* ---- plan and create ---------------------------------------------------- */

static const xm_engine_kind kind = { .name = "paged",
                                     .find_bounds = paged_find_bounds };

static xray_status paged_plan(const xray_host *host, const void *config,
                              const xray_model *model, const xray_world *world,
                              const xray_workload *load, xray_plan *out)
{
    return xm_engine_plan(&kind, host, config, model, world, load, out);
}

static xray_status paged_create(const xray_setup *setup, const void *config,
                                const xray_workload *load, void **out_self)
{
    return xm_engine_create(&kind, setup, config, load, out_self);
}

/* ---- the component ------------------------------------------------------ */

static const xray_option options[] = {
    XM_ENGINE_WEIGHTS(paged_config),
    XRAY_INT(paged_config, block_size, "16", 16, 65536, "tokens", 0u, "0.1",
             "Positions in a block of the KV cache, a multiple of 16. Only "
             "full blocks are found again by enable_prefix_caching."),
    XRAY_INT(paged_config, max_num_seqs, "0", 0, 1048576, "sequences", 0u,
             "0.1",
             "Maximum number of sequences that run at once; 0: as many as the "
             "workload has rows."),
    XRAY_INT(
        paged_config, max_num_batched_tokens, "2048", 1, 16777216, "tokens", 0u,
        "0.1",
        "Maximum tokens per step, at least max_num_seqs: running sequences "
        "come first, prompts get the rest and are cut where it ends. It also "
        "sets the size of the activations."),
    XRAY_INT(paged_config, max_model_len, "0", 0, INT32_MAX, "tokens", 0u,
             "0.1",
             "Longest row, prompt and sample; 0: the workload's longest row, "
             "or the model's last position."),
    XRAY_BYTES(paged_config, kv_memory, "4G", 0, 0x1p50, 0u, "0.1",
               "Maximum memory for keys and values; 0: as much as all "
               "sequences can need at once. With less, the youngest sequence "
               "is preempted when blocks run out, and computed again later."),
    XRAY_BOOL(paged_config, enable_prefix_caching, "true", 0u, "0.1",
              "Share the blocks of equal beginnings between sequences, also "
              "those of sequences that have ended; the bits are the same."),
    XRAY_REAL(paged_config, watermark, "0.1", 0, 0.5, NULL, 0u, "0.1",
              "Part of the blocks that stays free when a sequence starts "
              "beside others, so that fewer are preempted."),
    XM_ENGINE_TRACE(paged_config),
    XM_ENGINE_SPECULATE(paged_config),
    XM_ENGINE_TENSOR(paged_config),
};

static const xray_infer_ops ops = {
    .header = XRAY_HEADER(xray_infer_ops),
    .capabilities = XM_ENGINE_OFFERS,
    .plan = paged_plan,
    .create = paged_create,
    XM_ENGINE_CALLS,
};

static const xray_component component = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_INFER,
    .name = "paged",
    .summary = "Paged KV cache, prefix cache, chunked prefill, preemption",
    .ops = &ops,
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .option_stride = sizeof(options[0]),
    .config_size = sizeof(paged_config),
    .numerics = XRAY_NUMERICS_FP32,
};

static const xray_component *const components[] = { &component };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI_NEEDED,
    .component_count = 1,
    .name = "infer-paged",
    .version = "0.1.0",
    .vendor = "xray",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(infer_paged, plugin, "infer-paged", "0.1.0",
                   "xray.infer/0:paged")
