/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels over a row of logits: log-sum-exp, its gradient, and the sampling of
 * a token.
 */
#ifndef CPU_K_LM_HEAD_H
#define CPU_K_LM_HEAD_H

#include <string.h>

#include <xray/numerics.h>

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

/* z[i..], with -inf in the lanes past the end. */
VFN v16 logits_at(const float *z, size_t i, size_t lanes)
{
    if (lanes == 16)
        return v16_load(z + i);
    return v16_pick(m16_range(0, lanes), v16_loadn(z + i, lanes),
                    v16_set(-VEC_INF));
}

/* S and M of n logits with the maximum m. */
VFN void sum_logits(const float *z, size_t n, v16 m, float sums[2])
{
    v16 zero = v16_set(0.0f);
    v16 sum = zero;
    v16 moment = zero;
    LANES(i, n, lanes)
    {
        v16 d = v16_sub(logits_at(z, i, lanes), m);
        v16 e = v16_exp_of(m16_range(0, lanes), d);
        sum = v16_add(sum, e);
        moment = v16_fma(e, v16_pick(v16_lt(zero, e), d, zero), moment);
    }
    sums[0] = v16_sum(sum);
    sums[1] = v16_sum(moment);
}

/* Level i of the tree has the sums of 2^i segments, to which a later segment is
 * joined. After the last segment all that are left are joined. */
static void lse_row(const float *z, size_t n, size_t segment, const float *top,
                    cpu_lse *out)
{
    float level[4][2];
    float sums[2] = { 0 };
    v16 most = v16_set(-VEC_INF);
    LANES(i, top ? 0 : n, lanes)
    most = v16_max(logits_at(z, i, lanes), most);
    out->max = top ? *top : v16_hmax(most);
    segment = segment ? segment : n;
    for (size_t first = 0, s = 0; first < n; first += segment, s++) {
        int last = n - first <= segment;
        sum_logits(z + first, last ? n - first : segment, v16_set(out->max),
                   sums);
        size_t i = 0;
        for (; s >> i && (last || (s >> i & 1)); i++)
            for (int k = 0; (s >> i & 1) && k < 2; k++)
                sums[k] = level[i][k] + sums[k];
        memcpy(level[last ? 0 : i], sums, sizeof(sums));
    }
    out->sum = sums[0];
    out->moment = sums[1];
}

/* dz = dlogp 1[target] - p (dlogp + dH (log p + H)), taken back through
 * temperature and softcap to the logit. */
static void lm_head_dz(float *z, size_t n, const cpu_dz *d)
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

/* Sums e where z >= floor; entry i goes to partial sum i mod 16. */
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

VFN void update_best(best_of *b, v16 value, size_t first)
{
    m16 more = v16_lt(b->value, value);
    b->value = v16_pick(more, value, b->value);
    b->index = i16_pick(more, i16_iota((int32_t)first), b->index);
}

/* The index of the largest value; the lowest index where several are equal. */
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
    update_best(&b, logits_at(z, i, lanes), i);
    size_t at = best_index(&b);
    return at < n ? at : 0;
}

/* Turns words of 16 counters into numbers in (0, 1), as xray_unit does. */
VFN v16 units_of(i16 words)
{
    v16 u = v16_add(i16_convert(i16_srl(words, 9)), v16_set(0.5f));
    return v16_mul(u, v16_set(0x1p-23f));
}

/* Ten rounds of Philox on eight counters. A counter occupies the first lane of
 * each pair; the second lane may hold anything. */
VFN void philox_rounds(const uint32_t keys[20], i16 c[4])
{
    i16 m0 = i16_set((int32_t)0xD2511F53u);
    i16 m1 = i16_set((int32_t)0xCD9E8D57u);
    for (int round = 0; round < 10; round++) {
        i16 a = i16_mul_first(c[0], m0);
        i16 b = i16_mul_first(c[2], m1);
        i16 mix0 = i16_xor(c[1], i16_set((int32_t)keys[2 * round]));
        i16 mix1 = i16_xor(c[3], i16_set((int32_t)keys[2 * round + 1]));
        c[0] = i16_xor(i16_second(b), mix0);
        c[2] = i16_xor(i16_second(a), mix1);
        c[1] = b;
        c[3] = a;
    }
}

