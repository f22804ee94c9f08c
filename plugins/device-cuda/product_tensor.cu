/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products in bfloat16. Operands are bf16, and the tensor cores sum in
 * fp32 in steps of sixteen terms, in index order, from the output's start or
 * the start of a segment; the first step of a piece of a segment begins with
 * the piece. The steps of an output do not depend on its tile, so all tiles
 * give the same bits: those for few tokens, which stream the matrix, those for
 * many, and those whose groups of warps sum segments at the same time.
 */
#include "plugins/device-cuda/cu.h"
#include "plugins/device-cuda/product_epilogue.h"
#include "plugins/device-cuda/segments.h"

#define STEP 16 /* terms per step */
#define CHUNK 8 /* bf16 values per copy */

/* The index of chunk `chunk` of row `row` in a tile whose rows hold ROW chunks.
 * It is swizzled, so that eight rows of one column of chunks fall into
 * different banks. */
template <int ROW> CU_FN uint32_t swizzle(uint32_t row, uint32_t chunk)
{
    enum { MASK = ROW < 8 ? ROW - 1 : 7 };
    return (row * ROW + (chunk ^ (row & MASK))) * CHUNK;
}

/* An operand of a tile: LINES rows of ROW chunks, from memory rows `first_line`
 * on and elements `first` on. The summed index runs along one of the two
 * directions. */
typedef struct tensor_operand {
    const uint16_t *data;
    uint64_t row;
    uint32_t lines; /* memory rows that exist */
    /* Elements that exist per line; zeros up to a multiple of 8. */
    uint32_t width;
    uint32_t gates; /* as product_line has it */
    uint32_t odd;   /* 1: lines are read from any element on */
} tensor_operand;

/* Copies a chunk that is not aligned and of which only `left` elements exist.
 */
CU_FN void copy_odd(uint16_t *to, const uint16_t *from, uint32_t left)
{
    uint32_t h[CHUNK];
#pragma unroll
    for (uint32_t j = 0; j < CHUNK; j++)
        h[j] = j < left ? from[j] : 0;
    *(uint4 *)(void *)to = make_uint4(h[0] | h[1] << 16, h[2] | h[3] << 16,
                                      h[4] | h[5] << 16, h[6] | h[7] << 16);
}

