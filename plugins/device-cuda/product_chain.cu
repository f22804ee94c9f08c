/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products in float32. Every output is one FMA chain in index order from
 * its start, or one for each segment, so a thread runs through the complete
 * summed index, and only outputs are cut.
 */
#include "plugins/device-cuda/cu.h"
#include "plugins/device-cuda/product_epilogue.h"
#include "plugins/device-cuda/segments.h"

#define WIDE_A 1u
#define WIDE_B 2u
#define WIDE_C 4u

CU_FN float widen_16(uint16_t h, uint32_t dtype)
{
    return dtype == XRAY_BF16 ? cu_from_bf16(h) : cu_from_f16(h);
}

/* Loads elements [at, at + 4) of p as floats. Elements from `left` on are 0 and
 * are not read. */
CU_FN void load4(float v[4], const void *p, uint64_t at, int left,
                 uint32_t dtype, uint32_t wide)
{
    if (dtype == XRAY_F32) {
        const float *x = (const float *)p + at;
        if (wide && left >= 4) {
            float4 q = *(const float4 *)(const void *)x;
            v[0] = q.x;
            v[1] = q.y;
            v[2] = q.z;
            v[3] = q.w;
            return;
        }
#pragma unroll
        for (int j = 0; j < 4; j++)
            v[j] = j < left ? x[j] : 0.0f;
        return;
    }
    const uint16_t *x = (const uint16_t *)p + at;
    if (wide && left >= 4) {
        ushort4 q = *(const ushort4 *)(const void *)x;
        v[0] = widen_16(q.x, dtype);
        v[1] = widen_16(q.y, dtype);
        v[2] = widen_16(q.z, dtype);
        v[3] = widen_16(q.w, dtype);
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
        v[j] = j < left ? widen_16(x[j], dtype) : 0.0f;
}

/* An operand of a tile: R outputs by BK of the summed index, loaded in fours
 * along whichever of the two is contiguous in memory. */
typedef struct chain_operand {
    const void *data;
    uint64_t row;
    uint32_t first; /* the output of the tile's first row or column */
    uint32_t outputs;
    uint32_t depth; /* where the summed index, or its piece, ends */
    uint32_t dtype;
    uint32_t wide;
    float scale;    /* of the values; 0: 1 */
    uint32_t gates; /* as product_line has it */
} chain_operand;

template <int TURNED, int R, int BK, int THREADS, int PARTS>
CU_FN void operand_load(float v[PARTS][4], const chain_operand *o, uint32_t k0)
{
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        uint32_t c = threadIdx.x + (uint32_t)(i * THREADS);
        uint32_t r = TURNED ? c % (R / 4) * 4 : c / (BK / 4);
        uint32_t k = TURNED ? c / (R / 4) : c % (BK / 4) * 4;
        r += o->first;
        k += k0;
        int left = TURNED ? (int)(o->outputs - r) : (int)(o->depth - k);
        if (TURNED ? k >= o->depth : r >= o->outputs)
            left = 0;
        uint64_t at =
            TURNED ? k * o->row + r : product_line(o->gates, r) * o->row + k;
        load4(v[i], o->data, at, left, o->dtype, o->wide);
        if (o->scale != 0.0f)
#pragma unroll
            for (int j = 0; j < 4; j++)
                v[i][j] = v[i][j] * o->scale;
    }
}

template <int TURNED, int R, int BK, int THREADS, int PARTS>
CU_FN void operand_store(float (*s)[R + 4], const float v[PARTS][4])
{
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        uint32_t c = threadIdx.x + (uint32_t)(i * THREADS);
        if constexpr (TURNED) {
            float *to = &s[c / (R / 4)][c % (R / 4) * 4];
            *(float4 *)(void *)to =
                make_float4(v[i][0], v[i][1], v[i][2], v[i][3]);
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++)
                s[c % (BK / 4) * 4 + (uint32_t)j][c / (BK / 4)] = v[i][j];
        }
    }
}

/* Maps the T values of a thread to indices in the tile: groups of V side by
 * side, so that a warp reads full lines of shared memory. */
template <int T, int V, int R> CU_FN uint32_t tile_index(uint32_t thread, int i)
{
    return (uint32_t)(i / V) * (R * V / T) + thread * V + (uint32_t)(i % V);
}

template <int T, int V, int R>
CU_FN void read_row(float v[T], const float *row, uint32_t thread)
{
#pragma unroll
    for (int i = 0; i < T; i += V) {
        const float *from = row + tile_index<T, V, R>(thread, i);
        if constexpr (V == 4) {
            float4 q = *(const float4 *)(const void *)from;
            v[i] = q.x;
            v[i + 1] = q.y;
            v[i + 2] = q.z;
            v[i + 3] = q.w;
        } else {
            float2 q = *(const float2 *)(const void *)from;
            v[i] = q.x;
            v[i + 1] = q.y;
        }
    }
}

