/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention forward in bfloat16 (docs/numerics.md, xray.cuda-bf16/3). One
 * kernel serves packed rows, prompts in chunks and decoding, so the arithmetic
 * of a query cannot differ between them.
 *
 * The keys of a query are divided into splits of ATTEND_SPLIT positions and
 * blocks of ATTEND_BLOCK, both counted from position 0. Within a split, blocks
 * are folded in order with a running maximum, as in flash attention; splits are
 * joined in order. A block or split in which a query sees nothing leaves its
 * sums unchanged, so it does not matter which other queries share the tile. It
 * does not matter either whether one thread block folds all splits, or several
 * do and attend_join joins them.
 *
 * A row with a parent is the joined row from its own first position on, and
 * some queries of a row are that row from the first of them on. Only the
 * address that a key is read from differs, which costs one selection per piece.
 *
 * Packed rows: 8 warps and 128 queries per block. The tensor cores wait for
 * shared memory: a warp reads 256 bytes per product of 4096 operations, so
 * about half of the tensor cores' peak is the bound. Decoding waits for device
 * memory: a block keeps the next 64 keys and values in flight while it folds
 * the previous ones. At head dimension 128 two blocks fit a multiprocessor;
 * together they have about twice as many bytes in flight as the latency needs.
 */
#include "plugins/device-cuda/attention_bf16.h"

#define PER (ATTEND_SPLIT / ATTEND_BLOCK)
#define GROUPS (ATTEND_BLOCK / 8)

/* The state of the two rows, l / 4 and l / 4 + 8, that lane l holds of its
 * warp's 16. `sum` is the lane's own partial sum until fold_close. */
template <int DIM> struct fold {
    float o[DIM / 8][4];
    float max[2];
    float sum[2];
};

struct fold_rows {
    uint32_t pos[2];
    uint32_t from[2];
    uint32_t low;  /* first key that any row of the warp sees */
    uint32_t high; /* last key that any row of the warp sees */
    /* Last key that all rows see, if they also see key `firm`. */
    uint32_t solid;
    uint32_t firm; /* first key that all rows see */
};

template <int DIM> CU_FN void fold_clear(fold<DIM> *f)
{
#pragma unroll
    for (int n = 0; n < DIM / 8; n++)
        f->o[n][0] = f->o[n][1] = f->o[n][2] = f->o[n][3] = 0.0f;
    f->max[0] = f->max[1] = NEG_INF;
    f->sum[0] = f->sum[1] = 0.0f;
}

/* exp2f(x - max), where the maximum over nothing counts as 0. */
CU_FN float relative(float x, float max)
{
    return exp2f(x - (max == NEG_INF ? 0.0f : max));
}

