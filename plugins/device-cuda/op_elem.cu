/* SPDX-License-Identifier: Apache-2.0
 *
 * Elementwise operators, the sum of squares for the gradient norm, and AdamW on
 * NVIDIA GPUs. A thread does four adjacent elements at a time; where the count
 * is not a multiple of four, a second small launch does the rest.
 */
#include <xray/numerics.h>

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
    const void *x;
    void *y;
    uint64_t first;
    uint64_t count; /* elements first .. count - 1 */
    float alpha;
    float beta;
} axpby_args;

/* One thread per ELEM_EACH groups of four. With beta 0, y is not read. */
template <int Wide, typename X, typename Y>
__global__ void __launch_bounds__(ELEM_THREADS) axpby_kernel(axpby_args a)
{
    const X *from = (const X *)a.x;
    Y *to = (Y *)a.y;
    cu_quad x[ELEM_EACH] = {};
    cu_quad y[ELEM_EACH] = {};
    int keep = !(a.beta == 0.0f);
#pragma unroll
    for (int u = 0; u < ELEM_EACH; u++) {
        uint64_t i = a.first + elem_at(u, ELEM_EACH);
        if (from && i < a.count)
            x[u] = cu_load4<Wide>(from + i, a.count - i);
        if (keep && i < a.count)
            y[u] = cu_load4<Wide>(to + i, a.count - i);
    }
#pragma unroll
    for (int u = 0; u < ELEM_EACH; u++) {
        uint64_t i = a.first + elem_at(u, ELEM_EACH);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float old = keep ? a.beta * y[u].f[j] : 0.0f;
            float fresh =
                keep ? fmaf(a.alpha, x[u].f[j], old) : x[u].f[j] * a.alpha;
            y[u].f[j] = from ? fresh : old;
        }
        if (i < a.count)
            cu_put4<Wide>(to + i, y[u], a.count - i);
    }
}

template <typename X, typename Y>
static void launch_axpby(cudaStream_t on, const xray_axpby *op)
{
    uint64_t odd =
        rows_odd_as(op->x, op->x_dtype) + rows_odd_as(op->y, op->y_dtype);
    uint64_t complete = odd == 0 ? op->count / 4 * 4 : 0;
    axpby_args a = { op->x, op->y, 0, complete, op->alpha, op->beta };
    if (complete > 0)
        CU_LAUNCH((axpby_kernel<1, X, Y>), elem_grid(complete, ELEM_EACH),
                  dim3(ELEM_THREADS), 0, on, a);
    a.first = complete;
    a.count = op->count;
    if (a.count > complete)
        CU_LAUNCH((axpby_kernel<0, X, Y>),
                  elem_grid(a.count - complete, ELEM_EACH), dim3(ELEM_THREADS),
                  0, on, a);
}

