/* SPDX-License-Identifier: Apache-2.0
 *
 * A product in segments as several products without, whose outputs another
 * kernel joins. product_bulk computes only those, and for many tokens it is so
 * much faster than the kernels of warps that it pays to write and read each
 * output once for every piece of a segment: 8 bytes per piece and output, where
 * a piece of k terms takes 2 * k operations. At 4096 tokens of 0.5B's `down` (2
 * segments of 2432) these are 59 MB, 14 us at the rate of a copy, beside 56 us
 * of products at 638 TFLOP/s; the kernels of warps reach 200 to 350
 * (docs/performance.md).
 */
#include "plugins/device-cuda/product_epilogue.h"
#include "plugins/device-cuda/rows.h"

#define CUT_ROWS 128u /* rows at a time are a multiple of this */

/* The outputs of a part of the rows, and the sums that they are joined of. */
typedef struct cut_join {
    const float *sums; /* [segments, rows, n] */
    const void *add;
    const float *bias;
    void *c;
    const int32_t *live;
    uint64_t add_row;
    uint64_t c_row;
    uint64_t step; /* sums of a segment */
    uint32_t live_from;
    uint32_t n;
    uint32_t segments;
    uint32_t reserved;
} cut_join;

/* Joins the sums of segments as the balanced tree of docs/numerics.md; those
 * that the last segments of 2, 4 or 8 lack add nothing. */
CU_FN cu_quad join_sums(const cu_quad t[XRAY_SEGMENTS], uint32_t segments)
{
    cu_quad s[XRAY_SEGMENTS];
#pragma unroll
    for (uint32_t i = 0; i < XRAY_SEGMENTS; i++)
        s[i] = t[i];
#pragma unroll
    for (uint32_t by = 1; by < XRAY_SEGMENTS; by *= 2)
#pragma unroll
        for (uint32_t i = 0; i + by < XRAY_SEGMENTS; i += 2 * by)
            if (i + by < segments)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    s[i].f[e] = s[i].f[e] + s[i + by].f[e];
    return s[0];
}

/* Each thread does four outputs. Bound by memory. */
template <int Wide, typename A, typename C>
__global__ void __launch_bounds__(256) join_segments(const cut_join j)
{
    uint32_t row = blockIdx.x;
    uint32_t col = (blockIdx.y * 256 + threadIdx.x) * 4;
    if (col >= j.n ||
        (j.live && (int64_t)row + j.live_from >= (int64_t)*j.live))
        return;
    uint32_t left = j.n - col;
    const float *from = j.sums + (uint64_t)row * j.n + col;
    cu_quad t[XRAY_SEGMENTS];
#pragma unroll
    for (uint32_t s = 0; s < XRAY_SEGMENTS; s++)
        t[s] = s < j.segments ? cu_load4<Wide>(from + s * j.step, left)
                              : cu_quad{};
    cu_quad y = join_sums(t, j.segments);
    if (j.bias)
#pragma unroll
        for (uint32_t e = 0; e < 4; e++)
            y.f[e] = y.f[e] + (e < left ? j.bias[col + e] : 0.0f);
    if (j.add) {
        cu_quad a = cu_load4<Wide>(
            static_cast<const A *>(j.add) + row * j.add_row + col, left);
#pragma unroll
        for (int e = 0; e < 4; e++)
            y.f[e] = a.f[e] + y.f[e];
    }
    cu_put4<Wide>(static_cast<C *>(j.c) + row * j.c_row + col, y, left);
}

static xray_status launch_join(const cuda_device *d, cudaStream_t stream,
                               const char *where, const product_gemm *g,
                               const cut_join *j, uint32_t rows)
{
    uint32_t add = g->narrow & PRODUCT_NARROW_FROM ? XRAY_BF16 : XRAY_F32;
    uint32_t out = g->narrow & PRODUCT_NARROW_C ? XRAY_BF16 : XRAY_F32;
    int wide = rows_odd_as(j->add, add) + rows_odd_as(j->c, out) + j->n % 4 +
                   j->c_row % 4 + (j->add ? j->add_row % 4 : 0) ==
               0;
    dim3 grid(rows, (j->n + 1023) / 1024);
    rows_as(add, [&](auto a) {
        rows_as(out, [&](auto c) {
            typedef decltype(a) A;
            typedef decltype(c) C;
            if (wide)
                CU_LAUNCH((join_segments<1, A, C>), grid, 256, 0, stream, *j);
            else
                CU_LAUNCH((join_segments<0, A, C>), grid, 256, 0, stream, *j);
        });
    });
    return cuda_launched(d, where);
}

