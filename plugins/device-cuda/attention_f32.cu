/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention in float32, forward and backward, under the contract xray.fp32/2.
 *
 * A warp computes one query of one head or, for dk and dv, one key. Its lanes
 * are spread over keys for the scores, and over dimensions for the chains along
 * keys. The kernels are bound by fused multiply-adds and by the shared memory
 * that feeds them with one load each: this precision is for checks and small
 * models.
 */
#include "plugins/device-cuda/attention.h"

#define WARPS ATTEND_F32_WARPS
#define KEYS 32u /* keys per tile in shared memory */
#define LANES_DIM (ATTEND_DIM_MOST / 32u)

/* Applies the scale, then the softcap. */
CU_FN float scaled_score(const attend_args *a, float chain)
{
    float s = a->scale * chain;
    if (a->softcap == 0.0f)
        return s;
    return a->softcap * cu_tanh(s / a->softcap);
}

/* The pitch of rows of `dim` floats in shared memory. It is odd, so that
 * reading a column has no bank conflicts. */
CU_FN uint32_t odd_pitch(uint32_t dim)
{
    return dim | 1u;
}

/* Loads keys base <= j <= last that some query of the tile sees, of k or v;
 * other rows of `to` keep their content. */
template <int FORM, typename KV>
CU_FN void load_keys(const attend_args *a, const attend_tile *w,
                     const void *from, uint64_t stride, uint32_t base,
                     uint32_t last, float *to)
{
    uint32_t warp = threadIdx.x / 32;
    uint32_t lane = threadIdx.x % 32;
    uint32_t first = attend_first_key(w->pos, a->window);
    const KV *data = static_cast<const KV *>(from);
    for (uint32_t r = warp; r < KEYS && base + r <= last; r += WARPS) {
        if (base + r < first)
            continue;
        const KV *key = data + attend_key<FORM>(a, w, base + r, stride);
        for (uint32_t d = lane; d < a->dim; d += 32)
            to[r * odd_pitch(a->dim) + d] = cu_load1(key + d);
    }
}

CU_FN float dot_chain(const float *a, const float *b, uint32_t dim)
{
    float c = 0.0f;
    for (uint32_t d = 0; d < dim; d++)
        c = fmaf(a[d], b[d], c);
    return c;
}

/* The query of a warp. */
typedef struct warp_query {
    uint32_t active;
    uint32_t head;
    uint32_t pos;
    uint32_t from; /* first visible key */
    uint64_t token;
} warp_query;

CU_FN warp_query find_warp_query(const attend_args *a, const attend_tile *w)
{
    uint32_t warp = threadIdx.x / 32;
    warp_query q;
    q.active = warp < w->count * w->heads;
    uint32_t r = q.active ? warp : 0;
    q.head = w->head + r % w->heads;
    q.pos = w->pos + r / w->heads;
    q.token = w->token + r / w->heads;
    q.from = attend_first_key(q.pos, a->window);
    return q;
}

/* The first element of the warp's query in q, or of its result in o. */
template <typename T>
CU_FN T *find_head(const attend_args *a, T *data, uint64_t stride,
                   const warp_query *q)
{
    return data + q->token * stride + (uint64_t)q->head * a->dim;
}

/* acc[d] continues the chain over rows lo <= i < hi of m[i] rows[i, d]. */
CU_FN void chain_rows(float acc[LANES_DIM], const float *m, const float *rows,
                      uint32_t dim, uint32_t lo, uint32_t hi)
{
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t i = lo; i < hi; i++) {
        float x = m[i];
#pragma unroll
        for (uint32_t n = 0; n < LANES_DIM; n++)
            if (lane + 32 * n < dim)
                acc[n] =
                    fmaf(x, rows[i * odd_pitch(dim) + lane + 32 * n], acc[n]);
    }
}

/* Two passes over the visible keys: the first finds the maximum, the second
 * computes exp, the sum and the values. Scores are computed again in the second
 * pass, so none are stored. */