/* Stores four outputs, aligned, as they are. */
CU_FN void put4(const product_gemm *g, uint64_t at, const float v[4])
{
    if (g->narrow & PRODUCT_NARROW_C)
        *(uint2 *)(void *)((uint16_t *)g->c + at) =
            make_uint2(cu_pack_bf16(v[0], v[1]), cu_pack_bf16(v[2], v[3]));
    else
        *(float4 *)(void *)((float *)g->c + at) =
            make_float4(v[0], v[1], v[2], v[3]);
}

/* A block computes BM x BN outputs, a thread TM x TN of them in registers;
 * shared memory holds BK steps of both operands in two alternating buffers.
 * Bound by the FMA units: the TM x TN chains of a thread need TM + TN shared
 * values per step, so the 128 x 128 tile (8 x 8 per thread) does four FMAs per
 * value read and should reach three quarters of the fp32 rate. The tile for few
 * tokens reads the matrix once for up to sixteen tokens and waits for
 * memory. */
template <int FORM, int Cut, int BM, int BN, int BK, int TM, int TN, int FIT>
__global__ void __launch_bounds__(BM / TM * (BN / TN), FIT)
    chain_tile(product_gemm g)
{
    enum {
        THREADS = BM / TM * (BN / TN),
        A_PARTS = BM * BK / 4 / THREADS,
        B_PARTS = BN * BK / 4 / THREADS,
        A_TURNED = FORM == PRODUCT_TN,
        B_TURNED = FORM != PRODUCT_NT,
        VM = TM < 4 ? TM : 4,
        VN = TN < 4 ? TN : 4
    };
    __shared__ __align__(16) float as[2][BK][BM + 4];
    __shared__ __align__(16) float bs[2][BK][BN + 4];

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
    uint32_t m0 = blockIdx.y * BM;
    uint32_t n0 = blockIdx.x * BN;
    if (m0 >= m || (FORM == PRODUCT_TN && depth == 0))
        return;
    uint32_t a_dtype =
        !A_TURNED && g.narrow & PRODUCT_NARROW_A ? XRAY_BF16 : XRAY_F32;
    chain_operand ao = { g.a,     g.a_row,         m0,      m, depth,
                         a_dtype, g.wide & WIDE_A, g.scale, 0 };
    chain_operand bo = {
        g.b,  g.b_row,          n0, g.n, depth, g.b_dtype, g.wide & WIDE_B,
        0.0f, product_gates(&g)
    };
    uint32_t tx = threadIdx.x % (BN / TN);
    uint32_t ty = threadIdx.x / (BN / TN);

    float c[TM][TN];
#pragma unroll
    for (int i = 0; i < TM; i++) {
        uint32_t row = m0 + tile_index<TM, VM, BM>(ty, i);
#pragma unroll
        for (int j = 0; j < TN; j++) {
            uint32_t col = n0 + tile_index<TN, VN, BN>(tx, j);
            int in = row < m && col < g.n;
            c[i][j] = in ? product_start(&g, row, col) : 0.0f;
        }
    }

    float av[A_PARTS][4];
    float bv[B_PARTS][4];
    product_step step = product_first(&g, depth);
    float open[SEGMENT_LEVELS][TM * TN];
    ao.depth = bo.depth = step.end;
    operand_load<A_TURNED, BM, BK, THREADS, A_PARTS>(av, &ao, 0);
    operand_load<B_TURNED, BN, BK, THREADS, B_PARTS>(bv, &bo, 0);
    int now = 0;
    while (step.at < step.end) {
        /* All threads have read the previous content of this buffer: they have
         * passed the barrier of the step before. */
        operand_store<A_TURNED, BM, BK, THREADS, A_PARTS>(as[now], av);
        operand_store<B_TURNED, BN, BK, THREADS, B_PARTS>(bs[now], bv);
        __syncthreads();
        product_step next = step;
        uint32_t ended = product_advance<Cut>(&g, &next, BK);
        if (next.at < next.end) {
            ao.depth = bo.depth = next.end;
            operand_load<A_TURNED, BM, BK, THREADS, A_PARTS>(av, &ao, next.at);
            operand_load<B_TURNED, BN, BK, THREADS, B_PARTS>(bv, &bo, next.at);
        }
        /* A padded term must not enter the chain: it would turn -0 into 0. */
        uint32_t left = step.end - step.at;
        int terms = left < BK ? (int)left : BK;
        float x[TM];
        float w[TN];
#pragma unroll 4
        for (int k = 0; k < terms; k++) {
            read_row<TM, VM, BM>(x, as[now][k], ty);
            read_row<TN, VN, BN>(w, bs[now][k], tx);
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++)
                    c[i][j] = fmaf(x[i], w[j], c[i][j]);
        }
        if (Cut && ended)
            end_segment<TM * TN>(open, &c[0][0], ended, g.segments);
        step = next;
        now ^= 1;
    }

