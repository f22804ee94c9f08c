/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of attention in bfloat16.
 *
 * Scores are recomputed from q, k and lse twice: by blocks of queries for dq,
 * and by blocks of keys for dk and dv. Every sum therefore has one owner and
 * one order, without atomics. This costs 7 products, where a pass with atomics
 * has 5. Query heads that share a key have a sum each, or there would be too
 * few blocks: 130 for 4096 tokens of a model with 2 kv heads. Another kernel
 * adds them, for 16 bytes of traffic for each of a query's elements.
 *
 * Both kernels have 4 warps with 16 rows of the result each. 64 rows of the
 * other side are in shared memory at a time, in order of position. They wait
 * for shared memory as the forward kernel does: a warp reads 256 bytes per
 * product, so about half of the tensor cores' peak is the bound.
 *
 * A block of a parent's keys goes through the queries of its children as well,
 * one row after the other. With c children of its own length it takes 2 c + 1
 * times as long as alone, so it is started before the blocks of the children.
 */
#include "plugins/device-cuda/attention_bf16.h"

#define WARPS 4u
#define THREADS (WARPS * 32u)
#define TILE 64u /* queries or keys per thread block */

/* 64 rows of a side are folded STEP rows at a time, so that the registers
 * suffice. */
template <int DIM> struct grad_shape {
    static const int step = DIM > 128 ? 16 : 32;
    static const int cols =
        DIM > 128 ? DIM / 2 : DIM; /* columns of dk and dv per block */
    static const int halves = DIM / cols;
};

/* Turns the score and the product dO v of a pair into p and ds; 0 where not
 * visible. */
template <bool CAPPED>
CU_FN void finish_pair(const attend_args *a, float *s, float *dp, float c,
                       float lse2, float delta, int seen)
{
    float u = 0.0f;
    float p = exp2f(attend_log2<CAPPED>(a, *s, c, &u) - lse2);
    float x = p * (*dp - delta);
    if (CAPPED)
        x = x * fmaf(-u, u, 1.0f);
    *s = seen ? p : 0.0f;
    *dp = seen ? x : 0.0f;
}

/* The queries of a lane's two rows, with what every pair needs of them. */
struct row_pairs {
    uint32_t pos[2];
    uint32_t from[2];
    float lse2[2];
    float delta[2];
};

/* The pairs of a warp whose rows are queries and whose columns are keys from j0
 * on. */
template <bool CAPPED, int N>
CU_FN void pairs_by_row(float s[N][4], float dp[N][4], const attend_args *a,
                        const row_pairs *r, uint32_t j0)
{
    float c = a->scale * LOG2E;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            uint32_t j = j0 + n * 8 + threadIdx.x % 4 * 2 + e % 2;
            int h = e / 2;
            finish_pair<CAPPED>(a, &s[n][e], &dp[n][e], c, r->lse2[h],
                                r->delta[h], j <= r->pos[h] && j >= r->from[h]);
        }
}

/* The pairs of a warp whose rows are keys j and j + 8 and whose columns are
 * queries from i0 on, below `length`. `rows` has lse in units of log 2 and,
 * TILE further, delta. */
template <bool CAPPED, int N>
CU_FN void pairs_by_column(float s[N][4], float dp[N][4], const attend_args *a,
                           const float *rows, uint32_t i0, uint32_t length,
                           uint32_t j)
{
    float c = a->scale * LOG2E;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            uint32_t x = n * 8 + threadIdx.x % 4 * 2 + e % 2;
            uint32_t i = i0 + x;
            uint32_t key = j + e / 2 * 8;
            finish_pair<CAPPED>(a, &s[n][e], &dp[n][e], c, rows[x],
                                rows[TILE + x],
                                i < length && key <= i &&
                                    key >= attend_first_key(i, a->window));
        }
}