template <bool CAPPED>
CU_FN void block_log2(float s[GROUPS][4], const attend_args *a, float c)
{
    float u;
#pragma unroll
    for (int n = 0; n < GROUPS; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[n][e] = attend_log2<CAPPED>(a, s[n][e], c, &u);
}

/* Converts the scores of a block to units of log 2; -inf where not visible. */
CU_FN void block_mask(float s[GROUPS][4], const attend_args *a,
                      const fold_rows *r, uint32_t launch_attend, float c)
{
    uint32_t j0 = launch_attend + threadIdx.x % 4 * 2;
    if (a->softcap == 0.0f)
        block_log2<false>(s, a, c);
    else
        block_log2<true>(s, a, c);
    if (launch_attend >= r->firm &&
        launch_attend + ATTEND_BLOCK - 1 <= r->solid)
        return;
#pragma unroll
    for (int n = 0; n < GROUPS; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            uint32_t j = j0 + n * 8 + e % 2;
            int seen = j <= r->pos[e / 2] && j >= r->from[e / 2];
            s[n][e] = seen ? s[n][e] : NEG_INF;
        }
}

/* Folds one block: finds the new maximum, scales the previous sums to it, adds
 * the probabilities in key order, then adds the values in steps of 16 keys. */
template <int DIM>
CU_FN void fold_block(fold<DIM> *f, float s[GROUPS][4], const uint16_t *values)
{
    float alpha[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float max = f->max[h];
#pragma unroll
        for (int n = 0; n < GROUPS; n++)
            max = fmaxf(max, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
        max = fmaxf(max, __shfl_xor_sync(CU_FULL, max, 1));
        max = fmaxf(max, __shfl_xor_sync(CU_FULL, max, 2));
        alpha[h] = relative(f->max[h], max);
        f->max[h] = max;
        float sum = 0.0f;
        float use = max == NEG_INF ? 0.0f : max;
#pragma unroll
        for (int n = 0; n < GROUPS; n++)
#pragma unroll
            for (int e = 2 * h; e < 2 * h + 2; e++) {
                s[n][e] = exp2f(s[n][e] - use);
                sum = sum + s[n][e];
            }
        f->sum[h] = fmaf(f->sum[h], alpha[h], sum);
    }
#pragma unroll
    for (int n = 0; n < DIM / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            f->o[n][e] = f->o[n][e] * alpha[e / 2];
    product_columns<DIM, DIM, GROUPS>(f->o, s, values, 0);
}

/* Adds the four partial sums of a row and gives the result to all four
 * lanes. */
template <int DIM> CU_FN void fold_close(fold<DIM> *f)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        f->sum[h] = f->sum[h] + __shfl_xor_sync(CU_FULL, f->sum[h], 1);
        f->sum[h] = f->sum[h] + __shfl_xor_sync(CU_FULL, f->sum[h], 2);
    }
}

/* The weights of a total and of the split that joins it. max and sum of the
 * total become those of both. */
CU_FN void join_weights(float *max, float *sum, float other_max,
                        float other_sum, float out[2])
{
    float m = fmaxf(*max, other_max);
    out[0] = relative(*max, m);
    out[1] = relative(other_max, m);
    *sum = fmaf(other_sum, out[1], *sum * out[0]);
    *max = m;
}

/* Joins a closed split to the total that this lane keeps in shared memory,
 * unless it is the first, and keeps the total there, unless it is the last.
 * Joined values replace those of f in either case: with two targets the
 * compiler runs out of registers at head dimension 256. */
template <int DIM, int THREADS>
CU_FN void join_split(fold<DIM> *f, float *kept, float max[2], float sum[2],
                      int first, int last)
{
    float *own = kept + threadIdx.x;
    if (!first) {
        float by[2][2];
#pragma unroll
        for (int h = 0; h < 2; h++)
            join_weights(&max[h], &sum[h], f->max[h], f->sum[h], by[h]);
#pragma unroll
        for (int i = 0; i < DIM / 2; i++) {
            const float *x = by[i % 4 / 2];
            f->o[i / 4][i % 4] =
                fmaf(f->o[i / 4][i % 4], x[1], own[i * THREADS] * x[0]);
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            f->max[h] = max[h];
            f->sum[h] = sum[h];
        }
    }
    if (last)
        return;
#pragma unroll
    for (int i = 0; i < DIM / 2; i++)
        own[i * THREADS] = f->o[i / 4][i % 4];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        max[h] = f->max[h];
        sum[h] = f->sum[h];
    }
}

CU_FN void lane_rows(const attend_args *a, const attend_tile *w, fold_rows *r)
{
    uint32_t end = w->count * w->heads - 1;
    uint32_t row = threadIdx.x / 32 * 16;
    uint32_t top = w->pos + min(row, end) / w->heads;
    uint32_t bottom = w->pos + min(row + 15, end) / w->heads;
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t i = min(row + threadIdx.x % 32 / 4 + 8 * h, end);
        r->pos[h] = w->pos + i / w->heads;
        r->from[h] = attend_first_key(r->pos[h], a->window);
    }
    r->low = attend_first_key(top, a->window);
    r->firm = attend_first_key(bottom, a->window);
    r->high = bottom;
    r->solid = top;
}

/* Loads the queries of the tile, rounded; rows beyond the tile are 0. Their
 * type is looked up here and where o is stored, once for each tile, so that it
 * does not double the kernels. */
template <int DIM, int WARPS>
CU_FN void load_tile_queries(const attend_args *a, const attend_tile *w,
                             uint16_t *to)
{
    const uint32_t pieces = DIM / 8;
    const float *wide = static_cast<const float *>(a->q);
    const uint16_t *narrow = static_cast<const uint16_t *>(a->q);
    for (uint32_t i = threadIdx.x; i < WARPS * 16 * pieces; i += WARPS * 32) {
        uint32_t r = i / pieces;
        uint32_t d = i % pieces * 8;
        uint4 x = make_uint4(0, 0, 0, 0);
        if (r < w->count * w->heads && d < a->dim) {
            uint64_t t = w->token + r / w->heads;
            uint64_t at = t * a->q_stride +
                          (uint64_t)(w->head + r % w->heads) * a->dim + d;
            x = a->dtype == XRAY_BF16 ? attend_piece(narrow + at, a->dim - d)
                                      : attend_piece(wide + at, a->dim - d);
        }
        *reinterpret_cast<uint4 *>(to + r * attend_pitch<DIM>::of + d) = x;
    }
}

