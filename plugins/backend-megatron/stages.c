/* SPDX-License-Identifier: Apache-2.0
 *
 * Divides the layers of a model among the stages of a pipeline.
 */
#include <inttypes.h>

#include "plugins/backend-megatron/megatron.h"

/* How many layers the first stage has, each in between, and the last. */
typedef struct division {
    uint32_t first;
    uint32_t middle;
    uint32_t last;
} division;

/* Returns 0 if so many layers cannot be divided. Stages without a number of
 * their own have equally many. */
static int divide_layers(const mg_config *config, uint32_t layers,
                         uint32_t stages, division *out)
{
    uint32_t first = (uint32_t)config->decoder_first_pipeline_num_layers;
    uint32_t last = (uint32_t)config->decoder_last_pipeline_num_layers;
    uint32_t others = stages - (first > 0) - (last > 0);
    if (first > layers || last > layers - first)
        return 0;
    uint32_t left = layers - first - last;
    uint32_t each = others ? left / others : 0;
    *out = (division){ first ? first : each, each, last ? last : each };
    return others ? each > 0 && left % others == 0 : left == 0;
}

static xray_status refuse_stages(const mg_config *config, uint32_t layers,
                                 xr_err *err)
{
    division d;
    uint32_t stages = (uint32_t)config->pipeline_model_parallel_size;
    uint32_t next = stages - 1;
    while (next > 1 && !divide_layers(config, layers, next, &d))
        next--;
    return xr_fail_key(
        err, XRAY_E_CONFIG, NULL, "pipeline_model_parallel_size",
        " = %" PRIu32 ": %" PRIu32
        " layers cannot be divided among so many stages, equally where "
        "decoder_first_pipeline_num_layers (%" PRIi64
        ") and decoder_last_pipeline_num_layers (%" PRIi64
        ") are 0; the next size that works is %" PRIu32,
        stages, layers, config->decoder_first_pipeline_num_layers,
        config->decoder_last_pipeline_num_layers, next);
}

/* The most chunks up to `most` into which every stage can be divided. */
static uint32_t find_chunks(const division *d, uint32_t most)
{
    uint32_t n = most;
    while (d->first % n || d->middle % n || d->last % n)
        n--;
    return n;
}

static xray_status refuse_chunks(const mg_config *config, const division *d,
                                 xr_err *err)
{
    uint32_t chunks = (uint32_t)config->virtual_pipeline_model_parallel_size;
    if (config->pipeline_model_parallel_size < 2)
        return xr_fail_key(err, XRAY_E_CONFIG, NULL,
                           "virtual_pipeline_model_parallel_size",
                           " = %" PRIu32 ": a stage has chunks where "
                           "pipeline_model_parallel_size is above 1",
                           chunks);
    return xr_fail_key(
        err, XRAY_E_CONFIG, NULL, "virtual_pipeline_model_parallel_size",
        " = %" PRIu32 ": the stages have %" PRIu32 ", %" PRIu32 " and %" PRIu32
        " layers, which cannot all be divided into so many "
        "chunks; the next number that works is %" PRIu32,
        chunks, d->first, d->middle, d->last, find_chunks(d, chunks));
}

xray_status mg_cut_stage(const mg_config *config, const xm_config *slice,
                         uint32_t stage, xr_err *err, xm_config *out)
{
    uint32_t stages = (uint32_t)config->pipeline_model_parallel_size;
    uint32_t chunks = (uint32_t)config->virtual_pipeline_model_parallel_size;
    division d = { 0 };
    if (stages < 2) {
        *out = *slice;
        return chunks > 1 ? refuse_chunks(config, &d, err) : XRAY_OK;
    }
    if (!divide_layers(config, slice->layers, stages, &d))
        return refuse_stages(config, slice->layers, err);
    if (find_chunks(&d, chunks) != chunks)
        return refuse_chunks(config, &d, err);
    uint32_t first = stage ? d.first + (stage - 1) * d.middle : 0;
    uint32_t layers = stage == 0            ? d.first
                      : stage + 1 == stages ? d.last
                                            : d.middle;
    const xm_stage_layers part = { first / chunks, layers / chunks,
                                   slice->layers / chunks, chunks };
    return xm_config_chunks(slice, &part, err, out);
}
