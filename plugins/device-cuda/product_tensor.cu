/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products in bfloat16. Operands are bf16, and the tensor cores sum in
 * fp32 in steps of sixteen terms, in index order, from the output's start or
 * the start of a piece of a segment, whose pieces are then added in order. The
 * steps of an output do not depend on its tile, so all tiles give the same
 * bits: those for few tokens, which stream the matrix, and those for many.
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
                        uint32_t at0)
{
    enum { PARTS = LINES * ROW / THREADS, DOWN = THREADS / ROW };
    static_assert(PARTS * THREADS == LINES * ROW, "parts must divide the tile");
    static_assert(DOWN * ROW == THREADS, "lines must divide the threads");
    static_assert(DOWN % 2 == 0, "a thread must load either gates or none");
    uint32_t chunk = threadIdx.x % ROW;
    uint32_t line = threadIdx.x / ROW;
    uint32_t at = at0 + chunk * CHUNK;
    const uint16_t *from =
        o->data + product_line(o->gates, line0 + line) * o->row + at;
    uint64_t step = (o->gates ? DOWN / 2 : DOWN) * o->row;
    int in = at < o->width;
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        int there = in && line0 + line < o->lines;
        uint16_t *to = tile + swizzle<ROW>(line, chunk);
        if (Cut && o->odd)
            copy_odd(to, from, there ? o->width - at : 0);
        else
            cu_async16(to, there ? from : o->data, there ? 16 : 0);
        line += DOWN;
        from += step;
    }
}

