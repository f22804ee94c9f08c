/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products in bfloat16 for compute capability 9.0, with the bits of
 * product_tensor.cu. The tensor memory accelerator loads the tiles, and groups
 * of four warps multiply them straight from shared memory. wgmma sums sixteen
 * terms as mma.sync does (bench/gpu/steps.cu), so an output's sum is the same:
 * it starts from 0 and takes its steps in index order, and what product_start
 * gives is added to it at the end.
 *
 * A block stays on its multiprocessor and computes one tile after the other.
 * One thread of its first group of warps keeps STAGES buffers filled, the other
 * two groups compute 64 rows of the tile each. A buffer has two barriers: one
 * completes when its bytes have arrived, the other when the eight warps have
 * read it. While a tile is stored, the buffers are filled for the next one.
 */
#include "plugins/device-cuda/cu.h"
#include "plugins/device-cuda/product_bulk.h"
#include "plugins/device-cuda/product_bulk_put.h"

#define BM 128  /* rows of a tile */
#define STEP 16 /* terms per step */

static uint32_t count_tiles(const product_gemm *g, uint32_t bn)
{
    return (g->m + BM - 1) / BM * ((g->n + bn - 1) / bn);
}

/* Measured on an H200: cycles that tiles of 128 and of 256 columns take per
 * step while all multiprocessors are at work. They affect time, never bits. */
#define NARROW_CYCLES 160u
#define WIDE_CYCLES 290u

/* Finds the width of the tiles that should be computed first, and returns their
 * cycles per step. */
static uint64_t find_width(const cuda_device *d, const product_gemm *g,
                           uint32_t *out)
{
    uint32_t sms = d->sms > 0 ? (uint32_t)d->sms : 1;
    uint64_t wide = (count_tiles(g, 256) + sms - 1) / sms * WIDE_CYCLES;
    uint64_t narrow = (count_tiles(g, 128) + sms - 1) / sms * NARROW_CYCLES;
    *out = narrow < wide ? 128 : 256;
    return narrow < wide ? narrow : wide;
}

extern "C" uint64_t product_bulk_time(const cuda_device *d,
                                      const product_gemm *g)
{
    uint32_t width;
    return g->m < PRODUCT_BULK_FEWEST ? UINT64_MAX : find_width(d, g, &width);
}

#ifdef XR_CUDA_EMULATED

/* So that product_cut is called; what it needs is computed by product_tensor.
 */
extern "C" int product_bulk_runs(const cuda_device *d)
{
    (void)d;
    return 1;
}

extern "C" xray_status product_bulk(const cuda_device *d, cudaStream_t stream,
                                    const char *where, const product_gemm *g)
{
    (void)d;
    (void)stream;
    (void)where;
    (void)g;
    return XRAY_E_UNSUPPORTED;
}

#else

#include <string.h>

#define BK 64       /* terms of a buffer; a row of them has 128 bytes */
#define GROUP 128   /* threads of a group of warps */
#define THREADS 384 /* one group that loads, two that compute */
#define READERS 8   /* warps that read a buffer */
#define ROW_BYTES 128
#define BUFFERS 196608 /* bytes of all buffers */
#define SHARED (BUFFERS + SWIZZLED)
#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- tiles and buffers --------------------------------------------------- */

/* The size of a launch, and its tiles. */
typedef struct bulk_work {
    uint32_t m;
    uint32_t depth;
    uint32_t m_tiles;
    uint32_t n_tiles;
} bulk_work;

template <int FORM, int BN> CU_FN bulk_work work_of(const product_gemm *g)
{
    bulk_work w = { g->m, g->k, 0, (g->n + BN - 1) / BN };
    if (g->live) {
        int64_t live = (int64_t)*g->live - (int64_t)g->live_from;
        uint32_t most = live < 0 ? 0 : (uint32_t)live;
        if (FORM == PRODUCT_TN)
            w.depth = w.depth < most ? w.depth : most;
        else
            w.m = w.m < most ? w.m : most;
    }
    w.m_tiles = w.depth ? (w.m + BM - 1) / BM : 0;
    return w;
}

/* Gives the first row and column of a tile. Tiles are counted in groups of
 * eight rows, so that blocks that run at the same time share their operands in
 * the L2 cache. */