template <int FORM, typename T, typename KV>
__global__ void __launch_bounds__(WARPS * 32) attend_f32(const attend_args a)
{
    CU_DYNAMIC(float, shared);
    attend_tile w = attend_find<FORM>(&a, blockIdx.x, blockIdx.y);
    if (w.count == 0)
        return;
    uint32_t warp = threadIdx.x / 32;
    uint32_t lane = threadIdx.x % 32;
    uint32_t row = odd_pitch(a.dim);
    float *keys = shared;
    float *values = keys + KEYS * row;
    float *query = values + KEYS * row + warp * a.dim;
    float *p = values + KEYS * row + WARPS * a.dim + warp * KEYS;
    warp_query q = find_warp_query(&a, &w);
    const T *from = find_head(&a, (const T *)a.q, a.q_stride, &q);
    for (uint32_t d = lane; d < a.dim; d += 32)
        query[d] = cu_load1(from + d);
    uint32_t last = w.pos + w.count - 1;
    uint32_t base0 = attend_first_key(w.pos, a.window) / KEYS * KEYS;
    float max = cu_float(0xff800000u);
    for (uint32_t base = base0; base <= last; base += KEYS) {
        __syncthreads();
        load_keys<FORM, KV>(&a, &w, a.k, a.k_stride, base, last, keys);
        __syncthreads();
        uint32_t j = base + lane;
        if (j >= q.from && j <= q.pos)
            max = fmaxf(
                scaled_score(&a, dot_chain(query, keys + lane * row, a.dim)),
                max);
    }
    for (int by = 16; by > 0; by /= 2)
        max = fmaxf(max, __shfl_xor_sync(CU_FULL, max, by));
    float sum = 0.0f; /* lane l: partial sum l mod 16 */
    float acc[LANES_DIM] = {};
    for (uint32_t base = base0; base <= last; base += KEYS) {
        __syncthreads();
        load_keys<FORM, KV>(&a, &w, a.k, a.k_stride, base, last, keys);
        load_keys<FORM, KV>(&a, &w, a.v, a.v_stride, base, last, values);
        __syncthreads();
        uint32_t j = base + lane;
        float e = 0.0f;
        if (j >= q.from && j <= q.pos)
            e = cu_exp(
                scaled_score(&a, dot_chain(query, keys + lane * row, a.dim)) -
                max);
        p[lane] = e;
        __syncwarp();
        sum = sum + p[lane % 16];
        sum = sum + p[lane % 16 + 16];
        uint32_t lo = q.from > base ? q.from - base : 0;
        uint32_t hi = q.pos < base ? 0 : min(q.pos - base + 1, KEYS);
        chain_rows(acc, p, values, a.dim, lo, hi);
    }
    sum = cu_warp_tree16(sum);
    if (!q.active)
        return;
    T *o = find_head(&a, (T *)a.o, a.o_stride, &q);
#pragma unroll
    for (uint32_t n = 0; n < LANES_DIM; n++)
        if (lane + 32 * n < a.dim)
            cu_put1(o + lane + 32 * n, acc[n] / sum);
    if (a.lse && lane == 0)
        a.lse[q.token * a.heads + q.head] = max + cu_log(sum);
}

static uint32_t count_shared_bytes(const attend_args *a, uint32_t rows)
{
    uint32_t row = a->dim | 1u;
    return (2 * KEYS * row + rows * WARPS * a->dim + 2 * WARPS * KEYS) * 4;
}

template <typename T, typename KV>
static xray_status launch_forward(cuda_device *d, cudaStream_t stream,
                                  const char *where, attend_args *a)
{
    attend_cut(a, WARPS);
    uint32_t bytes = count_shared_bytes(a, 1);
    dim3 grid(a->row_start ? attend_tiles(a, a->queries, a->tile)
                           : (uint32_t)a->tokens,
              a->kv_heads * a->parts);
    if (!a->row_start)
        ATTEND_START(d, where, (attend_f32<ATTEND_CACHE, T, KV>), grid,
                     WARPS * 32, bytes, stream, *a);
    else if (attend_is_joined(a))
        ATTEND_START(d, where, (attend_f32<ATTEND_JOINED, T, T>), grid,
                     WARPS * 32, bytes, stream, *a);
    else
        ATTEND_START(d, where, (attend_f32<ATTEND_ROWS, T, T>), grid,
                     WARPS * 32, bytes, stream, *a);
    return cuda_launched(d, where);
}

xray_status attend_forward_f32(cuda_device *d, cudaStream_t stream,
                               const char *where, attend_args *a)
{
    if (a->dtype != XRAY_BF16)
        return launch_forward<float, float>(d, stream, where, a);
    if (a->kv_dtype != XRAY_BF16)
        return launch_forward<uint16_t, float>(d, stream, where, a);
    return launch_forward<uint16_t, uint16_t>(d, stream, where, a);
}

/* ---- gradients ----------------------------------------------------------- */

/* Computes p and ds of a visible pair from its two chains. */
CU_FN void pair_grad(const attend_args *a, float chain, float dp, float lse,
                     float delta, float out[2])
{
    float s = scaled_score(a, chain);
    float e = cu_exp(s - lse);
    float x = e * (dp - delta);
    if (a->softcap != 0.0f) {
        float u = s / a->softcap;
        x = x * fmaf(-u, u, 1.0f);
    }
    out[0] = e;
    out[1] = x;
}