/* Loads both operands of a step. */
template <int FORM, int Cut, int BM, int BN, int BK, int THREADS>
CU_FN void load_step(uint16_t *to, tensor_operand *a, tensor_operand *b,
                     uint32_t m0, uint32_t n0, const product_step *step)
{
    enum { A_TURNED = FORM == PRODUCT_TN, B_TURNED = FORM != PRODUCT_NT };
    if (Cut) {
        *(A_TURNED ? &a->lines : &a->width) = step->end;
        *(B_TURNED ? &b->lines : &b->width) = step->end;
    }
    load_operand<Cut, A_TURNED ? BK : BM, (A_TURNED ? BM : BK) / CHUNK,
                 THREADS>(to, a, A_TURNED ? step->at : m0,
                          A_TURNED ? m0 : step->at);
    load_operand<Cut, B_TURNED ? BK : BN, (B_TURNED ? BN : BK) / CHUNK,
                 THREADS>(to + BM * BK, b, B_TURNED ? step->at : n0,
                          B_TURNED ? n0 : step->at);
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

/* A block computes BM x BN outputs, a warp WM x WN of them; STAGES buffers in
 * shared memory are filled by asynchronous copies. Large tiles are bounded by
 * the tensor cores' rate for products of one warp, about 60 % of Hopper's rate
 * for groups of warps: a 64 x 64 warp tile reads 4 KiB of shared memory per 64
 * K multiply-adds, half of what the banks give, and a 128 x 256 tile reads 12
 * bytes of the L2 cache per 1024 of them. The tiles for few tokens, 16 rows
 * high, are bound by memory: each block streams its rows of the matrix once
 * through the buffers, without a cut of the summed index. */
template <int FORM, int Cut, int BM, int BN, int WM, int WN, int BK, int STAGES,
          int FIT>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32, FIT)
    tensor_tile(product_gemm g)
{
    enum {
        THREADS = BM / WM * (BN / WN) * 32,
        A_TURNED = FORM == PRODUCT_TN,
        B_TURNED = FORM != PRODUCT_NT,
        A_ROW = (A_TURNED ? BM : BK) / CHUNK,
        B_ROW = (B_TURNED ? BN : BK) / CHUNK,
        A_TILE = BM * BK,
        STAGE = (BM + BN) * BK
    };
    CU_DYNAMIC(uint16_t, shared);

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
    uint32_t lane = threadIdx.x % 32;
    uint32_t warp = threadIdx.x / 32;
    uint32_t wm = warp / (BN / WN) * WM;
    uint32_t wn = warp % (BN / WN) * WN;

    product_step step = product_first(&g, depth);
    product_step ahead = step;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (ahead.at < ahead.end) {
            load_step<FORM, Cut, BM, BN, BK, THREADS>(shared + s * STAGE, &ao,
                                                      &bo, m0, n0, &ahead);
            product_advance<Cut>(&g, &ahead, BK);
        }
        cu_async_commit();
    }

    float c[WM / 16][WN / 8][4] = {};
    float open[SEGMENT_LEVELS][WM * WN / 32];
    float whole[WM * WN / 32];
    uint32_t parts = Cut ? product_parts(&g) : 1;
    uint32_t stage = 0;
    while (step.at < step.end) {
        cu_async_wait<STAGES - 2>();
        __syncthreads();
        if (ahead.at < ahead.end) {
            uint32_t into = stage == 0 ? STAGES - 1 : stage - 1;
            load_step<FORM, Cut, BM, BN, BK, THREADS>(shared + into * STAGE,
                                                      &ao, &bo, m0, n0, &ahead);
            product_advance<Cut>(&g, &ahead, BK);
        }
        cu_async_commit();

        const uint16_t *at = shared + stage * STAGE;
        const uint16_t *bt = at + A_TILE;
        uint32_t left = step.end - step.at;
        uint32_t steps = left < BK ? (left + STEP - 1) / STEP : BK / STEP;
        /* Steps beyond the last term are skipped, not summed as zeros, because
         * their number depends on the tile. */
        if constexpr (WN == 8) {
#pragma unroll
            for (uint32_t s = 0; s < BK / STEP; s += 2)
                if (s < steps)
                    tensor_steps_low<A_ROW, B_ROW>(
                        c[0][0], at, bt, wn, s * STEP, lane, s + 1 < steps);
        } else if (steps == BK / STEP) {
#pragma unroll
            for (uint32_t s = 0; s < BK / STEP; s++)
                tensor_step<A_TURNED, B_TURNED, A_ROW, B_ROW, WM, WN>(
                    c, at, bt, wm, wn, s * STEP, lane);
        } else {
#pragma unroll 1
            for (uint32_t s = 0; s < steps; s++)
                tensor_step<A_TURNED, B_TURNED, A_ROW, B_ROW, WM, WN>(
                    c, at, bt, wm, wn, s * STEP, lane);
        }
        uint32_t run = step.run;
        uint32_t ended = product_advance<Cut>(&g, &step, BK);
        if (Cut && step.run != run && parts > 1)
            end_part<WM * WN / 32>(whole, &c[0][0][0], run % parts, parts);
        if (Cut && ended)
            end_segment<WM * WN / 32>(open, &c[0][0][0], ended, g.segments);
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }

    /* All are read before the first is stored: c may be where they come from.
     */
    if (!g.segments && (g.from || g.bias))
#pragma unroll
        for (int i = 0; i < WM / 16; i++)
#pragma unroll
            for (int j = 0; j < WN / 8; j++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    uint32_t row =
                        m0 + wm + (uint32_t)i * 16 + lane / 4 + (uint32_t)h * 8;
                    uint32_t col = n0 + wn + (uint32_t)j * 8 + lane % 4 * 2;
                    if (row < m)
                        product_add_start(&g, row, col, c[i][j] + 2 * h);
                }
#pragma unroll
    for (int i = 0; i < WM / 16; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t row =
                m0 + wm + (uint32_t)i * 16 + lane / 4 + (uint32_t)h * 8;
            if (row >= m)
                continue;
#pragma unroll
            for (int j = 0; j < WN / 8; j++) {
                uint32_t col = n0 + wn + (uint32_t)j * 8 + lane % 4 * 2;
                if (g.wide && col + 2 <= g.n)
                    put2(&g, row * g.c_row + col, c[i][j] + 2 * h);
                else
                    product_put2(&g, row, col, c[i][j][2 * h],
                                 c[i][j][2 * h + 1]);
            }
        }
}

typedef void tensor_kernel(product_gemm g);