template <int BN>
CU_FN void bulk_at(const bulk_work *w, uint32_t tile, uint32_t *m0,
                   uint32_t *n0)
{
    uint32_t group = tile / (8 * w->n_tiles);
    uint32_t in = tile % (8 * w->n_tiles);
    uint32_t high = w->m_tiles - group * 8;
    high = high < 8 ? high : 8;
    *m0 = (group * 8 + in % high) * BM;
    *n0 = in / high * BN;
}

/* The buffers of a block as addresses in shared memory, and the next one. */
typedef struct bulk_ring {
    uint32_t data;
    uint32_t full; /* barriers of 8 bytes each */
    uint32_t empty;
    uint32_t stage;
    uint32_t phase; /* parity of the rounds through all stages */
} bulk_ring;

template <int BN> struct bulk_size {
    enum { BYTES = (BM + BN) * ROW_BYTES, STAGES = BUFFERS / BYTES };
};

template <int BN> CU_FN void ring_advance(bulk_ring *r)
{
    r->stage++;
    if (r->stage == bulk_size<BN>::STAGES) {
        r->stage = 0;
        r->phase ^= 1;
    }
}

template <int BN> CU_FN uint32_t ring_data(const bulk_ring *r)
{
    return r->data + r->stage * bulk_size<BN>::BYTES;
}

/* Loads terms [at, at + BK) of a tile into the next buffer: a's rows, then b's.
 * With gates the first half of b's rows are gates and the second half their up
 * projections, so that one thread gets both. */
template <int FORM, int GATES, int BN>
CU_FN void load_stage(const CUtensorMap *a, const CUtensorMap *b,
                      const bulk_ring *r, uint32_t m0, uint32_t n0, uint32_t up,
                      uint32_t at)
{
    uint32_t full = r->full + r->stage * 8;
    uint32_t to = ring_data<BN>(r);
    barrier_wait(r->empty + r->stage * 8, r->phase ^ 1);
    barrier_expect(full, bulk_size<BN>::BYTES);
    if (FORM == PRODUCT_TN) {
        load_box(to, a, full, m0, at);
        load_box(to + BOX, a, full, m0 + 64, at);
    } else {
        load_box(to, a, full, at, m0);
    }
    to += BM * ROW_BYTES;
    if (FORM != PRODUCT_NT) {
#pragma unroll
        for (uint32_t i = 0; i < BN / 64; i++)
            load_box(to + i * BOX, b, full, n0 + i * 64, at);
    } else {
        load_box(to, b, full, at, GATES ? n0 / 2 : n0);
        load_box(to + BN / 2 * ROW_BYTES, b, full, at,
                 GATES ? n0 / 2 + up : n0 + BN / 2);
    }
}

/* Loads all tiles of the block; one thread does. */
template <int FORM, int GATES, int BN>
CU_FN void load_tiles(const CUtensorMap *a, const CUtensorMap *b,
                      const product_gemm *g, bulk_ring r)
{
    prefetch_map(a);
    prefetch_map(b);
    bulk_work w = work_of<FORM, BN>(g);
    uint32_t up = product_gates(g);
    uint32_t tiles = w.m_tiles * w.n_tiles;
    for (uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        uint32_t m0;
        uint32_t n0;
        bulk_at<BN>(&w, tile, &m0, &n0);
#pragma unroll 1
        for (uint32_t at = 0; at < w.depth; at += BK) {
            load_stage<FORM, GATES, BN>(a, b, &r, m0, n0, up, at);
            ring_advance<BN>(&r);
        }
    }
}

/* ---- sums ---------------------------------------------------------------- */

/* Zeroes rows [from, to) of all boxes of a buffer, where rows are terms: tokens
 * that are not live may hold anything. Both groups of warps do it together. */
template <int BN>
CU_FN void zero_terms(uint32_t data, uint32_t from, uint32_t to)
{
    enum { BOXES = bulk_size<BN>::BYTES / BOX, CHUNKS = ROW_BYTES / 16 };
    uint32_t count = (to - from) * CHUNKS;
    for (uint32_t i = threadIdx.x - GROUP; i < BOXES * count; i += 2 * GROUP)
        asm volatile(
            "st.shared.v4.b32 [%0], {%1, %1, %1, %1};\n" ::"r"(
                data + i / count * BOX + from * ROW_BYTES + i % count * 16),
            "r"(0)
            : "memory");
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
    asm volatile("bar.sync 1, %0;\n" ::"n"(2 * GROUP) : "memory");
}