/* dq of a query, in one pass over the visible keys. */
template <int FORM, typename T>
__global__ void __launch_bounds__(WARPS * 32) attend_f32_dq(const attend_args a)
{
    CU_DYNAMIC(float, shared);
    attend_tile w = attend_find<FORM>(&a, blockIdx.x, blockIdx.y);
    if (w.count == 0)
        return;
    uint32_t warp = threadIdx.x / 32;
    uint32_t lane = threadIdx.x % 32;
    uint32_t row = odd_pitch(a.dim);
    float *keys = shared;
    float *values = keys + KEYS * row;
    float *query = values + KEYS * row + warp * a.dim;
    float *grad = query + WARPS * a.dim;
    float *ds = values + KEYS * row + 2 * WARPS * a.dim + warp * KEYS;
    warp_query q = find_warp_query(&a, &w);
    const T *from = find_head(&a, (const T *)a.q, a.q_stride, &q);
    const float *d_o = find_head(&a, a.d_o, a.o_stride, &q);
    for (uint32_t d = lane; d < a.dim; d += 32) {
        query[d] = cu_load1(from + d);
        grad[d] = d_o[d];
    }
    float lse = a.lse[q.token * a.heads + q.head];
    float delta = a.delta[q.token * a.heads + q.head];
    uint32_t last = w.pos + w.count - 1;
    float acc[LANES_DIM] = {};
    for (uint32_t base = attend_first_key(w.pos, a.window) / KEYS * KEYS;
         base <= last; base += KEYS) {
        __syncthreads();
        load_keys<FORM, T>(&a, &w, a.k, a.k_stride, base, last, keys);
        load_keys<FORM, T>(&a, &w, a.v, a.v_stride, base, last, values);
        __syncthreads();
        uint32_t j = base + lane;
        float x[2] = { 0.0f, 0.0f };
        if (j >= q.from && j <= q.pos)
            pair_grad(&a, dot_chain(query, keys + lane * row, a.dim),
                      dot_chain(grad, values + lane * row, a.dim), lse, delta,
                      x);
        ds[lane] = x[1];
        __syncwarp();
        uint32_t lo = q.from > base ? q.from - base : 0;
        uint32_t hi = q.pos < base ? 0 : min(q.pos - base + 1, KEYS);
        chain_rows(acc, ds, keys, a.dim, lo, hi);
    }
    if (!q.active)
        return;
    float *dq = find_head(&a, a.dq, a.dq_stride, &q);
#pragma unroll
    for (uint32_t n = 0; n < LANES_DIM; n++)
        if (lane + 32 * n < a.dim)
            dq[lane + 32 * n] = a.scale * acc[n];
}

/* Loads the queries of a row and head that stand `base` and more tokens after
 * the row's start, q and d_o side by side. The first stands at `lead`. */
template <typename T>
CU_FN void load_queries(const attend_args *a, const attend_row *row,
                        uint32_t head, uint32_t base, uint32_t lead, float *q,
                        float *d_o)
{
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t r = threadIdx.x / 32;
         r < KEYS && base + r < lead + row->queries; r += WARPS) {
        if (base + r < lead)
            continue;
        uint64_t t = row->query + (base + r - lead);
        const T *x = static_cast<const T *>(a->q) + t * a->q_stride +
                     (uint64_t)head * a->dim;
        const float *y = a->d_o + t * a->o_stride + (uint64_t)head * a->dim;
        for (uint32_t d = lane; d < a->dim; d += 32) {
            q[r * odd_pitch(a->dim) + d] = cu_load1(x + d);
            d_o[r * odd_pitch(a->dim) + d] = y[d];
        }
    }
}

/* Finds the next row whose queries see the keys of row `own`: after the row
 * itself, its children, which follow it. Returns 0 if there is none. */
template <int FORM>
CU_FN int next_reader(const attend_args *a, uint32_t own, uint32_t *row)
{
    ++*row;
    return FORM == ATTEND_JOINED && a->parent && *row < a->rows &&
           a->parent[*row] == (int32_t)own;
}

/* dk and dv of a key: over the rows that see it, in each over the heads of its
 * group, and for each head over the queries from the key's group of 16 on. */