/* Loads block b of keys and of values, with 0 where no query of the tile
 * sees. */
template <int DIM, int THREADS, int FORM>
CU_FN void load_block(const attend_args *a, const attend_tile *w, uint32_t b,
                      uint16_t *keys)
{
    const uint32_t pieces = DIM / 8;
    uint16_t *values = keys + ATTEND_BLOCK * attend_pitch<DIM>::of;
    const uint16_t *k = static_cast<const uint16_t *>(a->k);
    const uint16_t *v = static_cast<const uint16_t *>(a->v);
    uint32_t last = w->pos + w->count - 1;
    uint32_t first = attend_first_key(w->pos, a->window);
    for (uint32_t i = threadIdx.x; i < ATTEND_BLOCK * pieces; i += THREADS) {
        uint32_t r = i / pieces;
        uint32_t d = i % pieces * 8;
        uint32_t j = b * ATTEND_BLOCK + r;
        int there = j >= first && j <= last && d < a->dim8;
        uint64_t at = there ? attend_key<FORM>(a, w, j, a->k_stride) + d : 0;
        uint32_t to = r * attend_pitch<DIM>::of + d;
        cu_async16(keys + to, k + at, there ? 16 : 0);
        cu_async16(values + to, v + at, there ? 16 : 0);
    }
}

/* The first block of keys at or after b whose split this thread block folds. */
CU_FN uint32_t own_block(uint32_t b)
{
    uint32_t away = (blockIdx.z + gridDim.z - b / PER % gridDim.z) % gridDim.z;
    return away ? (b / PER + away) * PER : b;
}

/* Stores the lane's values of row h of the warp, times `scale`, to the row at
 * `to`. */
template <int DIM, typename T>
CU_FN void store_row(T *to, const fold<DIM> *f, int h, uint32_t dim,
                     float scale)
{
#pragma unroll
    for (int n = 0; n < DIM / 8; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            uint32_t d = n * 8 + threadIdx.x % 4 * 2 + e;
            if (d < dim)
                cu_put1(to + d, f->o[n][2 * h + e] * scale);
        }
}

/* Writes the rows of a lane to o and lse, or to the scratch of split s. */
template <int DIM>
CU_FN void store_rows(const attend_args *a, const attend_tile *w,
                      const fold<DIM> *f, uint32_t split)
{
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t r = threadIdx.x / 32 * 16 + lane / 4 + 8 * h;
        if (r >= w->count * w->heads)
            continue;
        uint64_t t = w->token + r / w->heads;
        uint64_t head = w->head + r % w->heads;
        uint64_t at = (t * a->heads + head) * a->splits + split;
        uint64_t o = t * a->o_stride + head * a->dim;
        float inverse = 1.0f / f->sum[h];
        if (gridDim.z > 1)
            store_row<DIM>(a->partial + at * a->dim, f, h, a->dim, 1.0f);
        else if (a->dtype == XRAY_BF16)
            store_row<DIM>(static_cast<uint16_t *>(a->o) + o, f, h, a->dim,
                           inverse);
        else
            store_row<DIM>(static_cast<float *>(a->o) + o, f, h, a->dim,
                           inverse);
        if (lane % 4 != 0)
            continue;
        if (gridDim.z > 1) {
            a->partial_ml[at * 2] = f->max[h];
            a->partial_ml[at * 2 + 1] = f->sum[h];
        } else if (a->lse) {
            a->lse[t * a->heads + head] =
                fmaf(f->max[h], LN2, cu_log(f->sum[h]));
        }
    }
}

