/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameter gradients of the norms: for each column, one chain over all
 * rows, or over the rows of a segment of the groups.
 *
 * Only columns can be cut, so a block takes few of them, one or two sectors of
 * memory per row, and streams the rows. Eight warps load a tile of rows ahead,
 * compute xh and store xh and dy by column in shared memory; the ninth runs the
 * chains of the tile before. A chain is one dependent fused multiply-add per
 * row, 4 cycles each: 4096 rows take at least 9 microseconds, which is as long
 * as reading them takes at a width of about 1400. Wider rows are bound by
 * memory, and qk-norm, whose rows are heads, by the chain.
 */
#include "plugins/device-cuda/norm_fold.h"
#include "plugins/device-cuda/rows.h"

#define LOADERS 256u /* threads that load; one more warp runs the chains */
#define TILE 2048u   /* values of x per tile */
#define QUADS 2u     /* TILE / LOADERS / 4 */

/* The columns of a block and the rows per tile. A column in shared memory is
 * padded by four values, so that its neighbours use other banks. */
template <int Columns> struct fold_shape {
    static const uint32_t rows = TILE / Columns;
    static const uint32_t line = TILE / Columns + 4;
    static const uint32_t quads = Columns / 4;
};

typedef struct loaded_part {
    cu_quad x[QUADS];
    cu_quad dy[QUADS];
    float mean[QUADS];
    float rstd[QUADS];
} loaded_part;

/* Loads this thread's part of the tile that starts at row `first` of the
 * block's segment. */
template <int Wide, int Columns, int Centred, typename X>
CU_FN void load_part(const norm_fold *f, uint64_t first, uint64_t rows,
                     loaded_part *to)
{
#pragma unroll
    for (uint32_t k = 0; k < QUADS; k++) {
        uint32_t i = threadIdx.x + k * LOADERS;
        uint64_t r = first + i / fold_shape<Columns>::quads;
        uint32_t column =
            blockIdx.x * Columns + i % fold_shape<Columns>::quads * 4;
        if (r >= rows || column >= f->dim)
            continue;
        uint64_t t = f->run == 1 ? r : r / f->run;
        uint64_t g = blockIdx.y * f->run + (r - t * f->run);
        uint64_t row = t * f->groups + g;
        uint64_t at = g * f->dim + column;
        uint32_t left = f->dim - column;
        to->x[k] = cu_load4<Wide>((const X *)f->x + t * f->x_stride + at, left);
        to->dy[k] = cu_load4<Wide>(f->dy + t * f->dy_stride + at, left);
        to->mean[k] = Centred ? f->stat[2 * row] : 0.0f;
        to->rstd[k] = Centred ? f->stat[2 * row + 1] : f->stat[row];
    }
}

/* Stores the part by column. Values past the rows or the width are never
 * read. */
template <int Columns, int Centred>
CU_FN void store_part(const loaded_part *from, float *xh, float *dy)
{
#pragma unroll
    for (uint32_t k = 0; k < QUADS; k++) {
        uint32_t i = threadIdx.x + k * LOADERS;
        uint32_t at =
            i % fold_shape<Columns>::quads * 4 * fold_shape<Columns>::line +
            i / fold_shape<Columns>::quads;
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            float v = from->x[k].f[j];
            if (Centred)
                v = v - from->mean[k];
            xh[at + j * fold_shape<Columns>::line] = v * from->rstd[k];
            dy[at + j * fold_shape<Columns>::line] = from->dy[k].f[j];
        }
    }
}

#define STEP 16u /* rows that the chain holds in registers */

typedef struct chain_steps {
    float4 xh[STEP / 4];
    float4 dy[STEP / 4];
} chain_steps;

CU_FN void load_steps(const float *xh, const float *dy, chain_steps *to)
{
#pragma unroll
    for (uint32_t i = 0; i < STEP / 4; i++) {
        to->xh[i] = *reinterpret_cast<const float4 *>(xh + 4 * i);
        to->dy[i] = *reinterpret_cast<const float4 *>(dy + 4 * i);
    }
}

template <int Centred>
CU_FN void continue_chain(const chain_steps *s, float *w, float *b)
{
#pragma unroll
    for (uint32_t i = 0; i < STEP / 4; i++) {
        float4 x = s->xh[i];
        float4 d = s->dy[i];
        *w = fmaf(d.x, x.x, *w);
        *w = fmaf(d.y, x.y, *w);
        *w = fmaf(d.z, x.z, *w);
        *w = fmaf(d.w, x.w, *w);
        if (Centred) {
            *b = *b + d.x;
            *b = *b + d.y;
            *b = *b + d.z;
            *b = *b + d.w;
        }
    }
}

