/* SPDX-License-Identifier: Apache-2.0
 *
 * A row of logits: log-sum-exp, its gradient, and the draw of a token.
 */
#ifndef CPU_K_HEAD_H
#define CPU_K_HEAD_H

#include "core/base/philox.h"
#include "plugins/device-cpu/k_rows.h"

static void softcap_row(float *z, float cap, size_t n)
{
    v16 c = v16_set(cap);
    LANES(i, n, lanes)
    {
        v16 u = v16_div(v16_loadn(z + i, lanes), c);
        v16_storen(z + i, v16_mul(c, v16_tanh(u)), lanes);
    }
}

/* z[i..] with -inf past the end. */
VFN v16 logits_at(const float *z, size_t i, size_t lanes)
{
    if (lanes == 16)
        return v16_load(z + i);
    return v16_pick(m16_range(0, lanes), v16_loadn(z + i, lanes),
                    v16_set(-VEC_INF));
}

static void lse_row(const float *z, size_t n, cpu_lse *out)
{
    v16 top = v16_set(-VEC_INF);
    LANES(i, n, lanes)
    top = v16_max(logits_at(z, i, lanes), top);
    out->max = v16_hmax(top);
    v16 zero = v16_set(0.0f);
    v16 m = v16_set(out->max);
    v16 sum = zero;
    v16 moment = zero;
    LANES(i, n, lanes)
    {
        v16 d = v16_sub(logits_at(z, i, lanes), m);
        v16 e = v16_exp_of(m16_range(0, lanes), d);
        sum = v16_add(sum, e);
        moment = v16_fma(e, v16_pick(v16_lt(zero, e), d, zero), moment);
    }
    out->sum = v16_sum(sum);
    out->moment = v16_sum(moment);
}

/* dz = dlogp 1[target] - p (dlogp + dH (log p + H)), through temperature and
 * softcap back to the logit. */
static void head_dz(float *z, size_t n, const cpu_dz *d)
{
    v16 zero = v16_set(0.0f);
    v16 cap = v16_set(d->softcap);
    v16 temperature = v16_set(d->temperature);
    v16 hit = v16_set(d->dlogp);
    LANES(i, n, lanes)
    {
        v16 c = v16_loadn(z + i, lanes);
        v16 u = zero;
        if (d->softcap != 0.0f) {
            c = v16_mul(cap, v16_tanh(v16_div(c, cap)));
            u = v16_div(c, cap);
        }
        if (d->temperature != 1.0f)
            c = v16_div(c, temperature);
        v16 logp = v16_sub(c, v16_set(d->lse));
        v16 p = v16_exp(logp);
        v16 seen = v16_pick(v16_lt(zero, p), logp, zero);
        v16 w = v16_fma(v16_set(d->dentropy),
                        v16_add(seen, v16_set(d->entropy)), hit);
        int64_t at = d->target - (int64_t)i;
        v16 own = zero;
        if (at >= 0 && at < 16)
            own = v16_pick(m16_range((size_t)at, (size_t)at + 1), hit, zero);
        v16 dz = v16_sub(own, v16_mul(p, w));
        if (d->temperature != 1.0f)
            dz = v16_div(dz, temperature);
        if (d->softcap != 0.0f)
            dz = v16_mul(dz, v16_fma(v16_sub(zero, u), u, v16_set(1.0f)));
        v16_storen(z + i, dz, lanes);
    }
}

static void exp_row(float *y, const float *z, float max, size_t n)
{
    v16 m = v16_set(max);
    LANES(i, n, lanes)
    v16_storen(y + i, v16_exp(v16_sub(v16_loadn(z + i, lanes), m)), lanes);
}

/* Sum over z >= floor of e, entry i into partial i mod 16. */
static float sum_from(const float *e, const float *z, float floor, size_t n)
{
    v16 zero = v16_set(0.0f);
    v16 low = v16_set(floor);
    v16 sum = zero;
    LANES(i, n, lanes)
    {
        m16 out = v16_lt(logits_at(z, i, lanes), low);
        sum = v16_add(sum, v16_pick(out, zero, v16_loadn(e + i, lanes)));
    }
    return v16_sum(sum);
}

