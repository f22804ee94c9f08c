/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products in bfloat16. Operands are bf16, and the tensor cores sum in
 * fp32 in steps of sixteen terms, in index order, from the output's start or
 * the start of a piece of a segment, whose pieces are then added in order. The
 * steps of an output do not depend on its tile, so all tiles give the same
 * bits: those for few tokens, which stream the matrix, those for many, and
 * those whose groups of warps sum segments at the same time.
 */
#include "plugins/device-cuda/cu.h"
#include "plugins/device-cuda/product_tile.h"
#include "plugins/device-cuda/segments.h"

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

/* The threads of a group of which WARPS sum. Where that is one of several
 * groups' only warp, others load, so that it waits for little but its mma. */
template <int WARPS, int GROUPS> struct group_size {
    enum { THREADS = (WARPS == 1 && GROUPS > 1 ? 1 + 4 / GROUPS : WARPS) * 32 };
};

/* Waits for the other warps of a group. */
template <int GROUPS, int THREADS> CU_FN void sync_group(uint32_t group)
{
    if constexpr (GROUPS == 1)
        __syncthreads();
    else
        cu_meet<THREADS>(1 + group);
}

/* Joins the N sums that thread `thread` of each group has, by the upper levels
 * of the tree of segments: those of the first group become the sums of all. A
 * group's sums, COUNT of each index, lie where its STAGE_FLOATS of stages were,
 * which all of its warps have read. */
template <int GROUPS, int COUNT, int N, int STAGE_FLOATS>
CU_FN void join_groups(float c[N], float *stages, uint32_t group,
                       uint32_t thread)
{
    float *at = stages + group * STAGE_FLOATS + thread;
    if (group > 0 && thread < COUNT)
#pragma unroll
        for (uint32_t i = 0; i < N; i++)
            at[i * COUNT] = c[i];
    __syncthreads();
    if (group > 0 || thread >= COUNT)
        return;
#pragma unroll
    for (uint32_t i = 0; i < N; i++) {
        float s[GROUPS];
        s[0] = c[i];
#pragma unroll
        for (uint32_t q = 1; q < GROUPS; q++)
            s[q] = at[q * STAGE_FLOATS + i * COUNT];
#pragma unroll
        for (uint32_t by = 1; by < GROUPS; by *= 2)
#pragma unroll
            for (uint32_t q = 0; q < GROUPS; q += 2 * by)
                s[q] = s[q] + s[q + by];
        c[i] = s[0];
    }
}