template <int Cut, int LINES, int ROW, int THREADS>
CU_FN void load_operand(uint16_t *tile, const tensor_operand *o, uint32_t line0,
                        uint32_t at0, uint32_t thread)
{
    enum { PARTS = LINES * ROW / THREADS, DOWN = THREADS / ROW };
    static_assert(PARTS * THREADS == LINES * ROW, "parts must divide the tile");
    static_assert(DOWN * ROW == THREADS, "lines must divide the threads");
    static_assert(DOWN % 2 == 0, "a thread must load either gates or none");
    uint32_t chunk = thread % ROW;
    uint32_t line = thread / ROW;
    uint32_t at = at0 + chunk * CHUNK;
    const uint16_t *from =
        o->data + product_line(o->gates, line0 + line) * o->row + at;
    uint64_t step = (o->gates ? DOWN / 2 : DOWN) * o->row;
    int in = at < o->width;
    if (Cut && o->odd) {
#pragma unroll 1
        for (int i = 0; i < PARTS; i++) {
            int there = in && line0 + line < o->lines;
            copy_odd(tile + swizzle<ROW>(line, chunk), from,
                     there ? o->width - at : 0);
            line += DOWN;
            from += step;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        int there = in && line0 + line < o->lines;
        cu_async16(tile + swizzle<ROW>(line, chunk), there ? from : o->data,
                   there ? 16 : 0);
        line += DOWN;
        from += step;
    }
}

/* Loads both operands of a step. */
template <int FORM, int Cut, int BM, int BN, int BK, int THREADS>
CU_FN void load_step(uint16_t *to, tensor_operand *a, tensor_operand *b,
                     uint32_t m0, uint32_t n0, const product_step *step,
                     uint32_t thread)
{
    enum { A_TURNED = FORM == PRODUCT_TN, B_TURNED = FORM != PRODUCT_NT };
    if (Cut) {
        *(A_TURNED ? &a->lines : &a->width) = step->end;
        *(B_TURNED ? &b->lines : &b->width) = step->end;
    }
    load_operand<Cut, A_TURNED ? BK : BM, (A_TURNED ? BM : BK) / CHUNK,
                 THREADS>(to, a, A_TURNED ? step->at : m0,
                          A_TURNED ? m0 : step->at, thread);
    load_operand<Cut, B_TURNED ? BK : BN, (B_TURNED ? BN : BK) / CHUNK,
                 THREADS>(to + BM * BK, b, B_TURNED ? step->at : n0,
                          B_TURNED ? n0 : step->at, thread);
}

/* Loads the a fragment of rows [m0, m0 + 16), step k0. A tile whose rows run
 * along the summed index is read transposed. */
template <int TURNED, int ROW>
CU_FN void fragment_a(uint32_t a[4], const uint16_t *tile, uint32_t m0,
                      uint32_t k0, uint32_t lane)
{
    if (TURNED)
        cu_ldmatrix4_t(a, tile + swizzle<ROW>(k0 + (lane >> 4) * 8 + (lane & 7),
                                              m0 / CHUNK + (lane >> 3 & 1)));
    else
        cu_ldmatrix4(
            a, tile + swizzle<ROW>(m0 + (lane & 15), k0 / CHUNK + (lane >> 4)));
}

/* Loads the b fragments of columns [n0, n0 + 16), step k0. */
template <int TURNED, int ROW>
CU_FN void fragment_b(uint32_t b[4], const uint16_t *tile, uint32_t n0,
                      uint32_t k0, uint32_t lane)
{
    if (TURNED)
        cu_ldmatrix4_t(
            b, tile + swizzle<ROW>(k0 + (lane >> 3 & 1) * 8 + (lane & 7),
                                   n0 / CHUNK + (lane >> 4)));
    else
        cu_ldmatrix4(b, tile + swizzle<ROW>(n0 + (lane >> 4) * 8 + (lane & 7),
                                            k0 / CHUNK + (lane >> 3 & 1)));
}

/* Loads the b fragments of columns [n0, n0 + 8), steps k0 and k0 + 16. */
template <int ROW>
CU_FN void fragment_b2(uint32_t b[4], const uint16_t *tile, uint32_t n0,
                       uint32_t k0, uint32_t lane)
{
    cu_ldmatrix4(
        b, tile + swizzle<ROW>(n0 + (lane & 7), k0 / CHUNK + (lane >> 3)));
}

/* Does one step of a warp's WM x WN outputs. */
template <int A_TURNED, int B_TURNED, int A_ROW, int B_ROW, int WM, int WN>
CU_FN void tensor_step(float (*c)[WN / 8][4], const uint16_t *at,
                       const uint16_t *bt, uint32_t wm, uint32_t wn,
                       uint32_t k0, uint32_t lane)
{
    uint32_t a[WM / 16][4];
    uint32_t b[WN / 16][4];
#pragma unroll
    for (int i = 0; i < WM / 16; i++)
        fragment_a<A_TURNED, A_ROW>(a[i], at, wm + (uint32_t)i * 16, k0, lane);
#pragma unroll
    for (int j = 0; j < WN / 16; j++)
        fragment_b<B_TURNED, B_ROW>(b[j], bt, wn + (uint32_t)j * 16, k0, lane);
#pragma unroll
    for (int i = 0; i < WM / 16; i++)
#pragma unroll
        for (int j = 0; j < WN / 8; j++)
            cu_mma_bf16(c[i][j], a[i], b[j / 2] + j % 2 * 2);
}

/* Does two steps of a warp's 16 x 8 outputs, or one. */
template <int A_ROW, int B_ROW>
CU_FN void tensor_steps_low(float c[4], const uint16_t *at, const uint16_t *bt,
                            uint32_t wn, uint32_t k0, uint32_t lane, int two)
{
    uint32_t a[4];
    uint32_t b[4];
    fragment_b2<B_ROW>(b, bt, wn, k0, lane);
    fragment_a<0, A_ROW>(a, at, 0, k0, lane);
    cu_mma_bf16(c, a, b);
    if (!two)
        return;
    fragment_a<0, A_ROW>(a, at, 0, k0 + STEP, lane);
    cu_mma_bf16(c, a, b + 2);
}

/* Maps a block to its tile, in groups of eight rows, so that blocks that run at
 * the same time share their operands in the L2 cache. */
CU_FN void tile_at(uint32_t m_tiles, uint32_t n_tiles, uint32_t *m, uint32_t *n)
{
    uint32_t group = blockIdx.x / (8 * n_tiles);
    uint32_t in = blockIdx.x % (8 * n_tiles);
    uint32_t high = m_tiles - group * 8;
    high = high < 8 ? high : 8;
    *m = group * 8 + in % high;
    *n = in / high;
}

/* Stores two outputs, aligned, as they are. */
CU_FN void put2(const product_gemm *g, uint64_t at, const float v[2])
{
    if (g->narrow & PRODUCT_NARROW_C)
        *(uint32_t *)(void *)((uint16_t *)g->c + at) = cu_pack_bf16(v[0], v[1]);
    else
        *(float2 *)(void *)((float *)g->c + at) = make_float2(v[0], v[1]);
}

/* Does the steps of a stage, of whose terms `left` are of the piece. Steps
 * beyond the last term are skipped, not summed as zeros, because their number
 * depends on the tile. */
template <int A_TURNED, int B_TURNED, int BM, int BN, int WM, int WN, int BK>
CU_FN void sum_stage(float (*c)[WN / 8][4], const uint16_t *at, uint32_t wm,
                     uint32_t wn, uint32_t lane, uint32_t left)
{
    enum {
        A_ROW = (A_TURNED ? BM : BK) / CHUNK,
        B_ROW = (B_TURNED ? BN : BK) / CHUNK,
        STEPS = BK / STEP
    };
    const uint16_t *bt = at + BM * BK;
    uint32_t steps = left < BK ? (left + STEP - 1) / STEP : BK / STEP;
    if constexpr (WN == 8) {
        if (steps == STEPS) {
#pragma unroll
            for (uint32_t s = 0; s < STEPS; s += 2)
                tensor_steps_low<A_ROW, B_ROW>(c[0][0], at, bt, wn, s * STEP,
                                               lane, 1);
            return;
        }
#pragma unroll 1
        for (uint32_t s = 0; s < steps; s += 2)
            tensor_steps_low<A_ROW, B_ROW>(c[0][0], at, bt, wn, s * STEP, lane,
                                           s + 1 < steps);
    } else if (steps == STEPS) {
#pragma unroll
        for (uint32_t s = 0; s < STEPS; s++)
            tensor_step<A_TURNED, B_TURNED, A_ROW, B_ROW, WM, WN>(
                c, at, bt, wm, wn, s * STEP, lane);
    } else {
#pragma unroll 1
        for (uint32_t s = 0; s < steps; s++)
            tensor_step<A_TURNED, B_TURNED, A_ROW, B_ROW, WM, WN>(
                c, at, bt, wm, wn, s * STEP, lane);
    }
}

/* Stores a warp's outputs, of which rows from m on do not exist. What their
 * sums start from is all read before the first is stored: c may be where it
 * comes from. */
template <int WM, int WN>
CU_FN void put_outputs(const product_gemm *g, float (*c)[WN / 8][4],
                       uint32_t row0, uint32_t col0, uint32_t m, uint32_t lane)
{
    row0 += lane / 4;
    col0 += lane % 4 * 2;
    if (!g->segments && (g->from || g->bias))
#pragma unroll
        for (int i = 0; i < WM / 16; i++)
#pragma unroll
            for (int j = 0; j < WN / 8; j++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    uint32_t row = row0 + (uint32_t)i * 16 + (uint32_t)h * 8;
                    uint32_t col = col0 + (uint32_t)j * 8;
                    if (row < m)
                        product_add_start(g, row, col, c[i][j] + 2 * h);
                }
#pragma unroll
    for (int i = 0; i < WM / 16; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t row = row0 + (uint32_t)i * 16 + (uint32_t)h * 8;
            if (row >= m)
                continue;
#pragma unroll
            for (int j = 0; j < WN / 8; j++) {
                uint32_t col = col0 + (uint32_t)j * 8;
                if (g->wide && col + 2 <= g->n)
                    put2(g, row * g->c_row + col, c[i][j] + 2 * h);
                else
                    product_put2(g, row, col, c[i][j][2 * h],
                                 c[i][j][2 * h + 1]);
            }
        }
}

/* Waits for the other warps of a group. */
template <int GROUPS, int THREADS> CU_FN void sync_group(uint32_t group)
{
    if constexpr (GROUPS == 1)
        __syncthreads();
    else if constexpr (THREADS == 32)
        __syncwarp();
    else
        cu_meet<THREADS>(1 + group);
}

/* Joins the N sums that a thread of each group has, by the upper levels of the
 * tree of segments: those of the first group become the sums of all. A group's
 * sums lie where its stages were, `bytes` apart. Returns whether the calling
 * thread has them. */
template <int GROUPS, int THREADS, int N>
CU_FN int join_groups(float c[N], unsigned char *shared, uint32_t bytes,
                      uint32_t group, uint32_t thread)
{
    sync_group<GROUPS, THREADS>(group); /* the stages have been read */
    float *mine = (float *)(void *)(shared + group * bytes) + thread;
    if (group > 0)
#pragma unroll
        for (uint32_t i = 0; i < N; i++)
            mine[i * THREADS] = c[i];
    __syncthreads();
    if (group > 0)
        return 0;
#pragma unroll
    for (uint32_t i = 0; i < N; i++) {
        float s[GROUPS];
        s[0] = c[i];
#pragma unroll
        for (uint32_t q = 1; q < GROUPS; q++)
            s[q] = mine[q * bytes / sizeof(float) + i * THREADS];
#pragma unroll
        for (uint32_t by = 1; by < GROUPS; by *= 2)
#pragma unroll
            for (uint32_t q = 0; q < GROUPS; q += 2 * by)
                s[q] = s[q] + s[q + by];
        c[i] = s[0];
    }
    return 1;
}

/* A block computes BM x BN outputs, a warp WM x WN of them; STAGES buffers in
 * shared memory are filled by asynchronous copies. Large tiles are bounded by
 * the tensor cores' rate for products of one warp, about 60 % of Hopper's rate
 * for groups of warps: a 64 x 64 warp tile reads 4 KiB of shared memory per 64
 * K multiply-adds, half of what the banks give, and a 128 x 256 tile reads 12
 * bytes of the L2 cache per 1024 of them. The tiles for few tokens, 16 rows
 * high, are bound by memory: each block streams its rows of the matrix once
 * through the buffers.
 *
 * An mma waits for the one before it in its chain, so an output's sum over one
 * segment after the other takes about 40 cycles per step and warp, whatever the
 * rate of the memory. Where there are segments, GROUPS groups of warps, each
 * with its own stages, sum `share` of them each for the same outputs. To stream
 * 4.3 TB/s at a latency of 0.7 us, 132 multiprocessors need 23 KiB of the
 * matrix in flight each: the stages of all groups but the ones that are being
 * read have at least 20 in a block, and the blocks that fit twice that. */
template <int FORM, int Cut, int BM, int BN, int WM, int WN, int BK, int STAGES,
          int GROUPS, int FIT>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32 * GROUPS, FIT)
    tensor_tile(product_gemm g)
{
    enum {
        THREADS = BM / WM * (BN / WN) * 32, /* of a group */
        A_TURNED = FORM == PRODUCT_TN,
        B_TURNED = FORM != PRODUCT_NT,
        STAGE = (BM + BN) * BK,
        SUMS = WM * WN / 32,
        LEVELS = GROUPS == 1   ? SEGMENT_LEVELS
                 : GROUPS == 2 ? 2
                               : 1
    };
    static_assert(GROUPS == 1 || Cut, "groups share segments");
    static_assert(GROUPS == 1 || 2 * STAGES * STAGE >= 4 * SUMS * THREADS,
                  "the sums of a group must fit its stages");
    CU_DYNAMIC(uint16_t, all);

    uint32_t m = g.m;
    uint32_t depth = g.k;
    if (g.live) {
        int64_t live = (int64_t)*g.live - (int64_t)g.live_from;
        uint32_t most = live < 0 ? 0 : (uint32_t)live;
        if (FORM == PRODUCT_TN)
            depth = depth < most ? depth : most;
        else
            m = m < most ? m : most;
    }
    uint32_t m0;
    uint32_t n0;
    tile_at((g.m + BM - 1) / BM, (g.n + BN - 1) / BN, &m0, &n0);
    m0 *= BM;
    n0 *= BN;
    if (m0 >= m || (FORM == PRODUCT_TN && depth == 0))
        return;

    const uint16_t *a = (const uint16_t *)g.a;
    const uint16_t *b = (const uint16_t *)g.b;
    uint32_t odd = Cut && (g.piece[0] | g.piece[1] | g.piece[2]) % CHUNK != 0;
    tensor_operand ao = {
        a, g.a_row, A_TURNED ? depth : m, A_TURNED ? m : depth, 0, odd
    };
    tensor_operand bo = { b,
                          g.b_row,
                          B_TURNED ? depth : g.n,
                          B_TURNED ? g.n : depth,
                          product_gates(&g),
                          odd && !B_TURNED };
    uint32_t group = 0;
    uint32_t thread = threadIdx.x;
    uint32_t first = 0; /* segment */
    product_step step = product_first(&g, depth);
    if (GROUPS > 1) {
        group = __shfl_sync(0xffffffffu, threadIdx.x / THREADS, 0);
        thread = threadIdx.x % THREADS;
        first = group * g.share;
        uint32_t stop = first + g.share;
        step =
            product_first_of(&g, first, stop < g.segments ? stop : g.segments);
    }
    uint16_t *shared = all + group * (STAGES * STAGE);
    uint32_t lane = thread % 32;
    uint32_t warp = thread / 32;
    uint32_t wm = warp / (BN / WN) * WM;
    uint32_t wn = warp % (BN / WN) * WN;

    product_step ahead = step;
#pragma unroll(Cut ? 1 : STAGES - 1)
    for (int s = 0; s < STAGES - 1; s++) {
        if (ahead.at < ahead.end) {
            load_step<FORM, Cut, BM, BN, BK, THREADS>(
                shared + s * STAGE, &ao, &bo, m0, n0, &ahead, thread);
            product_advance<Cut>(&g, &ahead, BK);
        }
        cu_async_commit();
    }

    float c[WM / 16][WN / 8][4] = {};
    float open[LEVELS][SUMS];
    uint32_t stage = 0;
    while (step.at < step.end) {
        cu_async_wait<STAGES - 2>();
        sync_group<GROUPS, THREADS>(group);
        if (ahead.at < ahead.end) {
            uint32_t into = stage == 0 ? STAGES - 1 : stage - 1;
            load_step<FORM, Cut, BM, BN, BK, THREADS>(
                shared + into * STAGE, &ao, &bo, m0, n0, &ahead, thread);
            product_advance<Cut>(&g, &ahead, BK);
        }
        cu_async_commit();
        sum_stage<A_TURNED, B_TURNED, BM, BN, WM, WN, BK>(
            c, shared + stage * STAGE, wm, wn, lane, step.end - step.at);
        uint32_t ended = product_advance<Cut>(&g, &step, BK);
        if (Cut && ended)
            end_segment<SUMS>(open, &c[0][0][0], ended - first,
                              step.stop - first);
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }

    if constexpr (GROUPS > 1)
        if (!join_groups<GROUPS, THREADS, SUMS>(
                &c[0][0][0], (unsigned char *)all,
                STAGES * STAGE * sizeof(uint16_t), group, thread))
            return;
    put_outputs<WM, WN>(&g, c, m0 + wm, n0 + wn, m, lane);
}

