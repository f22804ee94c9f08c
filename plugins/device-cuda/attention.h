/* SPDX-License-Identifier: Apache-2.0
 *
 * Arguments and tiles that the attention kernels share.
 *
 * A thread block serves one kv head and one tile: consecutive tokens of one row
 * times the query heads that read the kv head. Query r of a tile is token r /
 * heads, head r % heads. In a packed batch, tiles are counted from the start of
 * each row. Over a cache, a tile starts at every token that does not follow the
 * one before it, and at every a.tile-th token. The result of a query does not
 * depend on its tile.
 *
 * Positions are those of the joined row: a row with a parent starts at the
 * parent's length, and the keys below that are the parent's tokens. A call may
 * also give only some queries of its rows. Kernels for rows without parents
 * that have all their queries are compiled separately, so those rows pay
 * nothing for this.
 */
#ifndef CUDA_ATTENTION_H
#define CUDA_ATTENTION_H

#include "plugins/device-cuda/attention_sizes.h"
#include "plugins/device-cuda/device.h"

#include "plugins/device-cuda/fmath.h"

/* Keys of a split in bfloat16; part of the numerics contract. */
#define ATTEND_SPLIT 256u
#define ATTEND_BLOCK 64u /* keys that share a maximum; divides a split */
#define ATTEND_DIM_MOST 256u

/* The layout of the keys of a row. */
#define ATTEND_ROWS 0 /* a packed batch */
/* A packed batch whose rows may have a parent, or only some of their queries.
 */
#define ATTEND_JOINED 1
#define ATTEND_CACHE 2

#define ATTEND_F32_WARPS 8u /* queries per block in float32, one warp each */

/* Arguments of every attention kernel. Tensors are in device memory. */
typedef struct attend_args {
    const void *q;
    const float *d_o; /* for gradients only, like the next four */
    float *dq;
    float *dk;
    float *dv;
    const float *delta; /* [queries, heads] sum of d_o o */
    void *o;
    float *lse;    /* [queries, heads], or NULL: not stored */
    const void *k; /* of `kv_dtype` */
    const void *v;
    const uint16_t *q_narrow; /* in bf16 for gradients; heads are dim8 apart */
    const uint16_t *d_narrow; /* [queries, heads, dim8] */
    /* [tokens, heads, splits, dim]; of gradients dk, then dv, [tokens, heads of
     * a launch, dim] */
    float *partial;
    float *partial_ml; /* [tokens, heads, splits, 2] maximum and sum */
    const int32_t *row_start;
    const int32_t *parent;      /* [rows], or NULL: no row has a parent */
    const int32_t *query_start; /* row_start if rows have all their queries */
    const int32_t *query_first; /* [rows], or NULL: they have */
    const int32_t *seq;
    const int32_t *positions;
    const int32_t *live;
    const int32_t *table;
    uint64_t tokens; /* upper bound; `live` has the actual number */
    uint64_t queries;
    uint64_t q_stride;
    uint64_t o_stride;
    uint64_t q_narrow_stride;
    uint64_t dq_stride;
    uint64_t dk_stride;
    uint64_t dv_stride;
    uint64_t k_stride; /* elements between two keys */
    uint64_t v_stride;
    uint64_t head_step;  /* elements between the keys of two kv heads */
    uint64_t block_step; /* elements between two cache blocks */
    uint64_t table_stride;
    uint64_t per_block; /* 2^64 / block_tokens, rounded up */
    uint32_t dtype;     /* of q and o: XRAY_F32 or XRAY_BF16 */
    uint32_t kv_dtype;  /* of k and v where kernels read them */
    uint32_t block_tokens;
    uint32_t rows;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t group; /* heads / kv_heads */
    uint32_t dim;
    uint32_t dim8; /* dim rounded up to pieces of 16 bytes of bf16 */
    uint32_t window;
    uint32_t tile;  /* tokens per tile */
    uint32_t parts; /* tiles that the heads of a group are cut into */
    uint32_t wide;  /* heads per tile */
    uint32_t splits;
    uint32_t first_head; /* of a launch for dk and dv */
    float scale;
    float softcap;
} attend_args;

/* The tile of a thread block, the same in all its threads. */
typedef struct attend_tile {
    uint32_t token;  /* first token */
    uint32_t count;  /* number of tokens; 0: nothing to do */
    uint32_t pos;    /* position of the first token */
    uint32_t row;    /* in a packed batch, like the next three */
    uint32_t before; /* tokens of the parent; 0 without one */
    uint32_t origin; /* the parent's first token */
    uint32_t shift;  /* difference between an own key's token and position */
    uint32_t kv;     /* kv head */
    uint32_t head;   /* first query head */
    uint32_t heads;  /* query heads of this tile */
    uint32_t first;  /* cache: the number of the first block without a table */
    const int32_t *table;
} attend_tile;

CU_FN uint32_t attend_first_key(uint32_t pos, uint32_t window)
{
    return window && pos + 1 > window ? pos + 1 - window : 0;
}

