/* SPDX-License-Identifier: Apache-2.0
 *
 * The axes of a replica. A plan points at them, so every combination of sizes
 * is in a table of constants.
 */
#include "plugins/backend-megatron/megatron.h"

#define LINE(kv, tp, cp, pp)                                             \
    {                                                                    \
        { MG_AXIS_KV, kv, 0 }, { XRAY_AXIS_TENSOR, tp, 0 },              \
            { XRAY_AXIS_CONTEXT, cp, 0 }, { XRAY_AXIS_PIPELINE, pp, 0 }, \
    }
#define STAGES(kv, tp, cp)                                                 \
    {                                                                      \
        LINE(kv, tp, cp, 1), LINE(kv, tp, cp, 2), LINE(kv, tp, cp, 3),     \
            LINE(kv, tp, cp, 4), LINE(kv, tp, cp, 5), LINE(kv, tp, cp, 6), \
            LINE(kv, tp, cp, 7), LINE(kv, tp, cp, 8),                      \
    }
#define CONTEXTS(kv, tp)                                         \
    {                                                            \
        STAGES(kv, tp, 1), STAGES(kv, tp, 2), STAGES(kv, tp, 4), \
            STAGES(kv, tp, 8),                                   \
    }

static uint32_t log_of(uint32_t power)
{
    uint32_t log = 0;
    while (power >> log > 1)
        log++;
    return log;
}

uint32_t mg_width(const mg_sizes *sizes)
{
    return sizes->tensor * sizes->context * sizes->stages;
}

mg_place mg_place_of(const mg_sizes *sizes, uint32_t rank)
{
    uint32_t slices = sizes->tensor * sizes->context;
    return (mg_place){ .tensor = rank % sizes->tensor,
                       .context = rank / sizes->tensor % sizes->context,
                       .stage = rank / slices % sizes->stages,
                       .replica = rank / slices / sizes->stages };
}

void mg_plan_axes(const mg_sizes *sizes, uint32_t kv, xray_plan *out)
{
    static const xray_axis axes[][4][MG_STAGES_MOST][4] = {
        CONTEXTS(1, 1), CONTEXTS(1, 2), CONTEXTS(1, 4), CONTEXTS(1, 8),
        CONTEXTS(2, 1), CONTEXTS(2, 2), CONTEXTS(2, 4), CONTEXTS(4, 1),
        CONTEXTS(4, 2), CONTEXTS(8, 1),
    };
    uint32_t i = 0;
    while (axes[i][0][0][0].size != kv ||
           axes[i][0][0][1].size != sizes->tensor / kv)
        i++;
    const xray_axis *line = axes[i][log_of(sizes->context)][sizes->stages - 1];
    uint32_t count = 4;
    while (count > 2 && line[count - 1].size == 1)
        count--;
    out->axes = kv > 1 ? line : line + 1;
    out->axis_count = kv > 1 ? count : count - 1;
    out->axis_stride = sizeof(xray_axis);
}
