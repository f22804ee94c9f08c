/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans what the parts of an instance need, and refuses what no backend can do.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <xray/plugin.h>

#include "core/base/file.h"
#include "model/train/trainer_internal.h"

/* Size up to which `auto` keeps the logits, in bytes. */
#define LOGITS_MOST ((uint64_t)256 << 20)

xray_status xm_trainer_report(const xray_host *host, xray_status status,
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

static int keeps_logits(const xm_trainer_options *options,
                        const xm_config *model, const xray_workload *load)
{
    if (options->head_logits != XM_TRAINER_LOGITS_AUTO)
        return options->head_logits == XM_TRAINER_LOGITS_KEEP;
    return options->recompute != XM_TRAINER_RECOMPUTE_FULL &&
           xm_context_each(load->tokens, model->context_ranks) <=
               LOGITS_MOST / logits_row_bytes(model);
}

/* The last chunk of a stage runs backward if any does. */
static uint32_t runs_any_back(const xm_config *model, uint32_t from)
{
    return xm_trainer_runs_back(
        model, model->layers / xm_config_chunk(model) - 1, from);
}

uint32_t xm_trainer_space_flags(const xm_trainer_options *options,
                                const xm_config *model,
                                const xray_workload *load)
{
    uint32_t flags = options->sequence ? XM_SPACE_SEQUENCE : 0;
    if (!load->trainable || !runs_any_back(model, load->trainable_from_layer))
        return flags;
    flags |= XM_SPACE_TRAIN;
    if (options->recompute == XM_TRAINER_RECOMPUTE_FULL)
        flags |= XM_SPACE_RECOMPUTE;
    if (options->recompute == XM_TRAINER_RECOMPUTE_NONE)
        flags |= XM_SPACE_INPUTS;
    if (load->outputs != XRAY_OUTPUT_VALUE && xm_config_is_last(model) &&
        keeps_logits(options, model, load))
        flags |= XM_SPACE_LOGITS;
    return flags;
}

xm_pack_limits xm_trainer_pack_limits(const xm_config *model,
                                      const xray_workload *load)
{
    return (xm_pack_limits){ .tokens = load->tokens,
                             .rows = load->rows,
                             .row_tokens = load->row_tokens,
                             .vocab = xm_config_vocab(model),
                             .context = { .ranks = model->context_ranks,
                                          .rank = model->context_rank } };
}

uint32_t xm_trainer_runs_back(const xm_config *model, uint32_t chunk,
                              uint32_t from)
{
    uint32_t end = (chunk + 1) * xm_config_chunk(model);
    return (end == model->layers && xm_config_is_last(model)) ||
           from <= xm_config_layer(model, end - 1);
}

uint32_t xm_trainer_sends_back(const xm_config *model, uint32_t chunk,
                               uint32_t from)
{
    return from < xm_config_layer(model, chunk * xm_config_chunk(model));
}

uint32_t xm_trainer_flights(const xm_trainer_options *options,
                            const xm_config *model, const xray_workload *load)
{
    xm_schedule schedule = { .stages = options->stages ? options->stages : 1,
                             .stage = options->stage,
                             .chunks = model->layers / xm_config_chunk(model),
                             .forward = !load->trainable };
    return xm_schedule_in_flight(&schedule);
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

/* The first bucket with gradients. Of a stage whose blocks are all trained, but
 * not the model's embedding, it is number 1. */
static uint32_t find_first_trained(const xm_config *model, uint32_t from)
{
    uint32_t frozen = 0;
    while (frozen < model->layers && xm_config_layer(model, frozen) < from)
        frozen++;
    return from ? frozen + 1 : 0;
}

xm_config xm_trainer_whole(const xm_config *model)
{
    xm_config whole = *model;
    if (whole.slice.layers)
        whole.layers = whole.slice.layers;
    whole.slice.layers = 0;
    whole.slice.first_layer = 0;
    whole.slice.chunk = 0;
    whole.slice.step = 0;
    return whole;
}

xray_status xm_trainer_create_layout(const xm_config *model,
                                     uint32_t value_head,
                                     const xray_subgroup *data,
                                     uint32_t from_layer, xr_err *err,
                                     xm_layout **out)
{
    xray_status status = xm_layout_create(model, value_head != 0, err, out);
    if (status != XRAY_OK)
        return status;
    (*out)->ranks = data->size;
    (*out)->rank = data->rank;
    (*out)->frozen = find_first_trained(model, from_layer);
    return XRAY_OK;
}

xray_status xm_trainer_check(const char *section, const xray_model *model,
                             const xray_world *world, const xray_workload *load,
                             xr_err *err, xm_config *out)
{
    const char *name = strrchr(section, '.') + 1;
    char where[XR_PATH_CAP];
    if (world && world->size > XM_GROUP_RANKS)
        return xr_fail(err, XRAY_E_CONFIG,
                       "the world has %" PRIu32
                       " ranks, but %s divides buckets among at most %u",
                       world->size, name, XM_GROUP_RANKS);
    if (model->dtype != XRAY_F32 && model->dtype != XRAY_BF16)
        return xr_fail_key(err, XRAY_E_CONFIG, "model", "dtype",
                           ": %s computes in float32 or bfloat16", name);
    if (!model->path && !model->random_init)
        return xr_fail(err, XRAY_E_CONFIG,
                       "the model has neither a folder of weights nor "
                       "random_init");
    (void)snprintf(where, sizeof(where), "%s%sconfig.json",
                   model->path ? model->path : "", model->path ? "/" : "");
    xray_status status = xm_config_parse(model->config_json, where, err, out);
    out->dtype = model->dtype == XRAY_BF16 ? XRAY_BF16 : 0;
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
    if (flags & XM_SPACE_TRAIN)
        passes.passes |= XRAY_PASS_GRADS;
    if (load->outputs != XRAY_OUTPUT_VALUE && xm_config_is_last(model))
        passes.passes |= XRAY_PASS_LOGP;
    if (flags & XM_SPACE_LOGITS)
        passes.passes |= XRAY_PASS_LOGITS;
    xm_tell_work(model, &passes, load);
}

static uint64_t weight_bytes(const xm_layout *layout, const xray_workload *load)
{
    uint64_t bytes = xm_packed_bytes(
        layout, load->trainable ? XM_WEIGHTS_TRAINABLE : 0, load);
    for (uint32_t b = 0; b < layout->bucket_count; b++)
        bytes += xm_bucket_capacity(layout, b) * sizeof(float);
    return bytes;
}

static void plan_training(const xm_trainer_options *options,
                          const xm_config *model, const xm_layout *layout,
                          const xray_workload *load, xray_plan *out)
{
    out->bytes[XRAY_TAG_GRADS] =
        xm_grads_bytes(model, layout) + xm_folds_elements(model, layout,
                                                          XRAY_SEGMENTS_IN_RUNS,
                                                          load->segments) *
                                            sizeof(float);
    out->bytes[XRAY_TAG_OPTIMIZER] =
        xm_adamw_bytes(layout, options->all_moments);
    if (!options->offload_moments)
        return;
    out->offloaded = xm_adamw_state_bytes(layout, options->all_moments);
    out->bytes[XRAY_TAG_OPTIMIZER] -= out->offloaded;
    if (!xm_plans_on_host(load))
        out->bytes[XRAY_TAG_WORKSPACE] += xm_moments_bytes();
}

static uint32_t name_recompute(const xm_trainer_options *options)
{
    return options->recompute == XM_TRAINER_RECOMPUTE_FULL ? XRAY_RECOMPUTE_FULL
           : options->recompute == XM_TRAINER_RECOMPUTE_NONE
               ? XRAY_RECOMPUTE_NONE
               : XRAY_RECOMPUTE_SELECTIVE;
}

xray_plan xm_trainer_plan(const xm_trainer_options *options,
                          const xm_config *model, const xm_layout *layout,
                          const xray_workload *load, uint32_t ranks)
{
    xm_pack_limits limits = xm_trainer_pack_limits(model, load);
    uint32_t flags = xm_trainer_space_flags(options, model, load);
    uint64_t flights = xm_trainer_flights(options, model, load);
    xray_plan own = {
        .header = XRAY_HEADER(xray_plan),
        .micro_multiple = 1,
        .token_multiple = 1,
        .evictable = XM_TRAINER_EVICTABLE,
        .segments = XRAY_SEGMENTS_IN_RUNS,
        .numerics = model->dtype == XRAY_BF16 ? XRAY_NUMERICS_BF16 : NULL,
        .recompute = name_recompute(options),
        .sequence = options->sequence != 0,
    };
    own.bytes[XRAY_TAG_WEIGHTS] = weight_bytes(layout, load);
    own.bytes[XRAY_TAG_ACTIVATIONS] =
        xm_space_bytes(model, load->tokens, xm_packed_rows(load->rows),
                       load->row_tokens, flags) +
        (flights - 1) * xm_space_beside_bytes(model, load->tokens,
                                              xm_packed_rows(load->rows),
                                              load->row_tokens, flags);
    own.bytes[XRAY_TAG_WORKSPACE] = flights * xm_packer_bytes(&limits) +
                                    xm_decoder_bytes(model, load->row_tokens) +
                                    xm_group_bytes(ranks);
    tell_device_work(model, load, flags);
    if (load->trainable)
        plan_training(options, model, layout, load, &own);
    return own;
}