/* Loads rows base .. base + 63, counted from token `start`, of one head, whose
 * token 0 is at `from`; rows outside of [low, end) are 0. `start` is below 0
 * where the row of token 0 is above 0, and then `low` is at least that. */
template <int DIM>
CU_FN void load_side(uint16_t *to, const uint16_t *from, uint64_t stride,
                     const attend_args *a, int32_t start, uint32_t base,
                     uint32_t low, uint32_t end)
{
    const uint16_t *at = from + ((int64_t)start + base) * (int64_t)stride;
    int lo = low > base ? (int)min(low - base, TILE) : 0;
    int hi = end > base ? (int)min(end - base, TILE) : 0;
    load_rows<DIM, (int)TILE, (int)THREADS>(to, at, at, 0, stride, lo, hi,
                                            a->dim8);
}

/* The head `head` of an array whose heads are dim8 apart. */
CU_FN const uint16_t *narrow_head(const attend_args *a, const void *data,
                                  uint32_t head)
{
    return static_cast<const uint16_t *>(data) + (uint64_t)head * a->dim8;
}

/* Loads positions base .. base + 63 of a row's keys or values, with those of
 * its parent first. */
template <int DIM, bool JOINED>
CU_FN void load_keys(uint16_t *to, const void *from, uint64_t stride,
                     const attend_args *a, const attend_row *row, uint32_t kv,
                     uint32_t base)
{
    uint32_t end = row->before + row->length;
    uint64_t own = (uint64_t)(row->start - row->before) + base;
    uint64_t other = (uint64_t)row->origin + base;
    int cut = row->before > base ? (int)min(row->before - base, TILE) : 0;
    int hi = end > base ? (int)min(end - base, TILE) : 0;
    const uint16_t *x = narrow_head(a, from, kv);
    load_rows<DIM, (int)TILE, (int)THREADS>(
        to, x + own * stride, JOINED ? x + other * stride : x, JOINED ? cut : 0,
        stride, 0, hi, a->dim8);
}

/* Writes 16 rows of a result from the accumulators, times `scale`. */
template <int DIM, int COLS>
CU_FN void store_grad(float *to, uint64_t stride, const float acc[COLS / 8][4],
                      uint32_t rows, uint32_t first, uint32_t dim, float scale)
{
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t r = lane / 4 + 8 * h;
        if (r >= rows)
            continue;
#pragma unroll
        for (int n = 0; n < COLS / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                uint32_t d = first + n * 8 + lane % 4 * 2 + e;
                if (d < dim)
                    to[r * stride + d] = scale * acc[n][2 * h + e];
            }
    }
}

