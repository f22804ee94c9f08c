/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "core/base/philox.h"
#include "core/base/str.h"
#include "core/data/data.h"

xray_status xr_sampler_init(xr_sampler *sampler, uint64_t count, uint64_t seed,
                            int shuffle, xr_err *err)
{
    *sampler = (xr_sampler){ 0 };
    if (!count || count > UINT32_MAX)
        return xr_fail(err, XRAY_E_RANGE,
                       "a sampler takes 1 to 2^32 - 1 rows, not %llu",
                       (unsigned long long)count);
    uint32_t *order = NULL;
    if (shuffle) {
        order = xr_calloc(count, sizeof *order);
        if (!order)
            return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    }
    sampler->seed = seed;
    sampler->count = count;
    sampler->shuffle = shuffle != 0;
    sampler->order = order;
    sampler->order_epoch = UINT64_MAX; /* none is built yet */
    return XRAY_OK;
}

void xr_sampler_free(xr_sampler *sampler)
{
    free(sampler->order);
    *sampler = (xr_sampler){ 0 };
}

/* Fisher and Yates; draw i of an epoch is keyed by (seed, epoch, i). */
static void build_order(xr_sampler *s)
{
    uint64_t key = xr_mix64(xr_mix64(0, s->seed), s->epoch);
    for (uint64_t i = 0; i < s->count; i++)
        s->order[i] = (uint32_t)i;
    for (uint64_t i = s->count - 1; i > 0; i--) {
        xr_philox_out draw = xr_philox(key, (uint32_t)i, 0, 0, 0);
        uint64_t wide = (uint64_t)draw.w[0] << 32 | draw.w[1];
        uint64_t j = wide % (i + 1);
        uint32_t kept = s->order[i];
        s->order[i] = s->order[j];
        s->order[j] = kept;
    }
    s->order_epoch = s->epoch;
}

uint32_t xr_sampler_next(xr_sampler *sampler)
{
    if (sampler->position >= sampler->count) {
        sampler->epoch++;
        sampler->position = 0;
    }
    uint64_t at = sampler->position++;
    if (!sampler->shuffle)
        return (uint32_t)at;
    if (sampler->order_epoch != sampler->epoch)
        build_order(sampler);
    return sampler->order[at];
}

uint64_t xr_sampler_steps(const xr_sampler *sampler, uint64_t batch)
{
    uint64_t steps = batch ? sampler->count / batch : 0;
    return steps ? steps : 1;
}