typedef void tensor_kernel(product_gemm g);

typedef struct tensor_form {
    tensor_kernel *kernel; /* NULL: there is no such kernel */
    uint32_t bm;
    uint32_t bn;
    uint32_t groups;
    uint32_t threads; /* of all groups */
    uint32_t bytes;   /* bytes of shared memory */
    uint32_t fit;     /* blocks that a multiprocessor holds */
    uint32_t alone;   /* cycles per step of a block that runs alone */
    /* Cycles per step that a block takes from the tensor cores */
    uint32_t each;
} tensor_form;

template <int FORM, int Cut, int BM, int BN, int WM, int WN, int BK, int STAGES,
          int GROUPS, int FIT>
static tensor_form form_of(uint32_t alone, uint32_t each)
{
    return tensor_form{
        tensor_tile<FORM, Cut, BM, BN, WM, WN, BK, STAGES, GROUPS, FIT>,
        BM,
        BN,
        GROUPS,
        BM / WM * (BN / WN) * 32 * GROUPS,
        (BM + BN) * BK * STAGES * GROUPS * (uint32_t)sizeof(uint16_t),
        FIT,
        alone,
        each
    };
}

/* The tiles for many tokens. */
template <int FORM, int Cut> static tensor_form large_of(int tile)
{
    switch (tile) {
    case 3:
        return form_of<FORM, Cut, 64, 64, 32, 32, 64, 4, 1, 3>(75, 65);
    case 4:
        return form_of<FORM, Cut, 128, 128, 64, 64, 64, 3, 1, 2>(240, 216);
    case 5:
        return form_of<FORM, Cut, 128, 256, 64, 64, 64, 3, 1, 1>(410, 403);
    default:
        return tensor_form{};
    }
}

