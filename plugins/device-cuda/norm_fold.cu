/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameter gradients of the norms: a chain over all rows for each column.
 *
 * Nothing but columns can be cut, so a block takes few of them, one sector of
 * memory or two a row, and streams the rows past: eight warps fetch a tile of
 * rows ahead, make xh and lay both out by column in shared memory; the ninth
 * runs the chains of the tile before. A chain's step is one fused multiply-add
 * after another, 4 cycles each: 4096 rows take 9 microseconds at the least,
 * as long as reading them takes at a width of about 1400; wider rows are bound
 * by memory, and qk-norm, with its heads for rows, by the chain.
 */
#include "plugins/device-cuda/norm_fold.h"
#include "plugins/device-cuda/rows.h"

#define LOADERS 256u /* threads that fetch; one more warp folds */
#define TILE 2048u   /* values of x in a tile */
#define QUADS 2u     /* TILE / LOADERS / 4 */

/* Columns of one block, and the rows in a tile. A column lies in shared memory
 * with four values to spare, so that its neighbours use other banks. */
template <int Columns> struct fold_shape {
    static const uint32_t rows = TILE / Columns;
    static const uint32_t line = TILE / Columns + 4;
    static const uint32_t quads = Columns / 4;
};

typedef struct fetched {
    cu_quad x[QUADS];
    cu_quad dy[QUADS];
    float mean[QUADS];
    float rstd[QUADS];
} fetched;

/* What this thread has of the tile that starts at row `first`. */
template <int Wide, int Columns, int Centred>
CU_FN void fetch(const norm_fold *f, uint64_t first, uint64_t rows, fetched *to)
{
#pragma unroll
    for (uint32_t k = 0; k < QUADS; k++) {
        uint32_t i = threadIdx.x + k * LOADERS;
        uint64_t r = first + i / fold_shape<Columns>::quads;
        uint32_t column =
            blockIdx.x * Columns + i % fold_shape<Columns>::quads * 4;
        if (r >= rows || column >= f->dim)
            continue;
        uint64_t t = f->groups == 1 ? r : r / f->groups;
        uint64_t at = (r - t * f->groups) * f->dim + column;
        uint32_t left = f->dim - column;
        to->x[k] = cu_load4<Wide>(f->x + t * f->x_stride + at, left);
        to->dy[k] = cu_load4<Wide>(f->dy + t * f->dy_stride + at, left);
        to->mean[k] = Centred ? f->stat[2 * r] : 0.0f;
        to->rstd[k] = Centred ? f->stat[2 * r + 1] : f->stat[r];
    }
}

/* By column; what lies past the rows or the width is not read. */
template <int Columns, int Centred>
CU_FN void lay_out(const fetched *from, float *xh, float *dy)
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

#define STEP 16u /* rows that the chain has in registers */

typedef struct steps {
    float4 xh[STEP / 4];
    float4 dy[STEP / 4];
} steps;

CU_FN void take(const float *xh, const float *dy, steps *to)
{
#pragma unroll
    for (uint32_t i = 0; i < STEP / 4; i++) {
        to->xh[i] = *reinterpret_cast<const float4 *>(xh + 4 * i);
        to->dy[i] = *reinterpret_cast<const float4 *>(dy + 4 * i);
    }
}

template <int Centred> CU_FN void go_on(const steps *s, float *w, float *b)
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

/* The chains of one column over the first n rows of a tile. While one part is
 * in the chain, the next is on its way from shared memory: both are asked for
 * ahead, a part too many at the end of a tile's columns. */
template <int Centred>
CU_FN void chain(const float *xh, const float *dy, uint32_t n, float *w,
                 float *b)
{
    steps even;
    steps odd;
    uint32_t r = 0;
    take(xh, dy, &even);
    for (; r + 2 * STEP <= n; r += 2 * STEP) {
        take(xh + r + STEP, dy + r + STEP, &odd);
        go_on<Centred>(&even, w, b);
        take(xh + r + 2 * STEP, dy + r + 2 * STEP, &even);
        go_on<Centred>(&odd, w, b);
    }
    for (; r < n; r++) {
        *w = fmaf(dy[r], xh[r], *w);
        if (Centred)
            *b = *b + dy[r];
    }
}

/* Tile i is fetched while tile i - 1 is laid out and tile i - 2 is folded. */
template <int Wide, int Columns, int Centred>
__global__ void __launch_bounds__(LOADERS + 32) norm_fold_kernel(norm_fold f)
{
    typedef fold_shape<Columns> shape;
    __shared__ __align__(16) float xh[2][Columns * shape::line + STEP];
    __shared__ __align__(16) float dy[2][Columns * shape::line + STEP];
    uint64_t rows = cu_count(f.tokens, f.live) * f.groups;
    uint64_t tiles = (rows + shape::rows - 1) / shape::rows;
    uint32_t lane = threadIdx.x - LOADERS; /* of the warp that folds */
    uint32_t column = blockIdx.x * Columns + lane;
    int folds = threadIdx.x >= LOADERS && lane < Columns && column < f.dim;
    float w = folds && f.dweight ? f.dweight[column] : 0.0f;
    float b = folds && f.dbias ? f.dbias[column] : 0.0f;
    fetched part = {};
    if (threadIdx.x < LOADERS)
        fetch<Wide, Columns, Centred>(&f, 0, rows, &part);
    for (uint64_t i = 0; i <= tiles; i++) {
        uint32_t now = (uint32_t)i & 1u;
        if (threadIdx.x < LOADERS && i < tiles) {
            lay_out<Columns, Centred>(&part, xh[now], dy[now]);
            fetch<Wide, Columns, Centred>(&f, (i + 1) * shape::rows, rows,
                                          &part);
        } else if (folds && i > 0) {
            uint64_t left = rows - (i - 1) * shape::rows;
            chain<Centred>(xh[now ^ 1u] + lane * shape::line,
                           dy[now ^ 1u] + lane * shape::line,
                           (uint32_t)min(left, (uint64_t)shape::rows), &w, &b);
        }
        __syncthreads();
    }
    if (folds && f.dweight)
        f.dweight[column] = w;
    if (folds && f.dbias)
        f.dbias[column] = b;
}

/* As many columns a block as leave none of the multiprocessors without. */
template <int Wide, int Centred>
static void fold_launch(const cuda_device *d, cudaStream_t stream,
                        const norm_fold *f)
{
    dim3 block(LOADERS + 32);
    if (f->dim / 16 >= (uint32_t)d->sms)
        CU_LAUNCH((norm_fold_kernel<Wide, 16, Centred>),
                  dim3((f->dim + 15) / 16), block, 0, stream, *f);
    else
        CU_LAUNCH((norm_fold_kernel<Wide, 8, Centred>), dim3((f->dim + 7) / 8),
                  block, 0, stream, *f);
}

void norm_fold_start(const cuda_device *d, cudaStream_t stream,
                     const norm_fold *f, int centred)
{
    int wide = rows_odd(f->x) + rows_odd(f->dy) + f->dim % 4 + f->x_stride % 4 +
                   f->dy_stride % 4 ==
               0;
    if (wide && centred)
        fold_launch<1, 1>(d, stream, f);
    else if (wide)
        fold_launch<1, 0>(d, stream, f);
    else if (centred)
        fold_launch<0, 1>(d, stream, f);
    else
        fold_launch<0, 0>(d, stream, f);
}