extern "C" xray_status cuda_axpby(void *self, xray_stream *stream,
                                  const xray_axpby *op)
{
    cuda_device *d = (cuda_device *)self;
    CUDA_CHECK(d, op, "axpby", op->y);
    XR_CHECK_OPERANDS(d->host, "axpby", XR_OPERAND(op, x), XR_OPERAND(op, y));
    cudaStream_t on = cuda_stream(d, stream);
    rows_as(op->x_dtype, [&](auto x) {
        rows_as(op->y_dtype, [&](auto y) {
            launch_axpby<decltype(x), decltype(y)>(on, op);
        });
    });
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

/* Element types as template arguments: XRAY_F32, XRAY_BF16, XRAY_F16. */

template <int Wide, uint32_t Type>
CU_FN cu_quad load_as(const void *p, uint64_t at, uint64_t left)
{
    if (Type == XRAY_F32)
        return cu_load4<Wide>((const float *)p + at, left);
    if (Type == XRAY_BF16)
        return cu_load4<Wide>((const uint16_t *)p + at, left);
    uint16_t h[4];
    cu_quad q;
    cu_load4_16<Wide>((const uint16_t *)p + at, left, h);
#pragma unroll
    for (int i = 0; i < 4; i++)
        q.f[i] = cu_from_f16(h[i]);
    return q;
}

template <int Wide, uint32_t Type>
CU_FN void store_as(void *p, uint64_t at, cu_quad q, uint64_t left)
{
    if (Type == XRAY_F32) {
        cu_put4<Wide>((float *)p + at, q, left);
    } else if (Type == XRAY_BF16) {
        cu_put4<Wide>((uint16_t *)p + at, q, left);
    } else {
        uint16_t h[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            h[i] = to_f16(q.f[i]);
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
    uint64_t odd = rows_odd_as(op->x, From) + rows_odd_as(op->y, To);
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

#define SQUARES_WINDOW 56u /* places of a square in a window */
#define SQUARES_BELOW 40u  /* of them below the first square */

/* The sum of one thread: 128 bits, from bit `base` of the words on. A square is
 * an integer of 48 bits at an even place, so the sum of 2^20 squares of each
 * thread of a warp has room. */
typedef struct squares_window {
    uint64_t low;
    uint64_t high;
    uint32_t base;
} squares_window;

CU_FN void add_word(unsigned long long *word, uint64_t v)
{
    if (v)
        atomicAdd(word, (unsigned long long)v);
}

/* Adds v 2^at units. */
CU_FN void add_units(unsigned long long *words, uint64_t v, uint32_t at)
{
    uint64_t low = (uint64_t)(uint32_t)v << at % 32;
    uint64_t high = (v >> 32) << at % 32;
    add_word(&words[at / 32], (uint32_t)low);
    add_word(&words[at / 32 + 1], (low >> 32) + (uint32_t)high);
    add_word(&words[at / 32 + 2], high >> 32);
}

CU_FN void flush_window(unsigned long long *words, squares_window *w)
{
    add_units(words, w->low, w->base);
    add_units(words, w->high, w->base + 64);
    w->low = w->high = 0;
}

CU_FN void add_to_window(squares_window *w, uint64_t low, uint64_t high)
{
    w->low += low;
    w->high += high + (w->low < low);
}

/* The window follows the largest square. Smaller ones than it holds, which are
 * below 2^-20 of the largest float, go to the words one by one. */
CU_FN void add_square(unsigned long long *words, squares_window *w, float x,
                      uint32_t *odd)
{
    uint32_t e = cu_bits(x) >> 23 & 0xFFu;
    uint32_t m = (cu_bits(x) & 0x7FFFFFu) | (e ? 0x800000u : 0u);
    uint32_t at = e ? 2 * (e - 1) : 0;
    uint64_t square = (uint64_t)m * m;
    *odd += e == 0xFFu;
    if (e == 0xFFu || m == 0)
        return;
    if (at < w->base) {
        add_units(words, square, at);
        return;
    }
    if (at - w->base >= SQUARES_WINDOW) {
        flush_window(words, w);
        w->base = at > SQUARES_BELOW ? at - SQUARES_BELOW : 0;
    }
    uint32_t up = at - w->base;
    add_to_window(w, square << up, square >> 1 >> (63 - up));
}

/* Adds the windows of a warp: those that begin where the highest does by
 * shuffles, the others one by one. */
CU_FN void add_windows(unsigned long long *words, squares_window *w)
{
    uint32_t highest = w->base;
#pragma unroll
    for (int by = 16; by > 0; by /= 2)
        highest = max(highest, __shfl_xor_sync(CU_FULL, highest, by));
    if (w->base != highest)
        flush_window(words, w);
    w->base = highest;
#pragma unroll
    for (int by = 16; by > 0; by /= 2) {
        uint64_t low = __shfl_xor_sync(CU_FULL, (unsigned long long)w->low, by);
        uint64_t high =
            __shfl_xor_sync(CU_FULL, (unsigned long long)w->high, by);
        add_to_window(w, low, high);
    }
    if (threadIdx.x % 32 == 0)
        flush_window(words, w);
}

/* A block takes tiles of ELEM_EACH groups of four per thread. x is read once.
 * The additions are those of integers, so no order counts. */
template <int Wide>
__global__ void __launch_bounds__(ELEM_THREADS)
    sumsq_kernel(const float *x, uint64_t count, unsigned long long *result)
{
    __shared__ unsigned long long words[XRAY_SQUARES_WORDS];
    squares_window w = {};
    uint32_t odd = 0;
    if (threadIdx.x < XRAY_SQUARES_WORDS)
        words[threadIdx.x] = 0;
    __syncthreads();
    const uint64_t tile = (uint64_t)ELEM_THREADS * 4 * ELEM_EACH;
    for (uint64_t from = 0; from < count; from += tile * gridDim.x) {
        cu_quad q[ELEM_EACH] = {};
#pragma unroll
        for (int u = 0; u < ELEM_EACH; u++) {
            uint64_t i = from + elem_at(u, ELEM_EACH);
            if (i + 4 <= count)
                q[u] = cu_load4<Wide>(x + i, 4);
            else if (i < count)
                q[u] = cu_load4<0>(x + i, count - i);
        }
#pragma unroll
        for (int u = 0; u < ELEM_EACH; u++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                add_square(words, &w, q[u].f[j], &odd);
    }
    add_windows(words, &w);
    add_word(&words[XRAY_SQUARES_WORDS - 1], odd);
    __syncthreads();
    if (threadIdx.x < XRAY_SQUARES_WORDS)
        add_word(&result[threadIdx.x], words[threadIdx.x]);
}

__global__ void carry_kernel(uint64_t *result)
{
    xray_squares_carry(result);
}

extern "C" xray_status cuda_sumsq(void *self, xray_stream *stream,
                                  const xray_sumsq *op)
{
    cuda_device *d = (cuda_device *)self;
    CUDA_CHECK(d, op, "sumsq", op->x, op->result);
    /* Eight blocks fill a multiprocessor; a thread takes at most 2^20
     * squares. */
    unsigned tiles = elem_grid(op->count, ELEM_EACH).x;
    unsigned blocks = min(tiles, (unsigned)d->sms * 8u);
    dim3 grid(blocks + (unsigned)(op->count >> 28));
    if (op->count == 0)
        return XRAY_OK;
    cudaStream_t on = cuda_stream(d, stream);
    unsigned long long *result =
        reinterpret_cast<unsigned long long *>(op->result);
    if (rows_odd(op->x))
        CU_LAUNCH(sumsq_kernel<0>, grid, dim3(ELEM_THREADS), 0, on, op->x,
                  op->count, result);
    else
        CU_LAUNCH(sumsq_kernel<1>, grid, dim3(ELEM_THREADS), 0, on, op->x,
                  op->count, result);
    CU_LAUNCH(carry_kernel, dim3(1), dim3(1), 0, on, op->result);
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
                   rows_odd(op->v) + rows_odd_as(op->out, Out);
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