/* ---- argmax ------------------------------------------------------------- */

typedef struct best_of {
    v16 value;
    i16 index;
} best_of;

VFN void best_take(best_of *b, v16 value, size_t first)
{
    m16 more = v16_lt(b->value, value);
    b->value = v16_pick(more, value, b->value);
    b->index = i16_pick(more, i16_iota((int32_t)first), b->index);
}

/* The largest; the lowest index where several are. */
VFN size_t best_index(const best_of *b)
{
    float v[16];
    int32_t at[16];
    v16_store(v, b->value);
    i16_store(at, b->index);
    int best = 0;
    for (int l = 1; l < 16; l++)
        if (v[l] > v[best] || (v[l] == v[best] && at[l] < at[best]))
            best = l;
    return (size_t)at[best];
}

static size_t argmax_row(const float *z, size_t n)
{
    best_of b = { v16_set(-VEC_INF), i16_iota(0) };
    LANES(i, n, lanes)
    best_take(&b, logits_at(z, i, lanes), i);
    size_t at = best_index(&b);
    return at < n ? at : 0;
}

#define PHILOX_LANES 16 /* counters at once: 64 tokens */

/* u of tokens first .. first + 63; first is a multiple of 64. */
static void philox_units(const xray_draw *d, size_t first, float *u)
{
    uint32_t c[4][PHILOX_LANES];
    uint32_t k0 = (uint32_t)d->key;
    uint32_t k1 = (uint32_t)(d->key >> 32);
    for (uint32_t i = 0; i < PHILOX_LANES; i++) {
        c[0][i] = (uint32_t)(first / 4) + i;
        c[1][i] = d->position;
        c[2][i] = d->sample;
        c[3][i] = 0;
    }
    for (int round = 0; round < 10; round++) {
        for (size_t i = 0; i < PHILOX_LANES; i++) {
            uint64_t a = (uint64_t)0xD2511F53u * c[0][i];
            uint64_t b = (uint64_t)0xCD9E8D57u * c[2][i];
            c[0][i] = (uint32_t)(b >> 32) ^ c[1][i] ^ k0;
            c[2][i] = (uint32_t)(a >> 32) ^ c[3][i] ^ k1;
            c[1][i] = (uint32_t)b;
            c[3][i] = (uint32_t)a;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (size_t i = 0; i < PHILOX_LANES; i++)
        for (size_t w = 0; w < 4; w++)
            u[4 * i + w] = xr_unit(c[w][i]);
}

/* argmax over z >= floor of z - log(-log u). */
static size_t gumbel_row(const float *z, size_t n, float floor,
                         const xray_draw *draw)
{
    best_of b = { v16_set(-VEC_INF), i16_iota(0) };
    v16 low = v16_set(floor);
    for (size_t first = 0; first < n; first += 4 * PHILOX_LANES) {
        float u[4 * PHILOX_LANES];
        philox_units(draw, first, u);
        for (size_t i = 0; i < 4 * PHILOX_LANES && first + i < n; i += 16) {
            size_t left = n - first - i;
            v16 x = logits_at(z, first + i, left < 16 ? left : 16);
            v16 g = v16_log(v16_load(u + i));
            g = v16_log(v16_sub(v16_set(-0.0f), g));
            v16 key = v16_sub(x, g);
            key = v16_pick(v16_lt(x, low), v16_set(-VEC_INF), key);
            best_take(&b, key, first + i);
        }
    }
    size_t at = best_index(&b);
    return at < n ? at : 0;
}

/* ---- for tests ---------------------------------------------------------- */

static void map_row(uint32_t which, float *y, const float *x, size_t n)
{
    LANES(i, n, lanes)
    {
        v16 a = v16_loadn(x + i, lanes);
        a = which == CPU_MAP_EXP   ? v16_exp(a)
            : which == CPU_MAP_LOG ? v16_log(a)
                                   : v16_tanh(a);
        v16_storen(y + i, a, lanes);
    }
}

static float log_one(float x)
{
    return f_log(x);
}

#endif