template <int DIM, int WARPS, int STAGES, int FORM>
__global__ void __launch_bounds__(WARPS * 32) attend_bf16(const attend_args a)
{
    const uint32_t pitch = attend_pitch<DIM>::of;
    const uint32_t stage = 2 * ATTEND_BLOCK * pitch;
    const bool held = DIM <= 128; /* queries stay in registers */
    CU_DYNAMIC(uint16_t, shared);
    attend_tile w = attend_find<FORM>(&a, blockIdx.x, blockIdx.y);
    if (w.count == 0)
        return;
    uint32_t last = (w.pos + w.count - 1) / ATTEND_BLOCK;
    uint32_t b = own_block(attend_first_key(w.pos, a.window) / ATTEND_BLOCK);
    if (b > last)
        return;
    uint16_t *tail = shared + STAGES * stage;
    uint16_t *queries = held ? shared + (STAGES - 1) * stage : tail;
    float *kept =
        reinterpret_cast<float *>(held ? tail : tail + WARPS * 16 * pitch);
    uint16_t *mine = queries + threadIdx.x / 32 * 16 * pitch;
    fold_rows r;
    lane_rows(&a, &w, &r);
    int idle = threadIdx.x / 32 * 16 >= w.count * w.heads;
    load_tile_queries<DIM, WARPS>(&a, &w, queries);
    if (STAGES > 1) {
        load_block<DIM, WARPS * 32, FORM>(&a, &w, b, shared);
        cu_async_commit();
    }
    __syncthreads();
    uint32_t q[held ? DIM / 16 : 1][4];
    if (held) {
#pragma unroll
        for (int k = 0; k < (held ? DIM / 16 : 1); k++)
            fragment_a<DIM>(q[k], mine, k * 16);
        __syncthreads();
    }
    fold<DIM> f;
    fold_clear(&f);
    float max[2];
    float sum[2];
    float c = a.scale * LOG2E;
    int first = 1;
    for (uint32_t turn = 0; b <= last; turn++) {
        uint32_t next = own_block(b + 1);
        uint16_t *keys = shared + (STAGES > 1 ? turn % 2 * stage : 0);
        if (STAGES > 1) {
            if (next <= last)
                load_block<DIM, WARPS * 32, FORM>(
                    &a, &w, next, shared + (turn + 1) % 2 * stage);
            cu_async_commit();
            cu_async_wait<1>();
        } else {
            load_block<DIM, WARPS * 32, FORM>(&a, &w, b, keys);
            cu_async_commit();
            cu_async_wait<0>();
        }
        __syncthreads();
        uint32_t launch_attend = b * ATTEND_BLOCK;
        if (!idle && launch_attend <= r.high &&
            launch_attend + ATTEND_BLOCK > r.low) {
            float s[GROUPS][4];
            if (held) {
#pragma unroll
                for (int n = 0; n < (int)GROUPS; n++)
                    s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
#pragma unroll
                for (int k = 0; k < (held ? DIM / 16 : 1); k++)
#pragma unroll
                    for (int n = 0; n < (int)GROUPS; n += 2) {
                        uint32_t x[4];
                        fragment_b<DIM>(x, keys, n * 8, k * 16);
                        cu_mma_bf16(s[n], q[k], x);
                        cu_mma_bf16(s[n + 1], q[k], x + 2);
                    }
            } else {
                product_rows<DIM, GROUPS>(s, mine, keys);
            }
            block_mask(s, &a, &r, launch_attend, c);
            fold_block<DIM>(&f, s, keys + ATTEND_BLOCK * pitch);
        }
        if (!idle && (next > last || next / PER != b / PER)) {
            fold_close<DIM>(&f);
            if (gridDim.z > 1)
                store_rows<DIM>(&a, &w, &f, b / PER);
            else if (!first || next <= last)
                join_split<DIM, WARPS * 32>(&f, kept, max, sum, first,
                                            next > last);
            if (next <= last)
                fold_clear(&f);
            first = 0;
        }
        __syncthreads();
        b = next;
    }
    if (!idle && gridDim.z == 1)
        store_rows<DIM>(&a, &w, &f, 0);
}

/* Joins the splits of a query in order, as join_split does. One thread block
 * per token and head, one thread per dimension. */
__global__ void attend_join(const attend_args a)
{
    uint32_t t = blockIdx.x;
    if (t >= cu_count(a.tokens, a.live))
        return;
    uint32_t pos = (uint32_t)a.positions[t];
    uint32_t s0 = attend_first_key(pos, a.window) / ATTEND_SPLIT;
    uint64_t at = ((uint64_t)t * a.heads + blockIdx.y) * a.splits;
    for (uint32_t d = threadIdx.x; d < a.dim; d += blockDim.x) {
        float o = a.partial[(at + s0) * a.dim + d];
        float max = a.partial_ml[(at + s0) * 2];
        float sum = a.partial_ml[(at + s0) * 2 + 1];
        for (uint32_t s = s0 + 1; s <= pos / ATTEND_SPLIT; s++) {
            float by[2];
            join_weights(&max, &sum, a.partial_ml[(at + s) * 2],
                         a.partial_ml[(at + s) * 2 + 1], by);
            o = fmaf(a.partial[(at + s) * a.dim + d], by[1], o * by[0]);
        }
        uint64_t to =
            (uint64_t)t * a.o_stride + (uint64_t)blockIdx.y * a.dim + d;
        float x = o * (1.0f / sum);
        if (a.dtype == XRAY_BF16)
            cu_put1(static_cast<uint16_t *>(a.o) + to, x);
        else
            cu_put1(static_cast<float *>(a.o) + to, x);
    }
}