/* The tiles for few tokens. */
static tensor_form small_of(int tile)
{
    switch (tile) {
    case 0:
        return form_of<PRODUCT_NT, 0, 16, 8, 16, 8, 128, 6, 1, 5>(40, 6);
    case 1:
        return form_of<PRODUCT_NT, 0, 16, 32, 16, 8, 128, 4, 1, 4>(45, 16);
    case 2:
        return form_of<PRODUCT_NT, 0, 32, 32, 16, 16, 128, 3, 1, 4>(50, 20);
    default:
        return large_of<PRODUCT_NT, 0>(tile);
    }
}

/* Those of several groups of warps. All but the one of 64 x 64 take the place
 * of a tile for few tokens of one group, which they are never slower than. */
static tensor_form split_of(int tile)
{
    switch (tile) {
    case 6:
        return form_of<PRODUCT_NT, 1, 16, 8, 16, 8, 128, 6, 2, 3>(20, 6);
    case 7:
        return form_of<PRODUCT_NT, 1, 16, 8, 16, 8, 128, 4, 4, 2>(10, 6);
    case 8:
        return form_of<PRODUCT_NT, 1, 16, 32, 16, 8, 128, 4, 2, 2>(23, 16);
    case 9:
        return form_of<PRODUCT_NT, 1, 16, 32, 16, 8, 128, 3, 4, 1>(16, 16);
    case 10:
        return form_of<PRODUCT_NT, 1, 32, 32, 16, 16, 128, 3, 2, 2>(25, 20);
    case 11:
        return form_of<PRODUCT_NT, 1, 32, 32, 16, 16, 64, 4, 4, 1>(20, 20);
    case 12:
        return form_of<PRODUCT_NT, 1, 64, 64, 64, 32, 64, 3, 2, 2>(54, 54);
    default:
        return large_of<PRODUCT_NT, 1>(tile);
    }
}

