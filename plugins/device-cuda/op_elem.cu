/* SPDX-License-Identifier: Apache-2.0
 *
 * Elementwise operators, the sum of squares for the gradient norm, and AdamW on
 * NVIDIA GPUs. A thread does four adjacent elements at a time; where the count
 * is not a multiple of four, a second small launch does the rest.
 */
#include "plugins/device-cuda/rows.h"

#define ELEM_THREADS 256u
#define ELEM_EACH 4 /* groups of four per thread in flight */

/* The first element of this thread's group u, where a block takes `each` groups
 * per thread. */
CU_FN uint64_t elem_at(int u, int each)
{
    return ((uint64_t)blockIdx.x * (uint64_t)each + (uint64_t)u) *
               (ELEM_THREADS * 4) +
           threadIdx.x * 4;
}

static dim3 elem_grid(uint64_t count, uint64_t each)
{
    uint64_t per = ELEM_THREADS * 4 * each;
    return dim3((unsigned)((count + per - 1) / per));
}

/* ---- axpby -------------------------------------------------------------- */

typedef struct axpby_args {
    const float *x;
    float *y;
    uint64_t count;
    float alpha;
    float beta;
} axpby_args;

/* One thread per ELEM_EACH groups of four. With beta 0, y is not read. */
template <int Wide>
__global__ void __launch_bounds__(ELEM_THREADS) axpby_kernel(axpby_args a)
{
    cu_quad x[ELEM_EACH] = {};
    cu_quad y[ELEM_EACH] = {};
    int keep = !(a.beta == 0.0f);
#pragma unroll
    for (int u = 0; u < ELEM_EACH; u++) {
        uint64_t i = elem_at(u, ELEM_EACH);
        if (a.x && i < a.count)
            x[u] = cu_load4<Wide>(a.x + i, a.count - i);
        if (keep && i < a.count)
            y[u] = cu_load4<Wide>(a.y + i, a.count - i);
    }
#pragma unroll
    for (int u = 0; u < ELEM_EACH; u++) {
        uint64_t i = elem_at(u, ELEM_EACH);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float old = keep ? a.beta * y[u].f[j] : 0.0f;
            float fresh =
                keep ? fmaf(a.alpha, x[u].f[j], old) : x[u].f[j] * a.alpha;
            y[u].f[j] = a.x ? fresh : old;
        }
        if (i < a.count)
            cu_put4<Wide>(a.y + i, y[u], a.count - i);
    }
}

extern "C" xray_status cuda_axpby(void *self, xray_stream *stream,
                                  const xray_axpby *op)
{
    cuda_device *d = (cuda_device *)self;
    CUDA_CHECK(d, op, "axpby", op->y);
    cudaStream_t on = cuda_stream(d, stream);
    uint64_t complete =
        rows_odd(op->x) + rows_odd(op->y) == 0 ? op->count / 4 * 4 : 0;
    axpby_args a = { op->x, op->y, complete, op->alpha, op->beta };
    if (complete > 0)
        CU_LAUNCH(axpby_kernel<1>, elem_grid(complete, ELEM_EACH),
                  dim3(ELEM_THREADS), 0, on, a);
    a.x = op->x ? op->x + complete : NULL;
    a.y = op->y + complete;
    a.count = op->count - complete;
    if (a.count > 0)
        CU_LAUNCH(axpby_kernel<0>, elem_grid(a.count, ELEM_EACH),
                  dim3(ELEM_THREADS), 0, on, a);
    return cuda_launched(d, "axpby");
}

/* ---- narrow floats ------------------------------------------------------ */

/* Rounds to the nearest even IEEE binary16; NaN stays NaN. Below 2^-14, adding
 * 1/2 rounds to the multiple of 2^-24 that such a value is. */
CU_FN uint16_t to_f16(float x)
{
    uint32_t sign = cu_bits(x) >> 16 & 0x8000u;
    uint32_t m = cu_bits(x) & 0x7fffffffu;
    uint32_t normal = (m - 0x38000000u + 0xfffu + (m >> 13 & 1u)) >> 13;
    uint32_t small = cu_bits(cu_float(m) + 0.5f) - 0x3f000000u;
    uint32_t h = m < 0x38800000u ? small : normal;
    h = m >= 0x47800000u ? 0x7c00u : h;
    h = m > 0x7f800000u ? 0x7e00u : h;
    return (uint16_t)(sign | h);
}

CU_FN float from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t m = h & 0x7fffu;
    uint32_t normal = (m << 13) + 0x38000000u;
    uint32_t small = cu_bits((float)m * 0x1p-24f);
    uint32_t x = m < 0x400u ? small : normal;
    x = m >= 0x7c00u ? m << 13 | 0x7f800000u : x;
    return cu_float(sign | x);
}

