/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the sizes of an instance from options, model and workload.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include <xray/plugin.h>

#include "plugins/infer-dsinf/dsinf.h"

/* Refuses the value of a key; the text continues after the key's name. */
XRAY_PRINTF(3, 4)
static xray_status refuse_option(xr_err *err, const char *key, const char *fmt,
                                 ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    (void)xr_fail_key(err, XRAY_E_CONFIG, NULL, key, "%s", text);
    return xr_fail_in(err, XRAY_E_CONFIG, "dsinf");
}

/* Makes as many slots as the workload has rows, unless the options allow
 * fewer. */
static xray_status find_slots(const dsinf_config *config,
                              const xray_workload *load,
                              xm_engine_bounds *bounds, xr_err *err)
{
    uint64_t slots = load->rows;
    uint64_t asked = (uint64_t)config->max_num_seqs;
    if (asked && asked < slots)
        slots = asked;
    uint64_t fit =
        config->kv_memory ? config->kv_memory / bounds->slot_bytes : slots;
    if (fit == 0)
        return refuse_option(
            err, "kv_memory",
            " of %" PRIu64 " bytes is too small: one row of %" PRIu32
            " tokens takes %" PRIu64 " bytes",
            config->kv_memory, bounds->row_bound, bounds->slot_bytes);
    if (asked && slots > fit)
        return refuse_option(
            err, "max_num_seqs",
            " = %" PRIu64 ": %" PRIu64 " rows of %" PRIu32
            " tokens take %" PRIu64 " bytes, more than kv_memory = %" PRIu64
            "; %" PRIu64 " rows fit",
            asked, slots, bounds->row_bound, slots * bounds->slot_bytes,
            config->kv_memory, fit);
    if (slots > fit)
        slots = fit;
    bounds->slots = (uint32_t)slots;
    return XRAY_OK;
}

xray_status dsinf_find_bounds(const void *options, const xm_config *model,
                              const xray_workload *load, xr_err *err,
                              xm_engine_bounds *out)
{
    const dsinf_config *config = options;
    xm_engine_bounds b = { 0 };
    if (load->rows == 0 || load->rows > INT32_MAX || load->row_tokens < 2)
        return xr_fail(err, XRAY_E_CONFIG,
                       "dsinf: the workload has %" PRIu64 " rows of %" PRIu64
                       " tokens, expected at least one row of two tokens",
                       load->rows, load->row_tokens);
    b.row_bound = load->row_tokens < model->max_positions
                      ? (uint32_t)load->row_tokens
                      : model->max_positions;
    /* The smallest blocks waste the fewest positions of a slot. */
    b.block_tokens = XM_ENGINE_BLOCK_TOKENS;
    b.slot_blocks =
        (b.row_bound + XM_ENGINE_BLOCK_TOKENS - 1) / XM_ENGINE_BLOCK_TOKENS;
    b.slot_bytes =
        xm_engine_slot_bytes(model, load, b.block_tokens, b.slot_blocks);
    if (b.slot_bytes == 0)
        return xr_fail(err, XRAY_E_CONFIG,
                       "dsinf: the device has no cache for heads of dimension "
                       "%" PRIu32 " in blocks of %u tokens",
                       model->head_dim, XM_ENGINE_BLOCK_TOKENS);
    xray_status status = find_slots(config, load, &b, err);
    if (status != XRAY_OK)
        return status;
    b.speculate = (uint32_t)config->speculate;
    xm_engine_find_bounds(model, (uint64_t)config->max_num_batched_tokens, &b);
    *out = b;
    return XRAY_OK;
}