/* Finds the row of tile x, where every row is cut into tiles of `tile` tokens,
 * and the tile's index in that row. The last tile of a row comes first, because
 * it has the most keys. Called by complete warps. */
CU_FN int attend_find_row(const int32_t *row_start, uint32_t rows,
                          uint32_t tile, uint32_t x, uint32_t out[2])
{
    uint32_t lane = threadIdx.x % 32;
    uint32_t before = 0;
    for (uint32_t base = 0; base < rows; base += 32) {
        uint32_t r = base + lane;
        uint32_t n = 0;
        if (r < rows)
            n = ((uint32_t)(row_start[r + 1] - row_start[r]) + tile - 1) / tile;
        uint32_t end = n;
        for (uint32_t by = 1; by < 32; by *= 2) {
            uint32_t other = __shfl_up_sync(CU_FULL, end, by);
            end += lane >= by ? other : 0;
        }
        uint32_t past = __ballot_sync(CU_FULL, before + end <= x);
        if (past != CU_FULL) {
            int found = __popc(past);
            uint32_t last = __shfl_sync(CU_FULL, before + end, found);
            out[0] = base + (uint32_t)found;
            out[1] = last - 1 - x;
            return 1;
        }
        before += __shfl_sync(CU_FULL, end, 31);
    }
    return 0;
}

/* A row of a packed batch. */
typedef struct attend_row {
    uint32_t start;  /* first own token */
    uint32_t length; /* own tokens */
    /* Tokens of the parent: the position of the first own token. */
    uint32_t before;
    uint32_t origin;  /* the parent's first token */
    uint32_t query;   /* token of the first query */
    uint32_t queries; /* number of queries */
    uint32_t first;   /* position of the first query */
} attend_row;

template <bool JOINED>
CU_FN attend_row attend_row_of(const attend_args *a, uint32_t r)
{
    attend_row row = {};
    row.start = (uint32_t)a->row_start[r];
    row.length = (uint32_t)a->row_start[r + 1] - row.start;
    if (JOINED && a->parent && a->parent[r] >= 0) {
        int32_t p = a->parent[r];
        row.origin = (uint32_t)a->row_start[p];
        row.before = (uint32_t)a->row_start[p + 1] - row.origin;
    }
    row.query = row.start;
    row.queries = row.length;
    row.first = row.before;
    if (JOINED && a->query_first) {
        row.query = (uint32_t)a->query_start[r];
        row.queries = (uint32_t)a->query_start[r + 1] - row.query;
        row.first = (uint32_t)a->query_first[r];
    }
    return row;
}

/* Whether token t continues the sequence of the token before it. */
CU_FN int attend_follows(const attend_args *a, uint32_t t)
{
    return a->seq[t] == a->seq[t - 1] &&
           a->positions[t] == a->positions[t - 1] + 1;
}

/* The number of tokens in the tile that token t starts; 0 if it starts none. */
CU_FN uint32_t attend_run(const attend_args *a, uint32_t t)
{
    uint32_t tokens = (uint32_t)cu_count(a->tokens, a->live);
    uint32_t lane = threadIdx.x % 32;
    if (t >= tokens || (t % a->tile != 0 && attend_follows(a, t)))
        return 0;
    uint32_t end = min(tokens, (t / a->tile + 1) * a->tile);
    for (uint32_t base = t + 1; base < end; base += 32) {
        int more = base + lane < end && attend_follows(a, base + lane);
        uint32_t stop = ~__ballot_sync(CU_FULL, more);
        if (stop)
            return base + (uint32_t)__ffs((int)stop) - 1 - t;
    }
    return end - t;
}

/* With OF_KEYS, finds a tile of a packed batch's keys instead, whose `token`
 * and `pos` are those of a key. */
template <int FORM, bool OF_KEYS = false>
CU_FN attend_tile attend_find(const attend_args *a, uint32_t x, uint32_t y)
{
    attend_tile w = {};
    uint32_t part = y % a->parts;
    w.kv = y / a->parts;
    w.head = w.kv * a->group + part * a->wide;
    w.heads = min(a->wide, a->group - part * a->wide);
    if (FORM == ATTEND_CACHE) {
        w.token = x;
        w.count = attend_run(a, x);
        if (w.count == 0)
            return w;
        uint64_t slot = (uint64_t)(uint32_t)a->seq[x] * a->table_stride;
        w.pos = (uint32_t)a->positions[x];
        w.table = a->table ? a->table + slot : NULL;
        w.first = (uint32_t)slot;
        return w;
    }
    uint32_t at[2];
    if (!attend_find_row(OF_KEYS ? a->row_start : a->query_start, a->rows,
                         a->tile, x, at))
        return w;
    attend_row row = attend_row_of<FORM == ATTEND_JOINED>(a, at[0]);
    uint32_t first = at[1] * a->tile;
    w.row = at[0];
    w.before = row.before;
    w.origin = row.origin;
    w.shift = row.start - row.before;
    w.pos = (OF_KEYS ? row.before : row.first) + first;
    w.token = (OF_KEYS ? row.start : row.query) + first;
    w.count = min(a->tile, (OF_KEYS ? row.length : row.queries) - first);
    return w;
}