/* Element types as template arguments: XRAY_F32, XRAY_BF16, XRAY_F16. */

/* Returns 0 if four elements at p can be read in one access. */
template <uint32_t Type> static uint64_t misaligned_as(const void *p)
{
    return (uint64_t)(uintptr_t)p % (Type == XRAY_F32 ? 16 : 8);
}

template <int Wide, uint32_t Type>
CU_FN cu_quad load_as(const void *p, uint64_t at, uint64_t left)
{
    if (Type == XRAY_F32)
        return cu_load4<Wide>((const float *)p + at, left);
    uint16_t h[4];
    cu_quad q;
    cu_load4_16<Wide>((const uint16_t *)p + at, left, h);
#pragma unroll
    for (int i = 0; i < 4; i++)
        q.f[i] = Type == XRAY_BF16 ? cu_from_bf16(h[i]) : from_f16(h[i]);
    return q;
}

template <int Wide, uint32_t Type>
CU_FN void store_as(void *p, uint64_t at, cu_quad q, uint64_t left)
{
    if (Type == XRAY_F32) {
        cu_put4<Wide>((float *)p + at, q, left);
    } else {
        uint16_t h[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            h[i] = Type == XRAY_BF16 ? cu_to_bf16(q.f[i]) : to_f16(q.f[i]);
        cu_put4_16<Wide>((uint16_t *)p + at, h, left);
    }
}

/* Elements first .. count - 1 of every row, in groups of four. */
typedef struct cast_args {
    const void *x;
    void *y;
    uint64_t rows;
    uint64_t x_stride;
    uint64_t y_stride;
    uint64_t groups; /* in a row */
    uint64_t first;
    uint64_t count;
} cast_args;

/* Finds row and first element of this thread's group u; 0 if there is none. */
CU_FN int find_group(const cast_args *a, int u, uint64_t *row, uint64_t *at)
{
    uint64_t group = elem_at(u, ELEM_EACH) / 4;
    *row = a->rows > 1 ? group / a->groups : 0;
    *at = a->first + (group - *row * a->groups) * 4;
    return *row < a->rows && *at < a->count;
}

template <int Wide, uint32_t From, uint32_t To>
__global__ void __launch_bounds__(ELEM_THREADS) cast_kernel(cast_args a)
{
    cu_quad q[ELEM_EACH];
    uint64_t row;
    uint64_t at;
#pragma unroll
    for (int u = 0; u < ELEM_EACH; u++)
        if (find_group(&a, u, &row, &at))
            q[u] =
                load_as<Wide, From>(a.x, row * a.x_stride + at, a.count - at);
#pragma unroll
    for (int u = 0; u < ELEM_EACH; u++)
        if (find_group(&a, u, &row, &at))
            store_as<Wide, To>(a.y, row * a.y_stride + at, q[u], a.count - at);
}

template <int Wide, uint32_t From, uint32_t To>
static void launch_part(cudaStream_t on, cast_args a)
{
    a.groups = (a.count - a.first + 3) / 4;
    if (a.groups > 0)
        CU_LAUNCH((cast_kernel<Wide, From, To>),
                  elem_grid(a.rows * a.groups * 4, ELEM_EACH),
                  dim3(ELEM_THREADS), 0, on, a);
}

template <uint32_t From, uint32_t To>
static void launch_cast(cudaStream_t on, const xray_cast *op)
{
    cast_args a = {
        op->x, op->y, op->rows ? op->rows : 1, op->x_stride, op->y_stride, 0,
        0,     0
    };
    uint64_t odd = misaligned_as<From>(op->x) + misaligned_as<To>(op->y);
    if (a.rows > 1)
        odd += op->x_stride % 4 + op->y_stride % 4;
    a.count = odd == 0 ? op->count / 4 * 4 : 0;
    launch_part<1, From, To>(on, a);
    a.first = a.count;
    a.count = op->count;
    launch_part<0, From, To>(on, a);
}

extern "C" xray_status cuda_cast(void *self, xray_stream *stream,
                                 const xray_cast *op)
{
    cuda_device *d = (cuda_device *)self;
    CUDA_CHECK(d, op, "cast", op->x, op->y);
    int known = op->x_dtype >= XRAY_F32 && op->x_dtype <= XRAY_F16 &&
                op->y_dtype >= XRAY_F32 && op->y_dtype <= XRAY_F16;
    if (!known || (op->x_dtype != XRAY_F32 && op->y_dtype != XRAY_F32))
        return cuda_fail(d, XRAY_E_UNSUPPORTED, "cast",
                         "a cast from element type %u to %u is not supported; "
                         "one of them must be F32",
                         op->x_dtype, op->y_dtype);
    if (op->rows > 1 && (op->x_stride < op->count || op->y_stride < op->count))
        return cuda_fail(d, XRAY_E_ARG, "cast",
                         "a stride is shorter than the row");
    cudaStream_t on = cuda_stream(d, stream);
    if (op->x_dtype == XRAY_BF16)
        launch_cast<XRAY_BF16, XRAY_F32>(on, op);
    else if (op->x_dtype == XRAY_F16)
        launch_cast<XRAY_F16, XRAY_F32>(on, op);
    else if (op->y_dtype == XRAY_BF16)
        launch_cast<XRAY_F32, XRAY_BF16>(on, op);
    else if (op->y_dtype == XRAY_F16)
        launch_cast<XRAY_F32, XRAY_F16>(on, op);
    else
        launch_cast<XRAY_F32, XRAY_F32>(on, op);
    return cuda_launched(d, "cast");
}

/* ---- sum of squares ----------------------------------------------------- */

#define SUM_BLOCK 4096u
#define SUM_STEPS (SUM_BLOCK / 16u)

/* x x is exact in double, so the fused form rounds like the separate
 * addition. */
CU_FN void sum_one(float x, double *s, uint32_t *bad)
{
    *bad += !(x - x == 0.0f);
    *s = fma((double)x, (double)x, *s);
}

/* Half a warp sums 4096 elements, with partial sum l in lane l. x is read once,
 * in runs of 64 bytes, with 16 of them in flight per thread. sums[2 b] is the
 * sum of block b, sums[2 b + 1] the number of its elements that are not
 * finite. */
__global__ void __launch_bounds__(ELEM_THREADS)
    sumsq_kernel(const float *x, uint64_t count, double *sums)
{
    uint64_t b = ((uint64_t)blockIdx.x * ELEM_THREADS + threadIdx.x) / 16;
    uint32_t l = threadIdx.x % 16;
    uint64_t first = min(b * SUM_BLOCK, count);
    uint64_t last = min(first + SUM_BLOCK, count);
    double s = 0.0;
    uint32_t bad = 0;
    if (last - first == SUM_BLOCK) {
#pragma unroll 16
        for (uint32_t k = 0; k < SUM_STEPS; k++)
            sum_one(x[first + l + k * 16], &s, &bad);
    } else {
        for (uint64_t i = first + l; i < last; i += 16)
            sum_one(x[i], &s, &bad);
    }
#pragma unroll
    for (int half = 8; half > 0; half /= 2) {
        s = s + __shfl_xor_sync(CU_FULL, s, half);
        bad += __shfl_xor_sync(CU_FULL, bad, half);
    }
    if (l == 0 && first < last) {
        sums[2 * b] = s;
        sums[2 * b + 1] = (double)bad;
    }
}

#define FOLD_TILE 1024u

/* Adds the sums of the blocks in order: one thread runs the chain of additions,
 * 8 cycles each, while the others load the next tile. 1.7 ms for 1.5 billion
 * elements, while reading those takes a millisecond. */
__global__ void __launch_bounds__(ELEM_THREADS)
    sumsq_fold_kernel(const double *sums, uint64_t blocks, double *result)
{
    __shared__ double tile[2][FOLD_TILE];
    __shared__ double odd[ELEM_THREADS];
    double bad = 0.0; /* integers, so exact in any order */
    double s = threadIdx.x == 0 ? result[0] : 0.0;
    for (uint64_t at = 0; at < blocks + FOLD_TILE; at += FOLD_TILE) {
        uint32_t now = (uint32_t)(at / FOLD_TILE) & 1u;
        for (uint32_t i = threadIdx.x; i < FOLD_TILE && at + i < blocks;
             i += ELEM_THREADS) {
            tile[now][i] = sums[2 * (at + i)];
            bad += sums[2 * (at + i) + 1];
        }
        if (threadIdx.x == 0 && at > 0) {
            const double *from = tile[now ^ 1u];
            uint64_t left = blocks - (at - FOLD_TILE);
            uint32_t n = (uint32_t)min(left, (uint64_t)FOLD_TILE);
#pragma unroll 16
            for (uint32_t i = 0; i < n; i++)
                s = s + from[i];
        }
        __syncthreads();
    }
    odd[threadIdx.x] = bad;
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    for (uint32_t i = 1; i < ELEM_THREADS; i++)
        bad += odd[i];
    result[0] = s;
    result[1] += bad;
}

extern "C" xray_status cuda_sumsq(void *self, xray_stream *stream,
                                  const xray_sumsq *op)
{
    cuda_device *d = (cuda_device *)self;
    CUDA_CHECK(d, op, "sumsq", op->x, op->result);
    uint64_t blocks = (op->count + SUM_BLOCK - 1) / SUM_BLOCK;
    if (blocks == 0)
        return XRAY_OK;
    void *sums = NULL;
    xray_status status = cuda_scratch(d, CUDA_SCRATCH_REDUCE,
                                      blocks * 2 * sizeof(double), &sums);
    if (status != XRAY_OK)
        return status;
    cudaStream_t on = cuda_stream(d, stream);
    CU_LAUNCH(sumsq_kernel, dim3((unsigned)((blocks + 15) / 16)),
              dim3(ELEM_THREADS), 0, on, op->x, op->count, (double *)sums);
    CU_LAUNCH(sumsq_fold_kernel, dim3(1), dim3(ELEM_THREADS), 0, on,
              (const double *)sums, blocks, op->result);
    return cuda_launched(d, "sumsq");
}

/* ---- AdamW -------------------------------------------------------------- */

typedef struct adamw_args {
    xray_adamw op;
    uint64_t first;
    uint64_t count; /* elements first .. count - 1 */
} adamw_args;

/* 28 bytes per element and 2 or 4 for `out`; three divisions and a root, about
 * 80 instructions. Bound by memory, with half of the issue slots used. */
template <int Wide, uint32_t Out>
__global__ void __launch_bounds__(ELEM_THREADS) adamw_kernel(adamw_args a)
{
    uint64_t i = a.first + elem_at(0, 1);
    if (i >= a.count)
        return;
    uint64_t left = a.count - i;
    const xray_adamw *op = &a.op;
    cu_quad p = cu_load4<Wide>(op->p + i, left);
    cu_quad g = cu_load4<Wide>(op->g + i, left);
    cu_quad m = cu_load4<Wide>(op->m + i, left);
    cu_quad v = cu_load4<Wide>(op->v + i, left);
    float lr = op->scalars[0];
    float clip = op->scalars[1];
    float c1 = op->scalars[2];
    float c2 = op->scalars[3];
    float decay = -(lr * op->weight_decay);
    float n1 = 1.0f - op->beta1;
    float n2 = 1.0f - op->beta2;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float gj = g.f[j] * clip;
        m.f[j] = fmaf(op->beta1, m.f[j], n1 * gj);
        v.f[j] = fmaf(op->beta2, v.f[j], n2 * (gj * gj));
        float root = sqrtf(v.f[j] / c2) + op->eps;
        float q = fmaf(decay, p.f[j], p.f[j]);
        p.f[j] = fmaf(-lr, (m.f[j] / c1) / root, q);
    }
    cu_put4<Wide>(op->p + i, p, left);
    cu_put4<Wide>(op->m + i, m, left);
    cu_put4<Wide>(op->v + i, v, left);
    if (Out)
        store_as<Wide, Out>(op->out, i, p, left);
}