template <int N> CU_FN void clear_tile(float acc[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
        acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = 0.0f;
}

/* ---- dq: a block of queries of one head ---------------------------------- */

template <int DIM, int STAGES, bool JOINED>
__global__ void __launch_bounds__(THREADS) attend_bf16_dq(const attend_args a)
{
    const int STEP = grad_shape<DIM>::step;
    const uint32_t side = TILE * attend_pitch<DIM>::of;
    CU_DYNAMIC(uint16_t, shared);
    uint32_t at[2];
    if (!attend_find_row(a.query_start, a.rows, TILE, blockIdx.x, at))
        return;
    attend_row row = attend_row_of<JOINED>(&a, at[0]);
    uint32_t i0 = at[1] * TILE; /* among the row's queries */
    uint32_t head = blockIdx.y;
    uint32_t kv = head / a.group;
    uint32_t warp = threadIdx.x / 32;
    uint32_t lane = threadIdx.x % 32;
    uint16_t *q = shared;
    uint16_t *d_o = q + side;
    uint16_t *keys = d_o + side; /* keys, then values, of each stage */
    load_side<DIM>(q, narrow_head(&a, a.q_narrow, head), a.q_narrow_stride, &a,
                   row.query, i0, 0, row.queries);
    load_side<DIM>(d_o, narrow_head(&a, a.d_narrow, head),
                   (uint64_t)a.heads * a.dim8, &a, row.query, i0, 0,
                   row.queries);
    uint32_t last = row.first + min(i0 + TILE, row.queries) - 1;
    uint32_t b = attend_first_key(row.first + i0, a.window) / TILE;
    if (STAGES > 1) {
        load_keys<DIM, JOINED>(keys, a.k, a.k_stride, &a, &row, kv, b * TILE);
        load_keys<DIM, JOINED>(keys + side, a.v, a.v_stride, &a, &row, kv,
                               b * TILE);
        cu_async_commit();
    }
    row_pairs r;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t i = i0 + warp * 16 + lane / 4 + 8 * h;
        uint64_t t = (uint64_t)(row.query + min(i, row.queries - 1)) * a.heads;
        r.pos[h] = row.first + i;
        r.from[h] = attend_first_key(row.first + i, a.window);
        r.lse2[h] = a.lse[t + head] * LOG2E;
        r.delta[h] = a.delta[t + head];
    }
    uint32_t top = row.first + i0 + warp * 16;
    uint32_t low = attend_first_key(top, a.window);
    uint32_t high = top + 15;
    float acc[DIM / 8][4];
    clear_tile<DIM / 8>(acc);
    for (uint32_t turn = 0; b <= last / TILE; b++, turn++) {
        uint16_t *now = keys + (STAGES > 1 ? turn % 2 * 2 * side : 0);
        uint16_t *then = keys + (STAGES > 1 ? (turn + 1) % 2 * 2 * side : 0);
        uint32_t load = STAGES > 1 ? b + 1 : b;
        if (load <= last / TILE) {
            load_keys<DIM, JOINED>(then, a.k, a.k_stride, &a, &row, kv,
                                   load * TILE);
            load_keys<DIM, JOINED>(then + side, a.v, a.v_stride, &a, &row, kv,
                                   load * TILE);
        }
        cu_async_commit();
        cu_async_wait<STAGES - 1>();
        __syncthreads();
#pragma unroll 1
        for (uint32_t j0 = b * TILE; j0 < (b + 1) * TILE; j0 += STEP) {
            if (j0 > high || j0 + STEP <= low)
                continue;
            float s[STEP / 8][4];
            float dp[STEP / 8][4];
            uint16_t *at_k = now + (j0 % TILE) * attend_pitch<DIM>::of;
            uint16_t *mine = q + warp * 16 * attend_pitch<DIM>::of;
            product_rows<DIM, STEP / 8>(s, mine, at_k);
            product_rows<DIM, STEP / 8>(dp, mine + side, at_k + side);
            if (a.softcap == 0.0f)
                pairs_by_row<false, STEP / 8>(s, dp, &a, &r, j0);
            else
                pairs_by_row<true, STEP / 8>(s, dp, &a, &r, j0);
            product_columns<DIM, DIM, STEP / 8>(acc, dp, at_k, 0);
        }
        __syncthreads();
    }
    uint32_t i = i0 + warp * 16;
    if (i < row.queries)
        store_grad<DIM, DIM>(a.dq + (uint64_t)(row.query + i) * a.dq_stride +
                                 (uint64_t)head * a.dim,
                             a.dq_stride, acc, row.queries - i, 0, a.dim,
                             a.scale);
}

/* ---- dk, dv: a block of keys of one kv head ------------------------------ */

/* Enumerates the blocks of queries that see a block of keys: over the rows that
 * read the keys (the row itself and, where it is a parent, its children), and
 * in each row over blocks of positions. */
typedef struct query_scan {
    uint32_t more; /* 0: past the last block */
    uint32_t block;
    uint32_t last;
    uint32_t row;
    uint32_t shift; /* difference between a query's token and position */
    uint32_t low;   /* position of the row's first query */
    uint32_t end;   /* position after the row's last query */
} query_scan;

