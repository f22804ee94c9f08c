/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans the memory of an instance and refuses configurations that cannot work.
 */
#include <inttypes.h>
#include <stdio.h>

#include "core/base/file.h"
#include "plugins/backend-zero3/zero3.h"

xray_status z3_report(const xray_host *host, xray_status status,
                      const char *where, const xr_err *err)
{
    if (status < 0 && err->text[0])
        return xr_host_tell(host, status, where, err);
    return status;
}

/* Size of one row of logits in bytes, padded as the device pads it. */
static uint64_t logits_row_bytes(const xm_config *model)
{
    return ((uint64_t)model->vocab + 15) / 16 * 16 * sizeof(float);
}

static int keeps_logits(const z3_config *config, const xm_config *model,
                        const xray_workload *load)
{
    if (config->head_logits != Z3_LOGITS_AUTO)
        return config->head_logits == Z3_LOGITS_KEEP;
    return !config->gradient_checkpointing &&
           load->tokens <= Z3_LOGITS_MOST / logits_row_bytes(model);
}

uint32_t z3_space_flags(const z3_config *config, const xm_config *model,
                        const xray_workload *load)
{
    uint32_t flags = XM_SPACE_TRAIN;
    if (!load->trainable)
        return 0;
    if (config->gradient_checkpointing)
        flags |= XM_SPACE_RECOMPUTE;
    if (load->outputs != XRAY_OUTPUT_VALUE && keeps_logits(config, model, load))
        flags |= XM_SPACE_LOGITS;
    return flags;
}

xm_pack_limits z3_pack_limits(const xm_config *model, const xray_workload *load)
{
    return (xm_pack_limits){ .tokens = load->tokens,
                             .rows = load->rows,
                             .row_tokens = load->row_tokens,
                             .vocab = model->vocab };
}

static xray_status check_load(const xm_config *model, const xray_workload *load,
                              xr_err *err)
{
    if (load->tokens == 0 || load->rows == 0 || load->row_tokens == 0)
        return xr_fail(err, XRAY_E_CONFIG,
                       "a micro-batch has %" PRIu64 " tokens, %" PRIu64
                       " rows and rows of up to %" PRIu64
                       " tokens, expected at least 1 of each",
                       load->tokens, load->rows, load->row_tokens);
    if (load->row_tokens > load->tokens)
        return xr_fail(err, XRAY_E_CONFIG,
                       "rows of up to %" PRIu64
                       " tokens do not fit micro-batches of %" PRIu64 " tokens",
                       load->row_tokens, load->tokens);
    if (load->row_tokens > model->max_positions)
        return xr_fail(err, XRAY_E_CONFIG,
                       "rows of up to %" PRIu64
                       " tokens are longer than the model's "
                       "max_position_embeddings %" PRIu32,
                       load->row_tokens, model->max_positions);
    if (load->trainable_from_layer > model->layers)
        return xr_fail(err, XRAY_E_CONFIG,
                       "blocks from %" PRIu32
                       " on are to be trained, but the model has %" PRIu32,
                       load->trainable_from_layer, model->layers);
    return XRAY_OK;
}

static xray_status check_options(const z3_config *config, xr_err *err)
{
    if (config->offload_param && config->stage != 3)
        return xr_fail_key(err, XRAY_E_CONFIG, "train.zero3", "offload_param",
                           " = host needs stage = 3: at stage %" PRIi64
                           " every rank computes with all weights at once",
                           config->stage);
    return XRAY_OK;
}

z3_sharding z3_sharding_of(const z3_config *config, uint32_t ranks)
{
    int several = ranks > 1;
    return (z3_sharding){ .gathers = (several && config->stage == 3) ||
                                     config->offload_param,
                          .scatters = several && config->stage >= 2,
                          .all_moments = several && config->stage == 0 };
}

xray_status z3_create_layout(const xm_config *model, uint32_t value_head,
                             const xray_world *world, uint32_t from_layer,
                             xr_err *err, xm_layout **out)
{
    xray_status status = xm_layout_create(model, value_head != 0, err, out);
    if (status != XRAY_OK)
        return status;
    (*out)->ranks = world ? world->size : 1;
    (*out)->rank = world ? world->rank : 0;
    (*out)->frozen = from_layer ? from_layer + 1 : 0;
    return XRAY_OK;
}