/* Runs the chains of one column over the first n rows of a tile. While one part
 * is summed, the next is loaded from shared memory, which reads one part too
 * many at the end of a column; `steps` pads the columns for that. */
template <int Centred>
CU_FN void run_chain(const float *xh, const float *dy, uint32_t n, float *w,
                     float *b)
{
    chain_steps even;
    chain_steps odd;
    uint32_t r = 0;
    load_steps(xh, dy, &even);
    for (; r + 2 * STEP <= n; r += 2 * STEP) {
        load_steps(xh + r + STEP, dy + r + STEP, &odd);
        continue_chain<Centred>(&even, w, b);
        load_steps(xh + r + 2 * STEP, dy + r + 2 * STEP, &even);
        continue_chain<Centred>(&odd, w, b);
    }
    for (; r < n; r++) {
        *w = fmaf(dy[r], xh[r], *w);
        if (Centred)
            *b = *b + dy[r];
    }
}

/* In iteration i, tile i + 1 is loaded, tile i is stored by column, and tile i
 * - 1 is summed. The two shared buffers alternate, and one barrier per
 * iteration separates them. */
template <int Wide, int Columns, int Centred, typename X>
__global__ void __launch_bounds__(LOADERS + 32) norm_fold_kernel(norm_fold f)
{
    typedef fold_shape<Columns> shape;
    __shared__ __align__(16) float xh[2][Columns * shape::line + STEP];
    __shared__ __align__(16) float dy[2][Columns * shape::line + STEP];
    uint64_t rows = cu_count(f.tokens.bound, f.tokens.live) * f.run;
    uint64_t tiles = (rows + shape::rows - 1) / shape::rows;
    uint32_t lane = threadIdx.x - LOADERS; /* of the warp that folds */
    uint32_t column = blockIdx.x * Columns + lane;
    int folds = threadIdx.x >= LOADERS && lane < Columns && column < f.dim;
    uint64_t own = (uint64_t)blockIdx.y * f.dim + column;
    float w = folds && f.dweight ? f.dweight[own] : 0.0f;
    float b = folds && f.dbias ? f.dbias[own] : 0.0f;
    loaded_part part = {};
    if (threadIdx.x < LOADERS)
        load_part<Wide, Columns, Centred, X>(&f, 0, rows, &part);
    for (uint64_t i = 0; i <= tiles; i++) {
        uint32_t now = (uint32_t)i & 1u;
        if (threadIdx.x < LOADERS && i < tiles) {
            store_part<Columns, Centred>(&part, xh[now], dy[now]);
            load_part<Wide, Columns, Centred, X>(&f, (i + 1) * shape::rows,
                                                 rows, &part);
        } else if (folds && i > 0) {
            uint64_t left = rows - (i - 1) * shape::rows;
            run_chain<Centred>(xh[now ^ 1u] + lane * shape::line,
                               dy[now ^ 1u] + lane * shape::line,
                               (uint32_t)min(left, (uint64_t)shape::rows), &w,
                               &b);
        }
        __syncthreads();
    }
    if (folds && f.dweight)
        f.dweight[own] = w;
    if (folds && f.dbias)
        f.dbias[own] = b;
}

/* Gives each block as many columns as leave no multiprocessor without a
 * block. */
template <int Wide, int Centred, typename X>
static void launch_fold(const cuda_device *d, cudaStream_t stream,
                        const norm_fold *f)
{
    dim3 block(LOADERS + 32);
    uint32_t segments = f->groups / f->run;
    if (f->dim / 16 * segments >= (uint32_t)d->sms)
        CU_LAUNCH((norm_fold_kernel<Wide, 16, Centred, X>),
                  dim3((f->dim + 15) / 16, segments), block, 0, stream, *f);
    else
        CU_LAUNCH((norm_fold_kernel<Wide, 8, Centred, X>),
                  dim3((f->dim + 7) / 8, segments), block, 0, stream, *f);
}

void norm_fold_start(const cuda_device *d, cudaStream_t stream,
                     const norm_fold *f, int centred)
{
    int wide = rows_odd_as(f->x, f->x_dtype) + rows_odd(f->dy) + f->dim % 4 +
                   f->x_stride % 4 + f->dy_stride % 4 ==
               0;
    rows_as(f->x_dtype, [&](auto x) {
        typedef decltype(x) X;
        if (wide && centred)
            launch_fold<1, 1, X>(d, stream, f);
        else if (wide)
            launch_fold<1, 0, X>(d, stream, f);
        else if (centred)
            launch_fold<0, 1, X>(d, stream, f);
        else
            launch_fold<0, 0, X>(d, stream, f);
    });
}