/* Sets the blocks of the row `row` that see keys [key, key + TILE). Returns 0
 * if none does. */
template <bool JOINED>
CU_FN int scan_row(query_scan *w, const attend_args *a, const attend_row *row,
                   uint32_t key)
{
    w->shift = row->query - row->first;
    w->low = row->first;
    w->end = row->first + row->queries;
    if (JOINED && row->queries == 0)
        return 0;
    uint32_t end = w->end - 1;
    uint32_t seen = key + TILE - 1;
    if (a->window && seen < end - min(end, a->window - 1))
        end = seen + a->window - 1;
    if (JOINED && end < max(key, w->low))
        return 0;
    w->block = max(key, w->low) / TILE;
    w->last = end / TILE;
    return 1;
}

/* `own` is the keys' row. */
template <bool JOINED>
CU_FN query_scan scan_next(query_scan w, const attend_args *a, uint32_t own,
                           uint32_t key)
{
    if (w.block < w.last) {
        w.block++;
        return w;
    }
    w.more = 0;
    while (JOINED && !w.more) {
        w.row++;
        if (!a->parent || w.row >= a->rows || a->parent[w.row] != (int32_t)own)
            break;
        attend_row row = attend_row_of<JOINED>(a, w.row);
        w.more = scan_row<JOINED>(&w, a, &row, key);
    }
    return w;
}

/* Loads q, then d_o, of a block of queries, with lse and delta after them.
 * Positions of the block before the first query would see keys as well, so
 * their p is 0. */
template <int DIM, bool JOINED>
CU_FN void load_queries(uint16_t *to, const attend_args *a, query_scan w,
                        uint32_t head)
{
    const uint32_t side = TILE * attend_pitch<DIM>::of;
    uint32_t base = w.block * TILE;
    uint32_t low = JOINED ? w.low : 0;
    load_side<DIM>(to, narrow_head(a, a->q_narrow, head), a->q_narrow_stride, a,
                   (int32_t)w.shift, base, low, w.end);
    load_side<DIM>(to + side, narrow_head(a, a->d_narrow, head),
                   (uint64_t)a->heads * a->dim8, a, (int32_t)w.shift, base, low,
                   w.end);
    float *rows = reinterpret_cast<float *>(to + 2 * side);
    for (uint32_t r = threadIdx.x; r < TILE; r += THREADS) {
        uint32_t i = min(base + r, w.end - 1);
        int outside = JOINED && i < low;
        uint64_t t =
            (uint64_t)(w.shift + (outside ? low : i)) * a->heads + head;
        float lse2 = a->lse[t] * LOG2E;
        rows[r] = outside ? -NEG_INF : lse2;
        rows[TILE + r] = a->delta[t];
    }
}