template <uint32_t Out>
static void launch_adamw(cudaStream_t on, const xray_adamw *op)
{
    uint64_t odd = rows_odd(op->p) + rows_odd(op->g) + rows_odd(op->m) +
                   rows_odd(op->v) + misaligned_as<Out>(op->out);
    uint64_t complete = odd == 0 ? op->count / 4 * 4 : 0;
    adamw_args a = { *op, 0, complete };
    if (complete > 0)
        CU_LAUNCH((adamw_kernel<1, Out>), elem_grid(complete, 1),
                  dim3(ELEM_THREADS), 0, on, a);
    a.first = complete;
    a.count = op->count;
    if (a.count > complete)
        CU_LAUNCH((adamw_kernel<0, Out>), elem_grid(a.count - complete, 1),
                  dim3(ELEM_THREADS), 0, on, a);
}

extern "C" xray_status cuda_adamw(void *self, xray_stream *stream,
                                  const xray_adamw *op)
{
    cuda_device *d = (cuda_device *)self;
    CUDA_CHECK(d, op, "adamw", op->p, op->g, op->m, op->v, op->scalars);
    if (op->out && (op->out_dtype < XRAY_F32 || op->out_dtype > XRAY_F16))
        return cuda_fail(d, XRAY_E_UNSUPPORTED, "adamw",
                         "element type %u is not supported", op->out_dtype);
    cudaStream_t on = cuda_stream(d, stream);
    if (!op->out)
        launch_adamw<0>(on, op);
    else if (op->out_dtype == XRAY_F32)
        launch_adamw<XRAY_F32>(on, op);
    else if (op->out_dtype == XRAY_BF16)
        launch_adamw<XRAY_BF16>(on, op);
    else
        launch_adamw<XRAY_F16>(on, op);
    return cuda_launched(d, "adamw");
}