/* The segments of each of `groups` groups of warps, a power of two: the groups
 * have the lower levels of the tree, their join the upper ones. */
static uint32_t share_segments(uint32_t segments, uint32_t groups)
{
    uint32_t share = 1;
    while (share * groups < segments)
        share *= 2;
    return share;
}

static tensor_form tensor_form_of(const product_gemm *g, int tile)
{
    tensor_form f = {};
    if (g->form == PRODUCT_NT)
        f = g->segments ? split_of(tile) : small_of(tile);
    else if (g->form == PRODUCT_NN)
        f = g->segments ? large_of<PRODUCT_NN, 1>(tile)
                        : large_of<PRODUCT_NN, 0>(tile);
    else
        f = large_of<PRODUCT_TN, 0>(tile);
    /* No group is without segments. */
    if (f.groups > 1 &&
        (f.groups - 1) * share_segments(g->segments, f.groups) >= g->segments)
        f.kernel = NULL;
    return f;
}

static uint32_t count_tiles(uint32_t n, uint32_t by)
{
    return (n + by - 1) / by;
}

/* Lines of a step, of 32 bytes each, that the L2 cache gives all
 * multiprocessors in one of the cycles below: it gives about 5.6 TB/s. */
#define CACHE_LINES 200

/* The tile whose blocks, spread over the multiprocessors, should finish first,
 * and its cycles per step. It affects time, never bits. */