template <int DIM, int STAGES, bool JOINED>
__global__ void __launch_bounds__(THREADS) attend_bf16_dkv(const attend_args a)
{
    const int STEP = grad_shape<DIM>::step;
    const int COLS = grad_shape<DIM>::cols;
    const uint32_t side = TILE * attend_pitch<DIM>::of;
    const uint32_t stage = 2 * side + 2 * TILE * 2;
    CU_DYNAMIC(uint16_t, shared);
    uint32_t at[2];
    if (!attend_find_row(a.row_start, a.rows, TILE, blockIdx.x, at))
        return;
    attend_row row = attend_row_of<JOINED>(&a, at[0]);
    /* Tiles are numbered from the last one; here the first has the most
     * work. */
    uint32_t j0 = ((row.length + TILE - 1) / TILE - 1 - at[1]) * TILE;
    uint32_t head = a.first_head + blockIdx.y;
    uint32_t kv = head / a.group;
    uint32_t first_col = blockIdx.z * COLS;
    uint32_t warp = threadIdx.x / 32;
    uint32_t lane = threadIdx.x % 32;
    uint16_t *keys = shared;
    uint16_t *values = keys + side;
    uint16_t *queries = values + side;
    uint32_t key = row.before + j0;
    query_scan w = {};
    w.row = at[0];
    w.more = scan_row<JOINED>(&w, &a, &row, key);
    if (w.more) {
        load_side<DIM>(keys, narrow_head(&a, a.k, kv), a.k_stride, &a,
                       (int32_t)row.start, j0, 0, row.length);
        load_side<DIM>(values, narrow_head(&a, a.v, kv), a.v_stride, &a,
                       (int32_t)row.start, j0, 0, row.length);
        if (STAGES > 1) {
            load_queries<DIM, JOINED>(queries, &a, w, head);
            cu_async_commit();
        }
    }
    uint32_t j_low = key + warp * 16;
    float dk[COLS / 8][4];
    float dv[COLS / 8][4];
    clear_tile<COLS / 8>(dk);
    clear_tile<COLS / 8>(dv);
    uint16_t *my_keys = keys + warp * 16 * attend_pitch<DIM>::of;
    for (uint32_t turn = 0; w.more; turn++) {
        query_scan next = scan_next<JOINED>(w, &a, at[0], key);
        uint16_t *now = queries + (STAGES > 1 ? turn % 2 * stage : 0);
        uint16_t *then = queries + (STAGES > 1 ? (turn + 1) % 2 * stage : 0);
        query_scan load = STAGES > 1 ? next : w;
        if (load.more)
            load_queries<DIM, JOINED>(then, &a, load, head);
        cu_async_commit();
        cu_async_wait<STAGES - 1>();
        __syncthreads();
        const float *rows = reinterpret_cast<const float *>(now + 2 * side);
        uint32_t low = JOINED ? max(j_low, w.low) : j_low;
#pragma unroll 1
        for (uint32_t r = 0; r < TILE; r += STEP) {
            uint32_t i0 = w.block * TILE + r;
            if (i0 >= w.end || i0 + STEP <= low ||
                attend_first_key(i0, a.window) > j_low + 15)
                continue;
            float s[STEP / 8][4]; /* rows are keys, columns queries */
            float dp[STEP / 8][4];
            uint16_t *at_q = now + r * attend_pitch<DIM>::of;
            product_rows<DIM, STEP / 8>(s, my_keys, at_q);
            product_rows<DIM, STEP / 8>(dp, my_keys + side, at_q + side);
            if (a.softcap == 0.0f)
                pairs_by_column<false, STEP / 8>(s, dp, &a, rows + r, i0, w.end,
                                                 j_low + lane / 4);
            else
                pairs_by_column<true, STEP / 8>(s, dp, &a, rows + r, i0, w.end,
                                                j_low + lane / 4);
            product_columns<DIM, COLS, STEP / 8>(dv, s, at_q + side, first_col);
            product_columns<DIM, COLS, STEP / 8>(dk, dp, at_q, first_col);
        }
        __syncthreads();
        w = next;
    }
    uint32_t j = j0 + warp * 16;
    if (j >= row.length)
        return;
    uint64_t t = row.start + j;
    int shared_key = a.group > 1;
    uint64_t k_step = shared_key ? (uint64_t)gridDim.y * a.dim : a.dk_stride;
    uint64_t v_step = shared_key ? k_step : a.dv_stride;
    float *to_k = shared_key ? a.partial + blockIdx.y * a.dim
                             : a.dk + (uint64_t)kv * a.dim;
    float *to_v = shared_key
                      ? a.partial + a.tokens * k_step + blockIdx.y * a.dim
                      : a.dv + (uint64_t)kv * a.dim;
    store_grad<DIM, COLS>(to_k + t * k_step, k_step, dk, row.length - j,
                          first_col, a.dim, shared_key ? 1.0f : a.scale);
    store_grad<DIM, COLS>(to_v + t * v_step, v_step, dv, row.length - j,
                          first_col, a.dim, 1.0f);
}