xray_status z3_check_setup(const z3_config *config, const xray_model *model,
                           const xray_world *world, const xray_workload *load,
                           xr_err *err, xm_config *out)
{
    char where[XR_PATH_CAP];
    xray_status options = check_options(config, err);
    if (options != XRAY_OK)
        return options;
    if (world && world->size > Z3_MAX_RANKS)
        return xr_fail(err, XRAY_E_CONFIG,
                       "the world has %" PRIu32
                       " ranks, but zero3 divides buckets "
                       "among at most %u",
                       world->size, Z3_MAX_RANKS);
    if (model->dtype != XRAY_F32)
        return xr_fail_key(err, XRAY_E_CONFIG, "model", "dtype",
                           ": zero3 computes in float32 only");
    if (!model->path && !model->random_init)
        return xr_fail(err, XRAY_E_CONFIG,
                       "the model has neither a folder of weights nor "
                       "random_init");
    (void)snprintf(where, sizeof(where), "%s%sconfig.json",
                   model->path ? model->path : "", model->path ? "/" : "");
    xray_status status = xm_config_parse(model->config_json, where, err, out);
    if (status == XRAY_OK)
        status = check_load(out, load, err);
    /* An unknown model makes the configuration invalid. */
    return status == XRAY_OK || status == XRAY_E_NOMEM ? status : XRAY_E_CONFIG;
}

/* Tells what the device computes. Any batch may share prompts. */
static void tell_device_work(const xm_config *model, const xray_workload *load,
                             uint32_t flags)
{
    xm_passes passes = { .tokens = load->tokens,
                         .row_tokens = load->row_tokens,
                         .passes = XRAY_PASS_ROWS | XRAY_PASS_PARENTS };
    if (load->trainable)
        passes.passes |= XRAY_PASS_GRADS;
    if (load->outputs != XRAY_OUTPUT_VALUE)
        passes.passes |= XRAY_PASS_LOGP;
    if (flags & XM_SPACE_LOGITS)
        passes.passes |= XRAY_PASS_LOGITS;
    xm_tell_work(model, &passes, load);
}

static uint64_t weight_bytes(const z3_config *config, const xm_config *model,
                             const xm_layout *layout, const xray_workload *load)
{
    if (z3_sharding_of(config, layout->ranks).gathers)
        return z3_gather_bytes(layout, model, config, load);
    uint64_t bytes = xm_packed_bytes(
        layout, load->trainable ? XM_WEIGHTS_TRAINABLE : 0, load);
    for (uint32_t b = 0; b < layout->bucket_count; b++)
        bytes += xm_bucket_capacity(layout, b) * sizeof(float);
    return bytes;
}

static void plan_training(const z3_config *config, const xm_config *model,
                          const xm_layout *layout, xray_plan *out)
{
    z3_sharding sharding = z3_sharding_of(config, layout->ranks);
    out->bytes[XRAY_TAG_GRADS] = sharding.scatters
                                     ? z3_reduce_bytes(layout, model)
                                     : xm_grads_bytes(model, layout);
    out->bytes[XRAY_TAG_OPTIMIZER] =
        xm_adamw_bytes(layout, sharding.all_moments);
    if (config->offload_optimizer)
        out->bytes[XRAY_TAG_OPTIMIZER] -=
            xm_adamw_state_bytes(layout, sharding.all_moments);
}

static void fill_plan(const z3_config *config, const xm_config *model,
                      const xm_layout *layout, const xray_workload *load,
                      xray_plan *out)
{
    xm_pack_limits limits = z3_pack_limits(model, load);
    uint32_t flags = z3_space_flags(config, model, load);
    xray_plan own = {
        .header = XRAY_HEADER(xray_plan),
        .micro_multiple = 1,
        .token_multiple = 1,
        .evictable = Z3_EVICTABLE,
        .sharded = z3_sharding_of(config, layout->ranks).gathers,
    };
    own.bytes[XRAY_TAG_WEIGHTS] = weight_bytes(config, model, layout, load);
    own.bytes[XRAY_TAG_ACTIVATIONS] =
        xm_space_bytes(model, load->tokens, xm_packed_rows(load->rows),
                       load->row_tokens, flags);
    own.bytes[XRAY_TAG_WORKSPACE] = xm_packer_bytes(&limits) +
                                    xm_decoder_bytes(model, load->row_tokens) +
                                    z3_group_bytes(layout->ranks);
    tell_device_work(model, load, flags);
    if (load->trainable)
        plan_training(config, model, layout, &own);
    xray_fill(out, &own);
}

xray_status z3_plan(const xray_host *host, const void *config,
                    const xray_model *model, const xray_world *world,
                    const xray_workload *load, xray_plan *out)
{
    xr_err err = { "" };
    xm_config parsed;
    xm_layout *layout = NULL;
    xray_status status =
        z3_check_setup(config, model, world, load, &err, &parsed);
    if (status == XRAY_OK)
        status = z3_create_layout(
            &parsed, load->outputs & XRAY_OUTPUT_VALUE, world,
            load->trainable ? load->trainable_from_layer : 0, &err, &layout);
    if (status == XRAY_OK)
        fill_plan(config, &parsed, layout, load, out);
    xm_layout_destroy(layout);
    return z3_report(host, status, "plan", &err);
}