typedef struct tensor_form {
    tensor_kernel *kernel; /* NULL: there is no such kernel */
    uint32_t bm;
    uint32_t bn;
    uint32_t threads;
    uint32_t bytes; /* bytes of shared memory */
    uint32_t fit;   /* blocks that a multiprocessor holds */
    uint32_t alone; /* cycles per step of a block that runs alone */
    /* Cycles per step that a block takes from the tensor cores */
    uint32_t each;
} tensor_form;

#define TENSOR_BYTES(bm, bn, bk, stages) \
    (((bm) + (bn)) * (bk) * (stages) * (uint32_t)sizeof(uint16_t))

/* Tiles for few tokens are only for PRODUCT_NT. */
template <int FORM, int Cut> static tensor_kernel *tensor_of(int tile)
{
    if (tile >= 3)
        return tile == 3   ? tensor_tile<FORM, Cut, 64, 64, 32, 32, 64, 4, 3>
               : tile == 4 ? tensor_tile<FORM, Cut, 128, 128, 64, 64, 64, 3, 2>
                           : tensor_tile<FORM, Cut, 128, 256, 64, 64, 64, 3, 1>;
    if constexpr (FORM == PRODUCT_NT)
        return tile == 0   ? tensor_tile<FORM, Cut, 16, 8, 16, 8, 128, 6, 4>
               : tile == 1 ? tensor_tile<FORM, Cut, 16, 32, 16, 8, 128, 4, 4>
                           : tensor_tile<FORM, Cut, 32, 32, 16, 16, 128, 3, 4>;
    return NULL;
}

static tensor_form tensor_form_of(const product_gemm *g, int tile)
{
    static const tensor_form forms[PRODUCT_TENSOR_TILES] = {
        { NULL, 16, 8, 32, TENSOR_BYTES(16, 8, 128, 6), 5, 40, 6 },
        { NULL, 16, 32, 128, TENSOR_BYTES(16, 32, 128, 4), 4, 45, 16 },
        { NULL, 32, 32, 128, TENSOR_BYTES(32, 32, 128, 3), 4, 50, 20 },
        { NULL, 64, 64, 128, TENSOR_BYTES(64, 64, 64, 4), 3, 75, 65 },
        { NULL, 128, 128, 128, TENSOR_BYTES(128, 128, 64, 3), 2, 240, 216 },
        { NULL, 128, 256, 256, TENSOR_BYTES(128, 256, 64, 3), 1, 410, 403 },
    };
    tensor_form f = forms[tile];
    if (g->form == PRODUCT_NT)
        f.kernel = g->segments ? tensor_of<PRODUCT_NT, 1>(tile)
                               : tensor_of<PRODUCT_NT, 0>(tile);
    else if (g->form == PRODUCT_NN)
        f.kernel = g->segments ? tensor_of<PRODUCT_NN, 1>(tile)
                               : tensor_of<PRODUCT_NN, 0>(tile);
    else
        f.kernel = tensor_of<PRODUCT_TN, 0>(tile);
    return f;
}

static uint32_t count_tiles(uint32_t n, uint32_t by)
{
    return (n + by - 1) / by;
}

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
        uint64_t blocks =
            (uint64_t)count_tiles(g->m, f.bm) * count_tiles(g->n, f.bn);
        uint64_t each = (blocks + sms - 1) / sms;
        uint64_t rounds = (each + f.fit - 1) / f.fit;
        uint64_t time =
            each * f.each > rounds * f.alone ? each * f.each : rounds * f.alone;
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

extern "C" uint64_t product_tensor_time(const cuda_device *d,
                                        const product_gemm *g)
{
    uint64_t time;
    (void)choose_tensor_tile(d, g, &time);
    return SLOWER * time;
}

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
    if (!f.kernel || f.bytes > (uint32_t)d->shared_most)
        return cuda_fail(d, XRAY_E_UNSUPPORTED, where,
                         "a block may have %d bytes of shared memory, but the "
                         "kernel needs %u",
                         d->shared_most, f.bytes);
    product_gemm own = *g;
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