static int choose_tensor_tile(const cuda_device *d, const product_gemm *g,
                              uint64_t *out_time)
{
    uint64_t best = UINT64_MAX;
    int tile = 3;
    uint64_t sms = d->sms > 0 ? (uint64_t)d->sms : 1;
    for (int i = 0; i < PRODUCT_TENSOR_TILES; i++) {
        tensor_form f = tensor_form_of(g, i);
        if (!f.kernel || f.bytes > (uint32_t)d->shared_most)
            continue;
        uint64_t m_tiles = count_tiles(g->m, f.bm);
        uint64_t n_tiles = count_tiles(g->n, f.bn);
        uint64_t blocks = m_tiles * n_tiles;
        uint64_t cached = (n_tiles * g->m + m_tiles * g->n) / CACHE_LINES;
        uint64_t each = (blocks + sms - 1) / sms;
        uint64_t rounds = (each + f.fit - 1) / f.fit;
        uint64_t time =
            each * f.each > rounds * f.alone ? each * f.each : rounds * f.alone;
        time = time > cached ? time : cached;
        if (time < best) {
            best = time;
            tile = i;
        }
    }
    *out_time = best;
    return tile;
}

/* Measured on an H200, the tiles take about twice the cycles that they are
 * given above, which tell them from each other. */