/* dk, or with blockIdx.z 1 dv, of one token: the sums of the heads that share a
 * key, added in order. */
__global__ void __launch_bounds__(THREADS)
    attend_join_heads(const attend_args a)
{
    uint64_t t = blockIdx.x;
    uint32_t heads = gridDim.y * a.group; /* of this launch */
    uint32_t first = blockIdx.y * a.group;
    int of_v = blockIdx.z != 0;
    if (t >= (uint32_t)a.row_start[a.rows])
        return;
    const float *from =
        a.partial + ((of_v ? a.tokens : 0) + t) * heads * a.dim + first * a.dim;
    float *to = of_v ? a.dv + t * a.dv_stride : a.dk + t * a.dk_stride;
    to += (uint64_t)(a.first_head + first) / a.group * a.dim;
    for (uint32_t d = threadIdx.x; d < a.dim; d += THREADS) {
        float x = from[d];
#pragma unroll 4
        for (uint32_t h = 1; h < a.group; h++)
            x = x + from[h * a.dim + d];
        to[d] = of_v ? x : a.scale * x;
    }
}

/* ---- the host's side ----------------------------------------------------- */

template <int DIM, int STAGES, bool JOINED>
static xray_status launch_grad(cuda_device *d, cudaStream_t stream,
                               const char *where, const attend_args *a)
{
    uint32_t side = TILE * attend_pitch<DIM>::of * 2;
    dim3 by_query(attend_tiles(a, a->queries, TILE), a->heads);
    ATTEND_START(d, where, (attend_bf16_dq<DIM, STAGES, JOINED>), by_query,
                 THREADS, side * (2 + 2 * STAGES), stream, *a);
    attend_args part = *a;
    uint32_t count =
        attend_grad_kv_heads(a->tokens, a->kv_heads, a->group, a->dim);
    for (uint32_t kv = 0; kv < a->kv_heads; kv += count) {
        uint32_t n = min(count, a->kv_heads - kv);
        dim3 by_key(attend_tiles(a, a->tokens, TILE), n * a->group,
                    grad_shape<DIM>::halves);
        part.first_head = kv * a->group;
        ATTEND_START(d, where, (attend_bf16_dkv<DIM, STAGES, JOINED>), by_key,
                     THREADS, side * 2 + (side * 2 + 2 * TILE * 4) * STAGES,
                     stream, part);
        if (a->group > 1)
            CU_LAUNCH(attend_join_heads, dim3((uint32_t)a->tokens, n, 2),
                      (a->dim + 31) / 32 * 32 < THREADS
                          ? (a->dim + 31) / 32 * 32
                          : THREADS,
                      0, stream, part);
    }
    return cuda_launched(d, where);
}

template <bool JOINED>
static xray_status launch_grad_any(cuda_device *d, cudaStream_t stream,
                                   const char *where, const attend_args *a)
{
    if (a->dim <= 32)
        return launch_grad<32, 2, JOINED>(d, stream, where, a);
    if (a->dim <= 64)
        return launch_grad<64, 2, JOINED>(d, stream, where, a);
    if (a->dim <= 80)
        return launch_grad<80, 2, JOINED>(d, stream, where, a);
    if (a->dim <= 96)
        return launch_grad<96, 2, JOINED>(d, stream, where, a);
    if (a->dim <= 128 && d->shared_most < 104 * 1024)
        return launch_grad<128, 1, JOINED>(d, stream, where, a);
    if (a->dim <= 128)
        return launch_grad<128, 2, JOINED>(d, stream, where, a);
    return launch_grad<256, 1, JOINED>(d, stream, where, a);
}

xray_status attend_grad_bf16(cuda_device *d, cudaStream_t stream,
                             const char *where, attend_args *a)
{
    if (attend_is_joined(a))
        return launch_grad_any<true>(d, stream, where, a);
    return launch_grad_any<false>(d, stream, where, a);
}
