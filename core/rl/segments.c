/* SPDX-License-Identifier: Apache-2.0
 *
 * Deals the rows of a mini-batch to segments, and adds up the metrics of the
 * loss by segments.
 */
#include "core/rl/segments.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"

xray_status xr_segments_init(xr_segments *s, uint64_t count, uint64_t rows,
                             uint64_t names, xr_err *err)
{
    *s = (xr_segments){ .count = (uint32_t)count };
    if (!count)
        return XRAY_OK;
    size_t sums = (size_t)(count * names) + 1;
    s->cost = xr_calloc((size_t)rows + 1, sizeof(*s->cost));
    s->part = xr_calloc((size_t)rows + 1, sizeof(*s->part));
    s->unit = xr_calloc((size_t)rows + 1, sizeof(*s->unit));
    s->order = xr_calloc((size_t)rows + 1, sizeof(*s->order));
    s->of = xr_calloc((size_t)rows + 1, sizeof(*s->of));
    s->sums = xr_calloc(sums, sizeof(*s->sums));
    s->weights = xr_calloc(sums, sizeof(*s->weights));
    if (!s->cost || !s->part || !s->unit || !s->order || !s->of || !s->sums ||
        !s->weights)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for %llu segments",
                       (unsigned long long)count);
    return xr_balance_init(&s->balance, rows, count, err);
}

void xr_segments_free(xr_segments *s)
{
    xr_balance_free(&s->balance);
    free(s->cost);
    free(s->part);
    free(s->unit);
    free(s->order);
    free(s->of);
    free(s->sums);
    free(s->weights);
    *s = (xr_segments){ .count = 0 };
}

/* Numbers the units of the rows, whose cost is their tokens. Returns how many
 * there are. */
static uint32_t measure_units(xr_segments *s, const xr_rows *rows,
                              const uint32_t *order, uint32_t count, int apart)
{
    uint32_t units = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row = order[i];
        if (i == 0 || apart || rows->group[row] != rows->group[order[i - 1]])
            s->cost[units++] = 0;
        s->unit[i] = units - 1;
        s->cost[units - 1] += rows->row_start[row + 1] - rows->row_start[row];
    }
    return units;
}

void xr_segments_order(xr_segments *s, const xr_rows *rows,
                       const uint32_t range[2], int apart, uint32_t *order)
{
    uint32_t *to = order + range[0];
    uint32_t *of = s->of + range[0];
    uint32_t count = range[1];
    uint32_t at = 0;
    memcpy(s->order, to, count * sizeof(*to));
    uint32_t units = measure_units(s, rows, s->order, count, apart);
    xr_balance_deal(&s->balance, s->cost, units, s->count, s->part);
    for (uint32_t k = 0; k < s->count; k++)
        for (uint32_t i = 0; i < count; i++)
            if (s->part[s->unit[i]] == k) {
                of[at] = k;
                to[at++] = s->order[i];
            }
}

xray_status xr_segments_gradients(xr_segments *s, xr_roles *roles,
                                  uint32_t role, const xr_views *views,
                                  const xr_loss_spec *spec, xr_err *fault,
                                  xr_err *err)
{
    xr_loss_spec own = *spec;
    uint64_t sums = s->count * spec->names;
    if (!s->count)
        return xr_role_gradients(roles, role, views, spec, fault, err);
    own.segments = s->count;
    own.sums = s->sums;
    own.weights = spec->weights ? s->weights : NULL;
    memset(s->sums, 0, sums * sizeof(*s->sums));
    memset(s->weights, 0, sums * sizeof(*s->weights));
    xray_status status =
        xr_role_gradients(roles, role, views, &own, fault, err);
    for (uint64_t i = 0; i < sums; i++) {
        spec->sums[i % spec->names] += s->sums[i];
        if (spec->weights)
            spec->weights[i % spec->names] += s->weights[i];
    }
    return status;
}