template <int FORM, typename T>
__global__ void __launch_bounds__(WARPS * 32)
    attend_f32_dkv(const attend_args a)
{
    CU_DYNAMIC(float, shared);
    attend_tile w = attend_find<FORM, true>(&a, blockIdx.x, blockIdx.y);
    if (w.count == 0)
        return;
    uint32_t warp = threadIdx.x / 32;
    uint32_t lane = threadIdx.x % 32;
    uint32_t row = odd_pitch(a.dim);
    float *q = shared;
    float *d_o = q + KEYS * row;
    float *key = d_o + KEYS * row + warp * a.dim;
    float *value = key + WARPS * a.dim;
    float *p = d_o + KEYS * row + 2 * WARPS * a.dim + 2 * warp * KEYS;
    float *ds = p + KEYS;
    uint32_t j = w.pos + (warp < w.count ? warp : 0);
    /* All keys of a tile are in one group, unless a parent has shifted them. */
    uint32_t group16 = j / 16 * 16;
    uint32_t low16 = w.pos / 16 * 16;
    uint32_t high16 = (w.pos + w.count - 1) / 16 * 16;
    const T *k =
        static_cast<const T *>(a.k) + attend_key<FORM>(&a, &w, j, a.k_stride);
    const T *v =
        static_cast<const T *>(a.v) + attend_key<FORM>(&a, &w, j, a.v_stride);
    for (uint32_t d = lane; d < a.dim; d += 32) {
        key[d] = cu_load1(k + d);
        value[d] = cu_load1(v + d);
    }
    float dk[LANES_DIM] = {};
    float dv[LANES_DIM] = {};
    uint32_t reader = w.row;
    do {
        attend_row r = attend_row_of<FORM == ATTEND_JOINED>(&a, reader);
        /* Counted from the row's first own token, like `base`. */
        uint32_t lead = r.first - r.before;
        uint32_t end = lead + r.queries;
        uint32_t from = max(low16 > r.before ? low16 - r.before : 0, lead);
        for (uint32_t h = w.kv * a.group; h < (w.kv + 1) * a.group; h++)
            for (uint32_t base = from / KEYS * KEYS; base < end; base += KEYS) {
                uint32_t tile = r.before + base / 64 * 64;
                uint32_t seen16 = attend_first_key(tile, a.window) / 16 * 16;
                if (seen16 > high16)
                    break;
                __syncthreads();
                load_queries<T>(&a, &r, h, base, lead, q, d_o);
                __syncthreads();
                uint32_t i = r.before + base + lane;
                float x[2] = { 0.0f, 0.0f };
                if (i >= j && base + lane >= lead && base + lane < end &&
                    attend_first_key(i, a.window) <= j) {
                    uint64_t t = r.query + (base + lane - lead);
                    uint64_t at = t * a.heads + h;
                    pair_grad(&a, dot_chain(q + lane * row, key, a.dim),
                              dot_chain(d_o + lane * row, value, a.dim),
                              a.lse[at], a.delta[at], x);
                }
                p[lane] = x[0];
                ds[lane] = x[1];
                __syncwarp();
                uint32_t first = r.before + base;
                uint32_t lo = max(group16, r.first);
                lo = lo > first ? lo - first : 0;
                uint32_t hi = seen16 > group16 ? 0 : min(end - base, KEYS);
                chain_rows(dk, ds, q, a.dim, lo, hi);
                chain_rows(dv, p, d_o, a.dim, lo, hi);
            }
    } while (next_reader<FORM>(&a, w.row, &reader));
    if (warp >= w.count)
        return;
    uint64_t t = w.token + warp;
    float *to_k = a.dk + t * a.dk_stride + (uint64_t)w.kv * a.dim;
    float *to_v = a.dv + t * a.dv_stride + (uint64_t)w.kv * a.dim;
#pragma unroll
    for (uint32_t n = 0; n < LANES_DIM; n++)
        if (lane + 32 * n < a.dim) {
            to_k[lane + 32 * n] = a.scale * dk[n];
            to_v[lane + 32 * n] = dv[n];
        }
}

template <int FORM, typename T>
static xray_status launch_grad(cuda_device *d, cudaStream_t stream,
                               const char *where, attend_args *a)
{
    uint32_t bytes = count_shared_bytes(a, 2);
    attend_cut(a, WARPS);
    dim3 queries(attend_tiles(a, a->queries, a->tile), a->kv_heads * a->parts);
    ATTEND_START(d, where, (attend_f32_dq<FORM, T>), queries, WARPS * 32, bytes,
                 stream, *a);
    /* Tiles of keys: each warp has one key, and a block has one kv head. */
    a->tile = WARPS;
    a->parts = 1;
    a->wide = a->group;
    dim3 keys(attend_tiles(a, a->tokens, WARPS), a->kv_heads);
    ATTEND_START(d, where, (attend_f32_dkv<FORM, T>), keys, WARPS * 32, bytes,
                 stream, *a);
    return cuda_launched(d, where);
}

xray_status attend_grad_f32(cuda_device *d, cudaStream_t stream,
                            const char *where, attend_args *a)
{
    int narrow = a->dtype == XRAY_BF16;
    if (attend_is_joined(a))
        return narrow
                   ? launch_grad<ATTEND_JOINED, uint16_t>(d, stream, where, a)
                   : launch_grad<ATTEND_JOINED, float>(d, stream, where, a);
    return narrow ? launch_grad<ATTEND_ROWS, uint16_t>(d, stream, where, a)
                  : launch_grad<ATTEND_ROWS, float>(d, stream, where, a);
}