#pragma unroll
    for (int i = 0; i < TM; i++) {
        uint32_t row = m0 + tile_index<TM, VM, BM>(ty, i);
        if (row >= m)
            continue;
#pragma unroll
        for (int j = 0; j < TN; j += VN) {
            uint32_t col = n0 + tile_index<TN, VN, BN>(tx, j);
            if (VN == 4 && (g.wide & WIDE_C) && col + 4 <= g.n) {
                put4(&g, row * g.c_row + col, &c[i][j]);
                continue;
            }
#pragma unroll
            for (int v = 0; v < VN; v += 2)
                product_put2(&g, row, col + (uint32_t)v, c[i][j + v],
                             c[i][j + v + 1]);
        }
    }
}

typedef void chain_kernel(product_gemm g);

typedef struct chain_form {
    chain_kernel *kernel;
    uint32_t bm;
    uint32_t bn;
    uint32_t threads;
} chain_form;

template <int FORM, int Cut> static chain_kernel *chain_of(int tile)
{
    return tile == 0   ? chain_tile<FORM, Cut, 16, 64, 32, 2, 4, 2>
           : tile == 1 ? chain_tile<FORM, Cut, 64, 64, 16, 4, 4, 2>
                       : chain_tile<FORM, Cut, 128, 128, 16, 8, 8, 1>;
}

static chain_form chain_form_of(const product_gemm *g, int tile)
{
    static const uint32_t bm[PRODUCT_CHAIN_TILES] = { 16, 64, 128 };
    static const uint32_t bn[PRODUCT_CHAIN_TILES] = { 64, 64, 128 };
    static const uint32_t threads[PRODUCT_CHAIN_TILES] = { 128, 256, 256 };
    chain_kernel *k;
    if (g->form == PRODUCT_NT)
        k = g->segments ? chain_of<PRODUCT_NT, 1>(tile)
                        : chain_of<PRODUCT_NT, 0>(tile);
    else if (g->form == PRODUCT_NN)
        k = g->segments ? chain_of<PRODUCT_NN, 1>(tile)
                        : chain_of<PRODUCT_NN, 0>(tile);
    else
        k = chain_of<PRODUCT_TN, 0>(tile);
    return chain_form{ k, bm[tile], bn[tile], threads[tile] };
}

static uint32_t count_tiles(uint32_t n, uint32_t by)
{
    return (n + by - 1) / by;
}

/* The largest tile that still gives every multiprocessor a block. */
static int choose_chain_tile(const cuda_device *d, const product_gemm *g)
{
    if (g->m <= 16)
        return 0;
    uint64_t large = (uint64_t)count_tiles(g->m, 128) * count_tiles(g->n, 128);
    return large >= (uint64_t)d->sms ? 2 : 1;
}

/* Whether fours of a row can be read or written at once. */
static uint32_t aligned_rows(const void *p, uint64_t row, int narrow)
{
    return (uintptr_t)p % (narrow ? 8 : 16) == 0 && row % 4 == 0;
}

xray_status product_chain(const cuda_device *d, cudaStream_t stream,
                          const char *where, const product_gemm *g, int tile)
{
    if (g->m == 0 || g->n == 0)
        return XRAY_OK;
    product_gemm own = *g;
    /* Rows along the summed index are read from the pieces' starts on. */
    int even = (g->piece[0] | g->piece[1] | g->piece[2]) % 4 == 0;
    own.wide =
        (even && aligned_rows(g->a, g->a_row, g->narrow & PRODUCT_NARROW_A)
             ? WIDE_A
             : 0) |
        ((even || g->form != PRODUCT_NT) &&
                 aligned_rows(g->b, g->b_row, g->b_dtype != XRAY_F32)
             ? WIDE_B
             : 0) |
        (product_ends(g) &&
                 aligned_rows(g->c, g->c_row, g->narrow & PRODUCT_NARROW_C)
             ? WIDE_C
             : 0);
    chain_form f = chain_form_of(g, tile < 0 ? choose_chain_tile(d, g) : tile);
    CU_LAUNCH(f.kernel, dim3(count_tiles(g->n, f.bn), count_tiles(g->m, f.bm)),
              f.threads, 0, stream, own);
    return cuda_launched(d, where);
}