CU_FN void release_stage(uint32_t empty, uint32_t stage)
{
    if (threadIdx.x % 32 == 0)
        barrier_arrive(empty + stage * 8);
}

/* Sums a tile's terms. Steps beyond the last term are skipped, not summed as
 * zeros, because their number depends on the tile. */
template <int FORM, int BN>
CU_FN void sum_tile(float (&c)[BN / 2], const product_gemm *g, uint32_t depth,
                    uint32_t group, bulk_ring *r)
{
    enum {
        A_TURNED = FORM == PRODUCT_TN,
        B_TURNED = FORM != PRODUCT_NT,
        /* From one step to the next, in units of descriptors */
        A_STEP = (A_TURNED ? STEP * ROW_BYTES : STEP * 2) >> 4,
        B_STEP = (B_TURNED ? STEP * ROW_BYTES : STEP * 2) >> 4
    };
#pragma unroll
    for (int i = 0; i < BN / 2; i++)
        c[i] = 0.0f;
    hold_sums(c);
    uint32_t last = 0;
#pragma unroll 1
    for (uint32_t at = 0; at + BK <= depth; at += BK) {
        uint32_t data = ring_data<BN>(r);
        uint64_t a = descriptor_of<A_TURNED>(data + group * BOX);
        uint64_t b = descriptor_of<B_TURNED>(data + BM * ROW_BYTES);
        barrier_wait(r->full + r->stage * 8, r->phase);
        wgmma_fence();
#pragma unroll
        for (uint32_t s = 0; s < BK / STEP; s++)
            wgmma_step<A_TURNED, B_TURNED>(c, a + s * A_STEP, b + s * B_STEP);
        wgmma_commit();
        wgmma_wait<1>(); /* the products of the buffer before this one */
        if (at > 0)
            release_stage(r->empty, last);
        last = r->stage;
        ring_advance<BN>(r);
    }
    wgmma_wait<0>();
    hold_sums(c);
    if (depth >= BK)
        release_stage(r->empty, last);

    uint32_t left = depth % BK;
    if (left == 0)
        return;
    uint32_t steps = (left + STEP - 1) / STEP;
    uint32_t data = ring_data<BN>(r);
    uint64_t a = descriptor_of<A_TURNED>(data + group * BOX);
    uint64_t b = descriptor_of<B_TURNED>(data + BM * ROW_BYTES);
    barrier_wait(r->full + r->stage * 8, r->phase);
    if (FORM == PRODUCT_TN && depth < g->k && left < steps * STEP)
        zero_terms<BN>(data, left, steps * STEP);
#pragma unroll 1
    for (uint32_t s = 0; s < steps; s++) {
        wgmma_fence();
        wgmma_step<A_TURNED, B_TURNED>(c, a + s * A_STEP, b + s * B_STEP);
        wgmma_commit();
        wgmma_wait<0>();
        hold_sums(c);
    }
    release_stage(r->empty, r->stage);
    ring_advance<BN>(r);
}

/* ---- the kernel ---------------------------------------------------------- */

/* Computes 64 rows of all tiles of the block; a group of warps does. */
template <int FORM, int GATES, int BN>
CU_FN void sum_tiles(const product_gemm *g, uint32_t group, bulk_ring r)
{
    bulk_work w = work_of<FORM, BN>(g);
    uint32_t lane = threadIdx.x % 32;
    uint32_t warp = threadIdx.x / 32 % 4;
    uint32_t tiles = w.m_tiles * w.n_tiles;
    for (uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        float c[BN / 2];
        uint32_t m0;
        uint32_t n0;
        bulk_at<BN>(&w, tile, &m0, &n0);
        sum_tile<FORM, BN>(c, g, w.depth, group, &r);
        bulk_place p;
        p.row = m0 + group * 64 + warp * 16 + lane / 4;
        p.rows = w.m;
        p.col = (GATES ? n0 / 2 : n0) + lane % 4 * 2;
        p.cols = GATES ? g->n / 2 : g->n;
        int starts = g->from || g->bias;
        if constexpr (GATES) {
            if (starts)
                add_each<1>(c, g, &p);
            put_gated<BN / 16>(c, g, &p);
        } else {
            if (starts)
                add_starts<BN / 8>(c, g, &p);
            put_sums<BN / 8>(c, g, &p);
        }
    }
}
#endif

