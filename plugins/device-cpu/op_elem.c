/* SPDX-License-Identifier: Apache-2.0
 *
 * Elementwise operators of the CPU: cast, axpby, the sum of squares for the
 * gradient norm, and AdamW.
 */
#include <immintrin.h>
#include <string.h>

#include <xray/numerics.h>

#include "plugins/device-cpu/device.h"

typedef struct elem_job {
    const cpu_device *d;
    const void *op;
} elem_job;

/* ---- narrow floats ------------------------------------------------------ */

uint16_t cpu_to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    if (x != x)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

float cpu_from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, sizeof(y));
    return y;
}

uint16_t cpu_to_f16(float x)
{
    return (uint16_t)_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
}

float cpu_from_f16(uint16_t x)
{
    return _cvtsh_ss(x);
}

static size_t element_bytes(uint32_t dtype)
{
    return dtype == XRAY_F32 ? sizeof(float) : sizeof(uint16_t);
}

static void narrow_floats(void *y, const float *x, uint32_t dtype, size_t n)
{
    uint16_t *to = y;
    if (dtype == XRAY_F32)
        memcpy(y, x, n * sizeof(*x));
    else if (dtype == XRAY_BF16)
        for (size_t i = 0; i < n; i++)
            to[i] = cpu_to_bf16(x[i]);
    else
        for (size_t i = 0; i < n; i++)
            to[i] = cpu_to_f16(x[i]);
}

static void widen_floats(float *y, const void *x, uint32_t dtype, size_t n)
{
    const uint16_t *from = x;
    if (dtype == XRAY_BF16)
        for (size_t i = 0; i < n; i++)
            y[i] = cpu_from_bf16(from[i]);
    else
        for (size_t i = 0; i < n; i++)
            y[i] = cpu_from_f16(from[i]);
}

/* Casts the elements from number `first` of all rows to `last`, of which the
 * first row and the last one may be incomplete. */
static void cast_range(void *ctx, size_t first, size_t last)
{
    const elem_job *job = ctx;
    const xray_cast *op = job->op;
    const size_t x_bytes = element_bytes(op->x_dtype);
    const size_t y_bytes = element_bytes(op->y_dtype);
    size_t n;
    for (size_t at = first; at < last; at += n) {
        size_t row = at / op->count;
        size_t i = at % op->count;
        n = op->count - i < last - at ? op->count - i : last - at;
        const void *x =
            (const char *)op->x + (row * op->x_stride + i) * x_bytes;
        void *y = (char *)op->y + (row * op->y_stride + i) * y_bytes;
        if (op->x_dtype == XRAY_F32)
            narrow_floats(y, x, op->y_dtype, n);
        else
            widen_floats(y, x, op->x_dtype, n);
    }
}

xray_status cpu_cast(void *self, xray_stream *stream, const xray_cast *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "cast", op->x, op->y);
    int known = op->x_dtype >= XRAY_F32 && op->x_dtype <= XRAY_F16 &&
                op->y_dtype >= XRAY_F32 && op->y_dtype <= XRAY_F16;
    if (!known || (op->x_dtype != XRAY_F32 && op->y_dtype != XRAY_F32))
        return cpu_fail(d, XRAY_E_UNSUPPORTED, "cast",
                        "a cast from element type %u to %u is not supported; "
                        "one of them must be F32",
                        op->x_dtype, op->y_dtype);
    if (op->rows > 1 && (op->x_stride < op->count || op->y_stride < op->count))
        return cpu_fail(d, XRAY_E_ARG, "cast",
                        "a stride is shorter than the row");
    elem_job job = { .d = d, .op = op };
    cpu_ranges(d, (op->rows ? op->rows : 1) * op->count, 4096, 0.2, cast_range,
               &job);
    return XRAY_OK;
}

/* ---- axpby -------------------------------------------------------------- */

static void axpby_range(void *ctx, size_t first, size_t last)
{
    const elem_job *job = ctx;
    job->d->k->axpby(job->op, first, last);
}

xray_status cpu_axpby(void *self, xray_stream *stream, const xray_axpby *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "axpby", op->y);
    XR_CHECK_OPERANDS(d->host, "axpby", XR_OPERAND(op, x), XR_OPERAND(op, y));
    elem_job job = { .d = d, .op = op };
    cpu_ranges(d, op->count, 4096, 0.2, axpby_range, &job);
    return XRAY_OK;
}

/* ---- sum of squares ----------------------------------------------------- */

/* The tasks add integers to the result, so their order does not count. */
static void sumsq_range(void *ctx, size_t first, size_t last)
{
    const elem_job *job = ctx;
    const xray_sumsq *op = job->op;
    uint64_t words[XRAY_SQUARES_WORDS] = { 0 };
    job->d->k->sumsq(op->x + first, last - first, words);
    for (size_t i = 0; i < XRAY_SQUARES_WORDS; i++)
        (void)__atomic_fetch_add(&op->result[i], words[i], __ATOMIC_RELAXED);
}

xray_status cpu_sumsq(void *self, xray_stream *stream, const xray_sumsq *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "sumsq", op->x, op->result);
    elem_job job = { .d = d, .op = op };
    cpu_ranges(d, op->count, 1024, 0.5, sumsq_range, &job);
    xray_squares_carry(op->result);
    return XRAY_OK;
}

/* ---- AdamW -------------------------------------------------------------- */

static void adamw_range(void *ctx, size_t first, size_t last)
{
    const elem_job *job = ctx;
    const xray_adamw *op = job->op;
    job->d->k->adamw(op, first, last);
    if (op->out)
        narrow_floats((char *)op->out + first * element_bytes(op->out_dtype),
                      op->p + first, op->out_dtype, last - first);
}

xray_status cpu_adamw(void *self, xray_stream *stream, const xray_adamw *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "adamw", op->p, op->g, op->m, op->v, op->scalars);
    if (op->out && (op->out_dtype < XRAY_F32 || op->out_dtype > XRAY_F16))
        return cpu_fail(d, XRAY_E_UNSUPPORTED, "adamw",
                        "element type %u is not supported", op->out_dtype);
    elem_job job = { .d = d, .op = op };
    cpu_ranges(d, op->count, 1024, 1.0, adamw_range, &job);
    return XRAY_OK;
}
