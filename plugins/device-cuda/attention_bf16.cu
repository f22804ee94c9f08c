/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention forward in bfloat16 (docs/numerics.md, xray.cuda-bf16/4). One
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
 * about half of the tensor cores' peak is the bound.
 */
#include "plugins/device-cuda/attention_decode.h"

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

/* Whether warps share the keys of small tiles. Two warps would have more
 * columns each than registers hold at head dimension 256. */
template <int WARPS, int FORM> struct attend_decodes {
    static const bool of = FORM == ATTEND_CACHE && WARPS >= 4;
};

/* Blocks that a multiprocessor is to hold. Over a cache they wait for device
 * memory, so the registers are to fit as many as the shared memory does. At
 * head dimension 64 a second block of packed rows, for which the compiler keeps
 * up to 40 bytes of a thread in memory, doubles the warps. */
template <int DIM, int FORM> struct attend_fit {
    static const int of = FORM != ATTEND_CACHE ? (DIM > 64 ? 1 : 2)
                          : DIM > 128          ? 1
                          : DIM > 80           ? 2
                          : DIM > 64           ? 3
                                               : 4;
};

template <int DIM, int WARPS, int STAGES, int FORM>
__global__ void __launch_bounds__(WARPS * 32, attend_fit<DIM, FORM>::of)
    attend_bf16(const attend_args a)
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
    if constexpr (attend_decodes<WARPS, FORM>::of)
        if (w.count * w.heads <= DECODE_ROWS) {
            decode_tile<DIM, WARPS>(&a, &w, b, last, shared);
            return;
        }
    uint16_t *tail = shared + STAGES * stage;
    uint16_t *queries = held ? shared + (STAGES - 1) * stage : tail;
    float *kept =
        reinterpret_cast<float *>(held ? tail : tail + WARPS * 16 * pitch);
    uint32_t row = threadIdx.x / 32 * 16;
    uint16_t *mine = queries + row * pitch;
    fold_rows r;
    lane_rows(&a, &w, row, &r);
    int idle = row >= w.count * w.heads;
    load_tile_queries<DIM, WARPS * 32>(&a, &w, WARPS * 16, queries);
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
        uint32_t next = next_block(b);
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
        uint32_t key = b * ATTEND_BLOCK;
        if (!idle && key <= r.high && key + ATTEND_BLOCK > r.low) {
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
            mask_scores<GROUPS>(s, &a, &r, key, c);
            fold_scores<DIM>(&f, s);
            product_columns<DIM, DIM, GROUPS>(f.o, s,
                                              keys + ATTEND_BLOCK * pitch, 0);
        }
        if (!idle && (next > last || next / PER != b / PER)) {
            fold_close<DIM>(&f);
            if (gridDim.z > 1)
                store_rows<DIM, 1>(&a, &w, &f, row, 0, b / PER);
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
        store_rows<DIM, 1>(&a, &w, &f, row, 0, 0);
}

#define JOINED 16u /* splits that a thread loads at once */

/* Joins the splits of a query in order, as join_split does. One thread block
 * per token and head, one thread per dimension. The loads of a few queries with
 * many splits wait for memory, not for each other. */
