/* SPDX-License-Identifier: Apache-2.0
 *
 * Orders the rows of a data set: shuffled per epoch, in file order, or by
 * weighted shares of files.
 */
#include <stdlib.h>
#include <string.h>

#include <xray/numerics.h>

#include "core/base/str.h"
#include "core/data/data.h"

/* Distributes an epoch's positions to the parts by largest remainder, so that
 * they add up to `count`. */
static void distribute_positions(xr_sampler *s)
{
    double sum = 0;
    uint64_t given = 0;
    for (uint32_t i = 0; i < s->part_count; i++)
        sum += s->parts[i].weight;
    for (uint32_t i = 0; i < s->part_count; i++) {
        s->picks[i] = (uint64_t)((double)s->count * (s->parts[i].weight / sum));
        given += s->picks[i];
    }
    for (; given < s->count; given++) {
        uint32_t best = 0;
        double most = -1e300;
        for (uint32_t i = 0; i < s->part_count; i++) {
            double lack = (double)s->count * (s->parts[i].weight / sum) -
                          (double)s->picks[i];
            if (lack > most) {
                most = lack;
                best = i;
            }
        }
        s->picks[best]++;
    }
}

static xray_status allocate_orders(xr_sampler *s, xr_err *err)
{
    uint64_t largest = 1;
    for (uint32_t i = 0; i < s->part_count; i++)
        largest = s->parts[i].count > largest ? s->parts[i].count : largest;
    s->picks = xr_calloc(s->part_count, sizeof *s->picks);
    s->order = xr_calloc(s->count, sizeof *s->order);
    s->pass = xr_calloc(largest, sizeof *s->pass);
    s->taken = xr_calloc(s->part_count, sizeof *s->taken);
    s->part_rows = xr_calloc(s->shuffle ? 1 : s->count, sizeof *s->part_rows);
    if (s->picks && s->order && s->pass && s->taken && s->part_rows)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_NOMEM, "out of memory");
}

xray_status xr_sampler_init(xr_sampler *sampler, const xr_share *parts,
                            size_t part_count, uint64_t seed, int shuffle,
                            xr_err *err)
{
    *sampler =
        (xr_sampler){ .seed = seed,
                      .shuffle = shuffle != 0,
                      .part_count = (uint32_t)part_count,
                      .order_epoch = UINT64_MAX /* none is built yet */ };
    for (size_t i = 0; i < part_count; i++)
        sampler->count += parts[i].count;
    if (!sampler->count || sampler->count > UINT32_MAX)
        return xr_fail(err, XRAY_E_RANGE,
                       "a sampler takes 1 to 2^32 - 1 rows, not %llu",
                       (unsigned long long)sampler->count);
    sampler->parts = xr_calloc(part_count, sizeof *parts);
    if (!sampler->parts)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    memcpy(sampler->parts, parts, part_count * sizeof *parts);
    xray_status status = allocate_orders(sampler, err);
    if (status == XRAY_OK)
        distribute_positions(sampler);
    return status;
}

void xr_sampler_free(xr_sampler *sampler)
{
    free(sampler->parts);
    free(sampler->picks);
    free(sampler->order);
    free(sampler->pass);
    free(sampler->taken);
    free(sampler->part_rows);
    *sampler = (xr_sampler){ 0 };
}

/* Shuffles after Fisher and Yates; random draw i is keyed by (key, i). */
static void shuffle_with(uint64_t key, uint32_t *items, uint64_t count)
{
    for (uint64_t i = count - 1; i > 0; i--) {
        xray_philox_out draw = xray_philox(key, (uint32_t)i, 0, 0, 0);
        uint64_t wide = (uint64_t)draw.w[0] << 32 | draw.w[1];
        uint64_t j = wide % (i + 1);
        uint32_t kept = items[i];
        items[i] = items[j];
        items[j] = kept;
    }
}

/* Builds a part's rows in the order of its pass `pass`. A part that is visited
 * exactly once per epoch keeps its order, because the epoch's shuffle is
 * enough. */
static void build_pass(xr_sampler *s, uint32_t part, uint64_t pass)
{
    const xr_share *p = &s->parts[part];
    for (uint64_t i = 0; i < p->count; i++)
        s->pass[i] = (uint32_t)(p->first + i);
    if (!s->shuffle || s->picks[part] == p->count)
        return;
    uint64_t key = xray_mix64(xray_mix64(xray_mix64(1, s->seed), part), pass);
    shuffle_with(key, s->pass, p->count);
}

/* Writes a part's rows of the epoch to `out`. */
static void pick_part_rows(xr_sampler *s, uint32_t part, uint32_t *out)
{
    uint64_t count = s->parts[part].count;
    uint64_t first = s->epoch * s->picks[part];
    for (uint64_t i = 0; i < s->picks[part]; i++) {
        uint64_t at = (first + i) % count;
        if (i == 0 || at == 0)
            build_pass(s, part, (first + i) / count);
        out[i] = s->pass[at];
    }
}

/* Interleaves the parts in the ratio of their shares: each position goes to the
 * part that lags its share most. `from` holds the parts' rows, one part after
 * the other. */
static void interleave_parts(xr_sampler *s, const uint32_t *from)
{
    memset(s->taken, 0, s->part_count * sizeof *s->taken);
    for (uint64_t at = 0; at < s->count; at++) {
        uint32_t best = 0;
        uint64_t best_start = 0;
        uint64_t start = 0;
        double most = -1e300;
        for (uint32_t i = 0; i < s->part_count; i++) {
            double share = (double)s->picks[i] / (double)s->count;
            double lag = share * (double)(at + 1) - (double)s->taken[i];
            if (s->taken[i] < s->picks[i] && lag > most) {
                most = lag;
                best = i;
                best_start = start;
            }
            start += s->picks[i];
        }
        s->order[at] = from[best_start + s->taken[best]++];
    }
}

static void build_order(xr_sampler *s)
{
    int turns = !s->shuffle && s->part_count > 1;
    uint32_t *part_rows = turns ? s->part_rows : s->order;
    uint64_t at = 0;
    for (uint32_t i = 0; i < s->part_count; i++) {
        if (s->picks[i])
            pick_part_rows(s, i, part_rows + at);
        at += s->picks[i];
    }
    if (turns)
        interleave_parts(s, part_rows);
    if (s->shuffle)
        shuffle_with(xray_mix64(xray_mix64(0, s->seed), s->epoch), s->order,
                     s->count);
    s->order_epoch = s->epoch;
}

uint32_t xr_sampler_next(xr_sampler *sampler)
{
    if (sampler->position >= sampler->count) {
        sampler->epoch++;
        sampler->position = 0;
    }
    if (sampler->order_epoch != sampler->epoch)
        build_order(sampler);
    return sampler->order[sampler->position++];
}

uint64_t xr_sampler_steps(const xr_sampler *sampler, uint64_t batch)
{
    uint64_t steps = batch ? sampler->count / batch : 0;
    return steps ? steps : 1;
}