/* The extents of a launch as far as tokens are live. */
template <int FORM>
CU_FN void live_extents(const product_gemm *g, uint32_t *m, uint32_t *depth)
{
    *m = g->m;
    *depth = g->k;
    if (!g->live)
        return;
    int64_t live = (int64_t)*g->live - (int64_t)g->live_from;
    uint32_t most = live < 0 ? 0 : (uint32_t)live;
    uint32_t *tokens = FORM == PRODUCT_TN ? depth : m;
    *tokens = *tokens < most ? *tokens : most;
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
 * Each mma of a chain waits for the one before it, so one warp that sums all
 * segments is slower than the memory. Where there are segments, GROUPS groups
 * of warps sum `share` of them each, for the same outputs, with stages of their
 * own. To copy 4.3 TB/s at a latency of 0.7 us, each of 132 multiprocessors has
 * to have 23 KiB of the matrix in flight: those of (STAGES - 1) x GROUPS stages
 * are 20 to 64 KiB in a block (docs/cuda.md has the table). */
template <int FORM, int Cut, int BM, int BN, int WM, int WN, int BK, int STAGES,
          int GROUPS, int FIT>
__global__ void
__launch_bounds__(GROUPS *group_size<BM / WM *(BN / WN), GROUPS>::THREADS, FIT)
    tensor_tile(product_gemm g)
{
    enum {
        WARPS = BM / WM * (BN / WN), /* of a group, that sum */
        THREADS = group_size<WARPS, GROUPS>::THREADS,
        APART = THREADS > WARPS * 32, /* other warps load */
        LOADERS = APART ? THREADS - WARPS * 32 : THREADS,
        A_TURNED = FORM == PRODUCT_TN,
        B_TURNED = FORM != PRODUCT_NT,
        STAGE = (BM + BN) * BK,
        SUMS = WM * WN / 32,
        PARTED = Cut && GROUPS == 1, /* segments may have several parts */
        /* In which sums of a group's segments wait */
        LEVELS = GROUPS == 1   ? SEGMENT_LEVELS
                 : GROUPS == 2 ? 2
                               : 1
    };
    static_assert(GROUPS == 1 || Cut, "groups share segments");
    static_assert(STAGES * STAGE >= 2 * BM * BN, "stages must hold the sums");
    CU_DYNAMIC(uint16_t, all);

    uint32_t m;
    uint32_t depth;
    uint32_t m0;
    uint32_t n0;
    live_extents<FORM>(&g, &m, &depth);
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
        stop = stop < g.segments ? stop : g.segments;
        step = product_first_of(&g, first, stop);
    }
    uint16_t *shared = all + group * (STAGES * STAGE);
    uint32_t lane = thread % 32;
    uint32_t warp = thread / 32;
    uint32_t wm = warp / (BN / WN) * WM;
    uint32_t wn = warp % (BN / WN) * WN;
    int sums = !APART || warp < WARPS;
    int loads = !APART || warp >= WARPS;
    uint32_t loader = APART ? thread - WARPS * 32 : thread;

    product_step ahead = step;
#pragma unroll(Cut ? 1 : STAGES - 1)
    for (int s = 0; s < STAGES - 1; s++) {
        if (loads && ahead.at < ahead.end) {
            load_step<FORM, Cut, BM, BN, BK, LOADERS>(
                shared + s * STAGE, &ao, &bo, m0, n0, &ahead, loader);
            product_advance<Cut>(&g, &ahead, BK);
        }
        cu_async_commit();
    }

    float c[WM / 16][WN / 8][4] = {};
    /* The last level has the sums of a segment's parts so far. */
    float open[LEVELS + PARTED][SUMS];
    uint32_t parts = PARTED ? product_parts(&g) : 1;
    uint32_t stage = 0;
    while (step.at < step.end) {
        cu_async_wait<STAGES - 2>();
        sync_group<GROUPS, THREADS>(group);
        if (loads && ahead.at < ahead.end) {
            uint32_t into = stage == 0 ? STAGES - 1 : stage - 1;
            load_step<FORM, Cut, BM, BN, BK, LOADERS>(
                shared + into * STAGE, &ao, &bo, m0, n0, &ahead, loader);
            product_advance<Cut>(&g, &ahead, BK);
        }
        cu_async_commit();
        if (sums)
            sum_stage<A_TURNED, B_TURNED, BM, BN, WM, WN, BK>(
                c, shared + stage * STAGE, wm, wn, lane, step.end - step.at);
        uint32_t part = step.part;
        uint32_t segment = step.segment;
        uint32_t ended = product_advance<Cut>(&g, &step, BK);
        if (PARTED && parts > 1 &&
            (step.part != part || step.segment != segment))
            end_part<SUMS>(open[LEVELS], &c[0][0][0], part, parts);
        if (Cut && ended)
            end_segment<SUMS>(open, &c[0][0][0], ended - first,
                              step.stop - first);
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }

    if constexpr (GROUPS > 1) {
        sync_group<GROUPS, THREADS>(group);
        join_groups<GROUPS, WARPS * 32, SUMS, STAGES * STAGE / 2>(
            &c[0][0][0], (float *)(void *)all, group, thread);
        if (group > 0 || !sums)
            return;
    }
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
        GROUPS * group_size<BM / WM *(BN / WN), GROUPS>::THREADS,
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

/* The tiles of several groups of warps, which take the place of the ones for
 * few tokens. Their cycles are estimates: what a step's copies and fragments
 * take of 128 bytes of shared memory per cycle, at the rate that tile 3 reaches
 * of it; a lone warp's chain takes longer. */
static tensor_form grouped_of(int tile)
{
    switch (tile) {
    case 6:
        return form_of<PRODUCT_NT, 1, 16, 8, 16, 8, 128, 4, 4, 2>(8, 8);
    case 7:
        return form_of<PRODUCT_NT, 1, 16, 8, 16, 8, 128, 6, 2, 3>(15, 8);
    case 8:
        return form_of<PRODUCT_NT, 1, 16, 32, 16, 8, 128, 3, 4, 1>(24, 24);
    case 9:
        return form_of<PRODUCT_NT, 1, 16, 32, 16, 8, 128, 4, 2, 2>(24, 24);
    case 10:
        return form_of<PRODUCT_NT, 1, 32, 32, 16, 16, 64, 4, 4, 1>(32, 32);
    case 11:
        return form_of<PRODUCT_NT, 1, 32, 32, 16, 16, 128, 3, 2, 2>(32, 32);
    case 12:
        return form_of<PRODUCT_NT, 1, 64, 32, 32, 32, 64, 4, 2, 2>(38, 38);
    case 13:
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
        f = g->segments ? grouped_of(tile) : small_of(tile);
    else if (g->form == PRODUCT_NN)
        f = g->segments ? large_of<PRODUCT_NN, 1>(tile)
                        : large_of<PRODUCT_NN, 0>(tile);
    else
        f = large_of<PRODUCT_TN, 0>(tile);
    /* No group is without segments, and their kernels know no parts, which only
     * the gradients of inputs have. */
    uint32_t others = f.groups - 1;
    if (f.groups > 1 &&
        (g->piece[1] ||
         others * share_segments(g->segments, f.groups) >= g->segments))
        f.kernel = NULL;
    return f;
}

static uint32_t count_tiles(uint32_t n, uint32_t by)
{
    return (n + by - 1) / by;
}

/* The cycles per step that the L2 cache takes for the rows of both operands, 32
 * bytes each, that all blocks read: an estimate that takes it to give 7 TB/s.
 * Sums without segments were measured with tiles that are chosen without it. */
static uint64_t cached_time(const product_gemm *g, const tensor_form *f)
{
    return g->segments ? ((uint64_t)count_tiles(g->n, f->bn) * g->m +
                          (uint64_t)count_tiles(g->m, f->bm) * g->n) /
                             256
                       : 0;
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
        uint64_t cached = cached_time(g, &f);
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