/* The uniform numbers u of tokens first .. first + 63, where first is a
 * multiple of 64. Each counter yields four tokens. */
VFN void philox_units(const xray_draw *d, const uint32_t keys[20], size_t first,
                      v16 u[4])
{
    i16 counter = i16_iota((int32_t)(uint32_t)(first / 4));
    i16 position = i16_set((int32_t)d->position);
    i16 sample = i16_set((int32_t)d->sample);
    i16 zero = i16_set(0);
    i16 c[4] = { counter, position, sample, zero };
    i16 e[4] = { i16_second(counter), position, sample, zero };
    philox_rounds(keys, c);
    philox_rounds(keys, e);
    i16 even[2];
    i16 odd[2];
    i16 words[2];
    i16_zip(i16_firsts(c[0], e[0]), i16_firsts(c[2], e[2]), even);
    i16_zip(i16_firsts(c[1], e[1]), i16_firsts(c[3], e[3]), odd);
    for (int half = 0; half < 2; half++) {
        i16_zip(even[half], odd[half], words);
        u[2 * half] = units_of(words[0]);
        u[2 * half + 1] = units_of(words[1]);
    }
}

/* log(-log u). */
VFN v16 log_log(v16 u)
{
    return v16_log(v16_sub(v16_set(-0.0f), v16_log(u)));
}

#define DRAW_LINES 16 /* lines of 16 tokens in a group */

/* Line i of the logits from z + first, with -inf past n and below the floor. */
VFN v16 draw_logits(const float *z, size_t n, size_t at, v16 low)
{
    v16 none = v16_set(-VEC_INF);
    size_t left = at < n ? n - at : 0;
    v16 x = left ? logits_at(z, at, left < 16 ? left : 16) : none;
    return v16_pick(v16_lt(x, low), none, x);
}

/* More than twice the error of log_log. */
#define LOG_LOG_SLACK 1e-5f

/* argmax over z >= floor of z - log(-log u), the Gumbel-max sample. In most
 * groups even the largest z with the largest u, lane by lane, cannot win, so
 * nothing more is computed for them. */
static size_t gumbel_row(const float *z, size_t n, float floor,
                         const xray_draw *draw)
{
    best_of b = { v16_set(-VEC_INF), i16_iota(0) };
    v16 low = v16_set(floor);
    v16 best = b.value;
    uint32_t keys[20];
    for (uint32_t i = 0; i < 10; i++) {
        keys[2 * i] = (uint32_t)draw->key + i * 0x9E3779B9u;
        keys[2 * i + 1] = (uint32_t)(draw->key >> 32) + i * 0xBB67AE85u;
    }
    for (size_t first = 0; first < n; first += DRAW_LINES * 16) {
        v16 u[DRAW_LINES];
        v16 x[DRAW_LINES];
        v16 most = v16_set(-VEC_INF);
        v16 top = v16_set(0.0f);
        size_t lines = (n - first + 63) / 64 * 4;
        lines = lines < DRAW_LINES ? lines : DRAW_LINES;
        for (size_t i = 0; i < lines; i++) {
            if (i % 4 == 0)
                philox_units(draw, keys, first + i * 16, u + i);
            x[i] = draw_logits(z, n, first + i * 16, low);
            most = v16_max(x[i], most);
            top = v16_max(u[i], top);
        }
        v16 least = v16_sub(log_log(top), v16_set(LOG_LOG_SLACK));
        if (first > 0 && m16_all(v16_lt(v16_sub(most, least), best)))
            continue;
        for (size_t i = 0; i < lines; i++)
            update_best(&b, v16_sub(x[i], log_log(u[i])), first + i * 16);
        best = v16_set(v16_hmax(b.value));
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