/* The cache block of a row that has key j: j / block_tokens, exactly, because j
 * times the error of per_block is less than 2^64. A division takes five times
 * as many instructions. */
CU_FN uint32_t attend_block_of(const attend_args *a, uint32_t j)
{
    uint64_t low = (uint64_t)j * (uint32_t)a->per_block >> 32;
    return (uint32_t)((j * (a->per_block >> 32) + low) >> 32);
}

/* The index of key j's first element in a.k, or in a.v with its stride. */
template <int FORM>
CU_FN uint64_t attend_key(const attend_args *a, const attend_tile *w,
                          uint32_t j, uint64_t stride)
{
    uint64_t head = w->kv * a->head_step;
    if (FORM == ATTEND_JOINED && j < w->before)
        return head + (w->origin + j) * stride;
    if (FORM != ATTEND_CACHE)
        return head + (w->shift + j) * stride;
    uint32_t b = attend_block_of(a, j);
    uint64_t n = w->table ? (uint32_t)w->table[b] : w->first + b;
    return n * a->block_step + head + (j - b * a->block_tokens) * stride;
}

/* Eight values from x on as bf16: the first `left` of them, 0 for the others.
 */
CU_FN uint4 attend_piece(const float *x, uint32_t left)
{
    float v[8];
    if (((uintptr_t)x & 15u) == 0 && left >= 8) {
        float4 low = *reinterpret_cast<const float4 *>(x);
        float4 high = *reinterpret_cast<const float4 *>(x + 4);
        v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
        v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
    } else {
#pragma unroll
        for (uint32_t e = 0; e < 8; e++)
            v[e] = e < left ? x[e] : 0.0f;
    }
    return make_uint4(cu_pack_bf16(v[0], v[1]), cu_pack_bf16(v[2], v[3]),
                      cu_pack_bf16(v[4], v[5]), cu_pack_bf16(v[6], v[7]));
}

CU_FN uint4 attend_piece(const uint16_t *x, uint32_t left)
{
    if (((uintptr_t)x & 15u) == 0 && left >= 8)
        return *reinterpret_cast<const uint4 *>(x);
    uint32_t v[4];
#pragma unroll
    for (uint32_t e = 0; e < 8; e += 2) {
        uint32_t low = e < left ? x[e] : 0;
        uint32_t high = e + 1 < left ? x[e + 1] : 0;
        v[e / 2] = low | high << 16;
    }
    return make_uint4(v[0], v[1], v[2], v[3]);
}

/* ---- what the host calls ------------------------------------------------- */

/* Cuts the heads of a group into tiles of at most `most` queries per block; y
 * of the grid is kv_heads * parts. */
static inline void attend_cut(attend_args *a, uint32_t most)
{
    a->wide = a->group < most ? a->group : most;
    a->parts = (a->group + a->wide - 1) / a->wide;
    a->tile = most / a->wide;
}

/* The number of blocks that is enough for the tiles of a packed batch of `n`
 * keys or queries. */
static inline uint32_t attend_tiles(const attend_args *a, uint64_t n,
                                    uint32_t tile)
{
    return (uint32_t)(n / tile) + a->rows;
}

/* Whether a packed batch needs the kernels of ATTEND_JOINED. */
static inline int attend_is_joined(const attend_args *a)
{
    return a->parent || a->query_first;
}

/* Launches a kernel after raising its limit of dynamic shared memory, which is
 * 48 KiB otherwise. */
#define ATTEND_START(d, where, kernel, grid, threads, bytes, stream, ...) \
    do {                                                                  \
        if ((bytes) > (uint32_t)(d)->shared_most)                         \
            return cuda_fail(d, XRAY_E_UNSUPPORTED, where,                \
                             "a block needs %u bytes of shared memory, "  \
                             "but has at most %d on this GPU",            \
                             (unsigned)(bytes), (d)->shared_most);        \
        if ((bytes) > 48u * 1024u) {                                      \
            xray_status s_ = cuda_check(                                  \
                d, where,                                                 \
                cudaFuncSetAttribute(                                     \
                    kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,  \
                    (int)(bytes)));                                       \
            if (s_ != XRAY_OK)                                            \
                return s_;                                                \
        }                                                                 \
        CU_LAUNCH(kernel, grid, threads, bytes, stream, __VA_ARGS__);     \
    } while (0)

xray_status attend_forward_f32(cuda_device *d, cudaStream_t stream,
                               const char *where, attend_args *a);
xray_status attend_grad_f32(cuda_device *d, cudaStream_t stream,
                            const char *where, attend_args *a);
/* a.k and a.v are bf16. With a.splits > 0, the splits of a query are spread
 * over that many thread blocks. */
xray_status attend_forward_bf16(cuda_device *d, cudaStream_t stream,
                                const char *where, attend_args *a);
xray_status attend_grad_bf16(cuda_device *d, cudaStream_t stream,
                             const char *where, attend_args *a);

#endif
