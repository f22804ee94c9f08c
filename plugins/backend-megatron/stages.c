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

xray_status mg_cut_stage(const mg_config *config, const xm_config *slice,
                         uint32_t stage, xr_err *err, xm_config *out)
{
    uint32_t stages = (uint32_t)config->pipeline_model_parallel_size;
    division d;
    if (stages < 2) {
        *out = *slice;
        return XRAY_OK;
    }
    if (!divide_layers(config, slice->layers, stages, &d))
        return refuse_stages(config, slice->layers, err);
    uint32_t first = stage ? d.first + (stage - 1) * d.middle : 0;
    uint32_t layers = stage == 0            ? d.first
                      : stage + 1 == stages ? d.last
                                            : d.middle;
    return xm_config_stage(slice, first, layers, err, out);
}