/* Where this is not compiled for compute capability 9.0a, it does nothing and
 * has no static shared memory, which bulk_compiled looks for. */
template <int FORM, int GATES, int BN>
__global__ void __launch_bounds__(THREADS, 1)
    bulk_tiles(const __grid_constant__ CUtensorMap a,
               const __grid_constant__ CUtensorMap b,
               const __grid_constant__ product_gemm g)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    enum { STAGES = bulk_size<BN>::STAGES };
    static_assert(STAGES * bulk_size<BN>::BYTES == BUFFERS,
                  "stages must fill the buffers");
    __shared__ __align__(8) uint64_t barriers[2 * STAGES];
    CU_DYNAMIC(unsigned char, dynamic);
    bulk_ring r;
    r.data = (shared_address(dynamic) + SWIZZLED - 1) / SWIZZLED * SWIZZLED;
    r.full = shared_address(barriers);
    r.empty = r.full + STAGES * 8;
    r.stage = 0;
    r.phase = 0;
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < STAGES; i++) {
            barrier_init(r.full + i * 8, 1);
            barrier_init(r.empty + i * 8, READERS);
        }
        /* The accelerator must see them too. */
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
    }
    __syncthreads();
    uint32_t group = __shfl_sync(0xffffffffu, threadIdx.x / GROUP, 0);
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;\n");
        if (threadIdx.x == 0)
            load_tiles<FORM, GATES, BN>(&a, &b, &g, r);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;\n");
        sum_tiles<FORM, GATES, BN>(&g, group - 1, r);
    }
#endif
}

/* ---- the host ------------------------------------------------------------ */

typedef void bulk_kernel(const CUtensorMap a, const CUtensorMap b,
                         const product_gemm g);

typedef CUresult encode_tiled(CUtensorMap *, CUtensorMapDataType, cuuint32_t,
                              void *, const cuuint64_t *, const cuuint64_t *,
                              const cuuint32_t *, const cuuint32_t *,
                              CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* Returns the driver's cuTensorMapEncodeTiled, or NULL. */
static encode_tiled *find_encode(void)
{
    static encode_tiled *known;
    encode_tiled *encode = __atomic_load_n(&known, __ATOMIC_ACQUIRE);
    if (encode)
        return encode;
    void *at = NULL;
    enum cudaDriverEntryPointQueryResult found =
        cudaDriverEntryPointSymbolNotFound;
    cudaError_t e = cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &at, 12000, cudaEnableDefault, &found);
    if (e != cudaSuccess || found != cudaDriverEntryPointSuccess || !at) {
        (void)cudaGetLastError();
        return NULL;
    }
    memcpy(&encode, &at, sizeof(encode));
    __atomic_store_n(&known, encode, __ATOMIC_RELEASE);
    return encode;
}

/* Describes a matrix of `rows` rows of `width` elements, which is read in boxes
 * of box_rows x 64. Returns 0 if the accelerator cannot read it. */