#define SLOWER 2

xray_status product_tensor(const cuda_device *d, cudaStream_t stream,
                           const char *where, const product_gemm *g, int tile)
{
    if (g->m == 0 || g->n == 0)
        return XRAY_OK;
    if (tile < 0) {
        uint64_t time;
        tile = choose_tensor_tile(d, g, &time);
        xray_status status = product_bulk_time(d, g) < SLOWER * time
                                 ? product_bulk(d, stream, where, g)
                                 : XRAY_E_UNSUPPORTED;
        if (status != XRAY_E_UNSUPPORTED)
            return status;
    }
    tensor_form f = tensor_form_of(g, tile);
    if (!f.kernel)
        return cuda_fail(d, XRAY_E_UNSUPPORTED, where,
                         "tile %d has no kernel for this product", tile);
    if (f.bytes > (uint32_t)d->shared_most)
        return cuda_fail(d, XRAY_E_UNSUPPORTED, where,
                         "a block may have %d bytes of shared memory, but the "
                         "kernel needs %u",
                         d->shared_most, f.bytes);
    product_gemm own = *g;
    own.share =
        f.groups > 1 ? (uint8_t)share_segments(g->segments, f.groups) : 0;
    uint32_t pair = g->narrow & PRODUCT_NARROW_C ? 4 : 8; /* bytes */
    own.wide =
        product_ends(g) && (uintptr_t)g->c % pair == 0 && g->c_row % 2 == 0;
    cudaError_t e = cudaFuncSetAttribute(
        f.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)f.bytes);
    if (e != cudaSuccess)
        return cuda_check(d, where, e);
    CU_LAUNCH(f.kernel, dim3(count_tiles(g->m, f.bm) * count_tiles(g->n, f.bn)),
              f.threads, f.bytes, stream, own);
    return cuda_launched(d, where);
}