__global__ void __launch_bounds__(64) attend_join(const attend_args a)
{
    uint32_t t = blockIdx.x;
    if (t >= cu_count(a.tokens, a.live))
        return;
    uint32_t pos = (uint32_t)a.positions[t];
    uint32_t s0 = attend_first_key(pos, a.window) / ATTEND_SPLIT;
    uint32_t end = pos / ATTEND_SPLIT + 1;
    uint64_t at = ((uint64_t)t * a.heads + blockIdx.y) * a.splits;
    const float2 *ml = reinterpret_cast<const float2 *>(a.partial_ml) + at;
    for (uint32_t d = threadIdx.x; d < a.dim; d += blockDim.x) {
        const float *partial = a.partial + at * a.dim + d;
        float o = 0.0f;
        float max = NEG_INF;
        float sum = 0.0f;
        for (uint32_t base = s0; base < end; base += JOINED) {
            float x[JOINED];
            float2 y[JOINED];
#pragma unroll
            for (uint32_t i = 0; i < JOINED; i++) {
                uint32_t s = min(base + i, end - 1);
                x[i] = partial[(uint64_t)s * a.dim];
                y[i] = ml[s];
            }
#pragma unroll
            for (uint32_t i = 0; i < JOINED; i++) {
                if (base + i >= end)
                    break;
                if (base + i == s0) {
                    o = x[i];
                    max = y[i].x;
                    sum = y[i].y;
                    continue;
                }
                float by[2];
                join_weights(&max, &sum, y[i].x, y[i].y, by);
                o = fmaf(x[i], by[1], o * by[0]);
            }
        }
        uint64_t to =
            (uint64_t)t * a.o_stride + (uint64_t)blockIdx.y * a.dim + d;
        float y = o * (1.0f / sum);
        if (a.dtype == XRAY_BF16)
            cu_put1(static_cast<uint16_t *>(a.o) + to, y);
        else
            cu_put1(static_cast<float *>(a.o) + to, y);
    }
}

/* ---- the host's side ----------------------------------------------------- */

/* The shared memory of a block, whose warps keep the total of several splits if
 * `joins`. */
template <int DIM, int WARPS, int STAGES, int FORM>
static uint32_t count_shared_bytes(int joins)
{
    const uint32_t pitch = attend_pitch<DIM>::of;
    uint32_t bytes = STAGES * 2 * ATTEND_BLOCK * pitch * 2;
    if (DIM > 128)
        bytes += WARPS * 16 * pitch * 2;
    if (joins)
        bytes += WARPS * 32 * (DIM / 2) * 4;
    if (attend_decodes<WARPS, FORM>::of && bytes < sizeof(decode_space<DIM>))
        bytes = sizeof(decode_space<DIM>);
    return bytes;
}

template <int DIM, int WARPS, int STAGES, int FORM>
static xray_status launch_attend(cuda_device *d, cudaStream_t stream,
                                 const char *where, attend_args *a,
                                 uint32_t spread)
{
    uint32_t bytes = count_shared_bytes<DIM, WARPS, STAGES, FORM>(
        spread == 1 && a->splits > 1);
    attend_cut(a, WARPS * 16);
    uint32_t x = FORM == ATTEND_CACHE ? (uint32_t)a->tokens
                                      : attend_tiles(a, a->queries, a->tile);
    dim3 grid(x, a->kv_heads * a->parts, spread);
    ATTEND_START(d, where, (attend_bf16<DIM, WARPS, STAGES, FORM>), grid,
                 WARPS * 32, bytes, stream, *a);
    return cuda_launched(d, where);
}

/* Whether a kernel's blocks fit the GPU, whatever the number of splits. */
template <int DIM, int WARPS, int STAGES, int FORM>
static int attend_fits(const cuda_device *d)
{
    return count_shared_bytes<DIM, WARPS, STAGES, FORM>(1) <=
           (uint32_t)d->shared_most;
}

/* A block may have 227 KiB of shared memory on compute capability 9.0, 163 on
 * 8.0 and 99 on 8.6 and 8.9. */
template <int DIM, int FORM>
static xray_status launch_attend_dim(cuda_device *d, cudaStream_t stream,
                                     const char *where, attend_args *a,
                                     uint32_t spread)
{
    if constexpr (DIM <= 128) {
        const int warps = FORM == ATTEND_CACHE ? 4 : 8;
        if constexpr (DIM > 80)
            if (!attend_fits<DIM, warps, 2, FORM>(d))
                return launch_attend<DIM, warps, 1, FORM>(d, stream, where, a,
                                                          spread);
        return launch_attend<DIM, warps, 2, FORM>(d, stream, where, a, spread);
    } else {
        if (attend_fits<DIM, 4, 1, FORM>(d))
            return launch_attend<DIM, 4, 1, FORM>(d, stream, where, a, spread);
        if (attend_fits<DIM, 2, 1, FORM>(d))
            return launch_attend<DIM, 2, 1, FORM>(d, stream, where, a, spread);
        return launch_attend<DIM, 1, 1, FORM>(d, stream, where, a, spread);
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