static int describe_matrix(CUtensorMap *map, const void *data, uint64_t row,
                           uint32_t rows, uint32_t width, uint32_t box_rows)
{
    encode_tiled *encode = find_encode();
    if (!encode || (uintptr_t)data % 16 != 0 || row % 8 != 0 ||
        row >= 1ull << 38)
        return 0;
    const cuuint64_t sizes[2] = { width, rows };
    const cuuint64_t strides[1] = { row * sizeof(uint16_t) };
    const cuuint32_t box[2] = { BK, box_rows };
    const cuuint32_t each[2] = { 1, 1 };
    void *at = NULL;
    memcpy(&at, &data, sizeof(at));
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, at, sizes, strides,
                  box, each, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

static int describe_operands(const product_gemm *g, uint32_t bn, CUtensorMap *a,
                             CUtensorMap *b)
{
    int a_turned = g->form == PRODUCT_TN;
    int b_turned = g->form != PRODUCT_NT;
    return describe_matrix(a, g->a, g->a_row, a_turned ? g->k : g->m,
                           a_turned ? g->m : g->k, a_turned ? BK : BM) &&
           describe_matrix(b, g->b, g->b_row, b_turned ? g->k : g->n,
                           b_turned ? g->n : g->k, b_turned ? BK : bn / 2);
}

template <int BN> static bulk_kernel *kernel_of(const product_gemm *g)
{
    if (g->form == PRODUCT_NT)
        return g->gates ? bulk_tiles<PRODUCT_NT, 1, BN>
                        : bulk_tiles<PRODUCT_NT, 0, BN>;
    return g->form == PRODUCT_NN ? bulk_tiles<PRODUCT_NN, 0, BN>
                                 : bulk_tiles<PRODUCT_TN, 0, BN>;
}

/* Whether the kernels can run on the device: it is of compute capability 9.0,
 * and this is compiled for 9.0a. */
static int bulk_compiled(const cuda_device *d)
{
    static int known; /* 1: compiled, 2: not */
    int major = 0;
    int minor = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
                               d->index) != cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor,
                               d->index) != cudaSuccess ||
        major != 9 || minor != 0)
        return 0;
    int compiled = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (compiled == 0) {
        cudaFuncAttributes of;
        cudaError_t e =
            cudaFuncGetAttributes(&of, bulk_tiles<PRODUCT_NT, 0, 128>);
        if (e != cudaSuccess)
            (void)cudaGetLastError();
        compiled = e == cudaSuccess && of.sharedSizeBytes > 0 ? 1 : 2;
        __atomic_store_n(&known, compiled, __ATOMIC_RELAXED);
    }
    return compiled == 1;
}

extern "C" int product_bulk_runs(const cuda_device *d)
{
    return d->shared_most >= SHARED + 1024 && bulk_compiled(d);
}

/* The bits of product_gemm.wide. */
static uint8_t find_wide(const product_gemm *g)
{
    int narrow = g->narrow & PRODUCT_NARROW_C;
    uint32_t cols = g->gates ? g->n / 2 : g->n;
    uint32_t many = narrow ? 8 : 2;
    uint32_t bytes = narrow ? 16 : 8;
    uint32_t bits = 0;
    if ((g->gates ? narrow : product_ends(g)) && cols % many == 0 &&
        g->c_row % many == 0 && (uintptr_t)g->c % bytes == 0)
        bits |= C_WIDE;
    bytes = g->narrow & PRODUCT_NARROW_FROM ? 4 : 8;
    if (g->n % 2 == 0 && g->from_row % 2 == 0 &&
        (uintptr_t)g->from % bytes == 0)
        bits |= FROM_WIDE;
    return (uint8_t)bits;
}

extern "C" xray_status product_bulk(const cuda_device *d, cudaStream_t stream,
                                    const char *where, const product_gemm *g)
{
    if (g->m < PRODUCT_BULK_FEWEST || g->n == 0 || g->k == 0 || g->segments ||
        (g->gates && g->form != PRODUCT_NT) || !product_bulk_runs(d))
        return XRAY_E_UNSUPPORTED;
    uint32_t bn;
    (void)find_width(d, g, &bn);
    CUtensorMap a;
    CUtensorMap b;
    if (!describe_operands(g, bn, &a, &b))
        return XRAY_E_UNSUPPORTED;
    bulk_kernel *kernel = bn == 256 ? kernel_of<256>(g) : kernel_of<128>(g);
    product_gemm own = *g;
    own.wide = find_wide(g);
    cudaError_t e = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
    if (e != cudaSuccess)
        return cuda_check(d, where, e);
    uint32_t sms = d->sms > 0 ? (uint32_t)d->sms : 1;
    uint32_t tiles = count_tiles(g, bn);
    CU_LAUNCH(kernel, dim3(tiles < sms ? tiles : sms), THREADS, SHARED, stream,
              a, b, own);
    return cuda_launched(d, where);
}

#endif