/* Adds piece s of a part, terms [at, at + length), of rows [first, first +
 * rows) to `sums`, which it begins unless `more`. */
static xray_status sum_piece(const cuda_device *d, cudaStream_t stream,
                             const char *where, const product_gemm *g,
                             uint64_t at, uint32_t length, uint32_t first,
                             uint32_t rows, float *sums, int more)
{
    product_gemm one = {};
    one.a = static_cast<const uint16_t *>(g->a) + first * g->a_row + at;
    one.b = static_cast<const uint16_t *>(g->b) +
            (g->form == PRODUCT_NT ? at : at * g->b_row);
    one.c = sums;
    one.from = more ? sums : NULL;
    one.live = g->live;
    one.a_row = g->a_row;
    one.b_row = g->b_row;
    one.c_row = one.from_row = g->n;
    one.m = rows;
    one.n = g->n;
    one.k = length;
    one.live_from = g->live_from + first;
    one.form = g->form;
    one.b_dtype = g->b_dtype;
    return product_tensor(d, stream, where, &one, PRODUCT_AUTO);
}

/* Sums segment s of rows [first, first + rows) to `sums`. */
static xray_status sum_segment(const cuda_device *d, cudaStream_t stream,
                               const char *where, const product_gemm *g,
                               uint32_t s, uint32_t first, uint32_t rows,
                               float *sums)
{
    xray_status status = XRAY_OK;
    uint64_t part = 0; /* its first term */
    for (uint32_t p = 0; p < 3 && g->piece[p] && status == XRAY_OK; p++) {
        uint64_t at = part + (uint64_t)s * g->piece[p];
        uint64_t left = g->k - at;
        uint32_t length = (uint32_t)(left < g->piece[p] ? left : g->piece[p]);
        status = sum_piece(d, stream, where, g, at, length, first, rows, sums,
                           p > 0);
        part += (uint64_t)g->segments * g->piece[p];
    }
    return status;
}

static xray_status cut_rows(const cuda_device *d, cudaStream_t stream,
                            const char *where, const product_gemm *g,
                            uint32_t first, uint32_t rows, float *sums)
{
    uint64_t step = (uint64_t)rows * g->n;
    xray_status status = XRAY_OK;
    for (uint32_t s = 0; s < g->segments && status == XRAY_OK; s++)
        status =
            sum_segment(d, stream, where, g, s, first, rows, sums + s * step);
    if (status != XRAY_OK)
        return status;
    uint64_t add = g->narrow & PRODUCT_NARROW_FROM ? 2 : 4;
    uint64_t out = g->narrow & PRODUCT_NARROW_C ? 2 : 4;
    cut_join j = {};
    j.sums = sums;
    j.add = g->add
                ? static_cast<const char *>(g->add) + first * g->from_row * add
                : NULL;
    j.bias = g->bias;
    j.c = static_cast<char *>(g->c) + first * g->c_row * out;
    j.live = g->live;
    j.add_row = g->from_row;
    j.c_row = g->c_row;
    j.step = step;
    j.live_from = g->live_from + first;
    j.n = g->n;
    j.segments = g->segments;
    return launch_join(d, stream, where, g, &j, rows);
}

extern "C" xray_status product_cut(cuda_device *d, cudaStream_t stream,
                                   const char *where, const product_gemm *g)
{
    uint64_t row = (uint64_t)g->segments * g->n * sizeof(float);
    if (g->segments == 0 || (g->piece[0] | g->piece[1] | g->piece[2]) % 8 != 0)
        return XRAY_E_UNSUPPORTED;
    uint64_t most = d->frozen ? d->scratch[CUDA_SCRATCH_STAGE].bytes
                              : product_cut_bytes(g->m, row);
    uint64_t rows = most / row;
    rows = rows < g->m ? rows / CUT_ROWS * CUT_ROWS : g->m;
    if (rows == 0)
        return XRAY_E_UNSUPPORTED;
    void *sums = NULL;
    xray_status status = cuda_scratch(d, CUDA_SCRATCH_STAGE, rows * row, &sums);
    for (uint64_t at = 0; at < g->m && status == XRAY_OK; at += rows)
        status = cut_rows(d, stream, where, g, (uint32_t)at,
                          (uint32_t)(g->m - at < rows ? g->m - at : rows),
                          static_cast<float *>(sums));
    return status;
}