/* ---- the host's side ----------------------------------------------------- */

template <int DIM, int WARPS, int STAGES, int FORM>
static xray_status launch_attend(cuda_device *d, cudaStream_t stream,
                                 const char *where, attend_args *a,
                                 uint32_t spread)
{
    const uint32_t pitch = attend_pitch<DIM>::of;
    uint32_t bytes = STAGES * 2 * ATTEND_BLOCK * pitch * 2;
    attend_cut(a, WARPS * 16);
    if (DIM > 128)
        bytes += WARPS * 16 * pitch * 2;
    if (spread == 1 && a->splits > 1)
        bytes += WARPS * 32 * (DIM / 2) * 4;
    uint32_t x = FORM == ATTEND_CACHE ? (uint32_t)a->tokens
                                      : attend_tiles(a, a->queries, a->tile);
    dim3 grid(x, a->kv_heads * a->parts, spread);
    ATTEND_START(d, where, (attend_bf16<DIM, WARPS, STAGES, FORM>), grid,
                 WARPS * 32, bytes, stream, *a);
    return cuda_launched(d, where);
}

template <int DIM, int FORM>
static xray_status launch_attend_dim(cuda_device *d, cudaStream_t stream,
                                     const char *where, attend_args *a,
                                     uint32_t spread)
{
    if constexpr (DIM <= 128) {
        const int warps = FORM == ATTEND_CACHE ? 4 : 8;
        return launch_attend<DIM, warps, 2, FORM>(d, stream, where, a, spread);
    } else {
        /* Shared memory of 164 KiB holds two warps. */
        if (d->shared_most < 176 * 1024)
            return launch_attend<DIM, 2, 1, FORM>(d, stream, where, a, spread);
        return launch_attend<DIM, 4, 1, FORM>(d, stream, where, a, spread);
    }
}

template <int FORM>
static xray_status launch_attend_any(cuda_device *d, cudaStream_t stream,
                                     const char *where, attend_args *a,
                                     uint32_t spread)
{
    if (a->dim <= 32)
        return launch_attend_dim<32, FORM>(d, stream, where, a, spread);
    if (a->dim <= 64)
        return launch_attend_dim<64, FORM>(d, stream, where, a, spread);
    if (a->dim <= 80)
        return launch_attend_dim<80, FORM>(d, stream, where, a, spread);
    if (a->dim <= 96)
        return launch_attend_dim<96, FORM>(d, stream, where, a, spread);
    if (a->dim <= 128)
        return launch_attend_dim<128, FORM>(d, stream, where, a, spread);
    return launch_attend_dim<256, FORM>(d, stream, where, a, spread);
}

/* The number of thread blocks that the splits of a query are spread over: as
 * many as give each multiprocessor two blocks; none if there are enough blocks
 * without. */
static uint32_t count_spread(const cuda_device *d, const attend_args *a)
{
    uint64_t blocks = a->tokens * a->kv_heads;
    uint64_t want = 2 * (uint64_t)d->sms;
    if (a->row_start || a->splits < 2 || blocks >= want)
        return 1;
    uint64_t n = (want + blocks - 1) / blocks;
    return (uint32_t)(n < a->splits ? n : a->splits);
}

xray_status attend_forward_bf16(cuda_device *d, cudaStream_t stream,
                                const char *where, attend_args *a)
{
    uint32_t spread = count_spread(d, a);
    if (spread > 1) {
        uint64_t n = a->tokens * a->heads * a->splits;
        void *data = NULL;
        xray_status s = cuda_scratch(d, CUDA_SCRATCH_ATTEND,
                                     n * (a->dim + 2) * sizeof(float), &data);
        if (s != XRAY_OK)
            return s;
        a->partial_ml = static_cast<float *>(data);
        a->partial = a->partial_ml + 2 * n;
    }
    xray_status s =
        !a->row_start
            ? launch_attend_any<ATTEND_CACHE>(d, stream, where, a, spread)
        : attend_is_joined(a)
            ? launch_attend_any<ATTEND_JOINED>(d, stream, where, a, spread)
            : launch_attend_any<ATTEND_ROWS>(d, stream, where, a, spread);
    if (s != XRAY_OK || spread == 1)
        return s;
    dim3 grid((uint32_t)a->tokens, a->heads);
    CU_LAUNCH(attend_join, grid, 64, 0, stream, *a);
    return cuda_launched(d, where);
}
