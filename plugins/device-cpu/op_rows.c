/* SPDX-License-Identifier: Apache-2.0
 *
 * Operators of the CPU that work row by row: embedding, gather and scatter,
 * norms, rotary positions and gated activations. Each function *_range is a
 * cpu_range, which the threads run on ranges of its tokens or columns.
 */
#include <string.h>

#include <xray/numerics.h>

#include "plugins/device-cpu/device.h"

/* The argument of a cpu_range: the instance and the operator with its
 * arguments.
 */
typedef struct rows_job {
    const cpu_device *d;
    const void *op;
    size_t tokens;
} rows_job;

/* ---- embedding ---------------------------------------------------------- */

static xray_status check_ids(const cpu_device *d, const char *where,
                             const int32_t *ids, size_t n, uint64_t first,
                             uint64_t count)
{
    for (size_t t = 0; t < n; t++)
        if (ids[t] < 0 || (uint64_t)ids[t] - first >= count)
            return cpu_fail(d, XRAY_E_RANGE, where,
                            "id %d of token %zu is not in [%llu, %llu)", ids[t],
                            t, (unsigned long long)first,
                            (unsigned long long)(first + count));
    return XRAY_OK;
}

/* The ids of a slice may be any that are not negative. */
static xray_status check_vocab_ids(const cpu_device *d, const char *where,
                                   const int32_t *ids, size_t n,
                                   const uint64_t vocab[2], uint32_t slice)
{
    if (slice > 1)
        return cpu_fail(d, XRAY_E_ARG, where, "slice is %u, but must be 0 or 1",
                        slice);
    if (slice)
        return check_ids(d, where, ids, n, 0, INT32_MAX + UINT64_C(1));
    return check_ids(d, where, ids, n, vocab[0], vocab[1]);
}

static void embed_range(void *ctx, size_t first, size_t last)
{
    const rows_job *job = ctx;
    job->d->k->embed(job->op, first, last);
}

xray_status cpu_embedding(void *self, xray_stream *stream,
                          const xray_embedding *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "embedding", op->ids, op->table, op->y);
    XR_CHECK_OPERANDS(d->host, "embedding", XR_OPERAND(op, table),
                      XR_OPERAND(op, y));
    size_t n = cpu_count(&op->tokens);
    const uint64_t vocab[2] = { op->vocab_first, op->vocab };
    xray_status status =
        check_vocab_ids(d, "embedding", op->ids, n, vocab, op->slice);
    if (status != XRAY_OK)
        return status;
    rows_job job = { d, op, n };
    cpu_ranges(d, n, 1, (double)op->dim / 4, embed_range, &job);
    return XRAY_OK;
}

/* Computes columns first .. last - 1 of the table's gradient. Threads divide
 * columns, so that each sum goes over all tokens in order. */
static void embed_grad_range(void *ctx, size_t first, size_t last)
{
    const rows_job *job = ctx;
    const xray_embedding_grad *op = job->op;
    for (size_t t = 0; t < job->tokens; t++) {
        size_t row = (size_t)op->ids[t] - op->vocab_first;
        if (row < op->vocab)
            job->d->k->fma(op->dtable + row * op->dim + first,
                           op->dy + t * op->dim + first, op->scale,
                           last - first);
    }
}

xray_status cpu_embedding_grad(void *self, xray_stream *stream,
                               const xray_embedding_grad *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "embedding_grad", op->ids, op->dy, op->dtable);
    size_t n = cpu_count(&op->tokens);
    const uint64_t vocab[2] = { op->vocab_first, op->vocab };
    xray_status status =
        check_vocab_ids(d, "embedding_grad", op->ids, n, vocab, op->slice);
    if (status != XRAY_OK)
        return status;
    rows_job job = { d, op, n };
    cpu_ranges(d, op->dim, 16, (double)n / 4, embed_grad_range, &job);
    return XRAY_OK;
}

static size_t row_bytes(const xray_rows *op)
{
    return op->dim * (cpu_is_narrow(op->dtype) ? 2 : sizeof(float));
}

static void gather_range(void *ctx, size_t first, size_t last)
{
    const rows_job *job = ctx;
    const xray_rows *op = job->op;
    size_t bytes = row_bytes(op);
    for (size_t i = first; i < last; i++)
        memcpy((char *)op->y + i * bytes,
               (const char *)op->x + (size_t)op->index[i] * bytes, bytes);
}

static void scatter_range(void *ctx, size_t first, size_t last)
{
    const rows_job *job = ctx;
    const xray_rows *op = job->op;
    size_t bytes = row_bytes(op);
    for (size_t i = first; i < last; i++)
        memcpy((char *)op->y + (size_t)op->index[i] * bytes,
               (const char *)op->x + i * bytes, bytes);
}

/* Gathers or scatters rows. The index is checked for negative values only,
 * because the operator does not know how many rows there are. */
static xray_status move_rows(cpu_device *d, const char *where,
                             const xray_rows *op, cpu_range *range)
{
    CPU_CHECK(d, op, where, op->index, op->x, op->y);
    XR_CHECK_OPERANDS(d->host, where, { "x", op->x, op->dtype });
    size_t n = cpu_count(&op->count);
    xray_status status = check_ids(d, where, op->index, n, 0, INT32_MAX);
    if (status != XRAY_OK)
        return status;
    rows_job job = { d, op, n };
    cpu_ranges(d, n, 1, (double)op->dim / 4, range, &job);
    return XRAY_OK;
}

xray_status cpu_gather(void *self, xray_stream *stream, const xray_rows *op)
{
    (void)stream;
    return move_rows(self, "gather", op, gather_range);
}

xray_status cpu_scatter(void *self, xray_stream *stream, const xray_rows *op)
{
    (void)stream;
    return move_rows(self, "scatter", op, scatter_range);
}

/* ---- RMSNorm ------------------------------------------------------------ */

static void rmsnorm_range(void *ctx, size_t first, size_t last)
{
    const rows_job *job = ctx;
    job->d->k->rmsnorm(job->op, first, last);
}

xray_status cpu_rmsnorm(void *self, xray_stream *stream, const xray_rmsnorm *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "rmsnorm", op->x, op->weight, op->y);
    XR_CHECK_OPERANDS(d->host, "rmsnorm", XR_OPERAND(op, x), XR_OPERAND(op, y),
                      XR_OPERAND(op, residual));
    size_t width = (size_t)op->groups * op->dim;
    if (width == 0 || op->x_stride < width || op->y_stride < width)
        return cpu_fail(d, XRAY_E_ARG, "rmsnorm",
                        "%u groups of %u do not fit strides %llu and %llu",
                        op->groups, op->dim, (unsigned long long)op->x_stride,
                        (unsigned long long)op->y_stride);
    if (op->residual && op->groups != 1)
        return cpu_fail(d, XRAY_E_ARG, "rmsnorm",
                        "residual needs groups = 1, not %u", op->groups);
    size_t n = cpu_count(&op->tokens);
    rows_job job = { d, op, n };
    cpu_ranges(d, n, 1, (double)width / 2, rmsnorm_range, &job);
    return XRAY_OK;
}

static void rmsnorm_dx_range(void *ctx, size_t first, size_t last)
{
    const rows_job *job = ctx;
    job->d->k->rmsnorm_dx(job->op, first, last);
}

/* Computes columns first .. last - 1 of dweight's rows, with all tokens in
 * order. */
static void rmsnorm_dw_range(void *ctx, size_t first, size_t last)
{
    const rows_job *job = ctx;
    size_t columns[2] = { first, last };
    job->d->k->rmsnorm_dw(job->op, job->tokens, columns);
}

/* dweight is computed first, because dx may overwrite dy. */
xray_status cpu_rmsnorm_grad(void *self, xray_stream *stream,
                             const xray_rmsnorm_grad *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "rmsnorm_grad", op->x, op->weight, op->rstd, op->dy,
              op->dx);
    XR_CHECK_OPERANDS(d->host, "rmsnorm_grad", XR_OPERAND(op, x));
    size_t width = (size_t)op->groups * op->dim;
    if (width == 0 || op->x_stride < width || op->dy_stride < width ||
        op->dx_stride < width)
        return cpu_fail(
            d, XRAY_E_ARG, "rmsnorm_grad",
            "%u groups of %u do not fit strides %llu, %llu and %llu",
            op->groups, op->dim, (unsigned long long)op->x_stride,
            (unsigned long long)op->dy_stride,
            (unsigned long long)op->dx_stride);
    size_t segments = op->segments ? op->segments : 1;
    if (op->groups % segments)
        return cpu_fail(d, XRAY_E_ARG, "rmsnorm_grad",
                        "%u segments do not divide %u groups", op->segments,
                        op->groups);
    size_t n = cpu_count(&op->tokens);
    rows_job job = { d, op, n };
    if (op->dweight)
        cpu_ranges(d, segments * op->dim, 16,
                   (double)n * op->groups / (double)segments / 4,
                   rmsnorm_dw_range, &job);
    cpu_ranges(d, n, 1, (double)width / 2, rmsnorm_dx_range, &job);
    return XRAY_OK;
}

/* ---- LayerNorm ---------------------------------------------------------- */

static void layernorm_range(void *ctx, size_t first, size_t last)
{
    const rows_job *job = ctx;
    job->d->k->layernorm(job->op, first, last);
}

xray_status cpu_layernorm(void *self, xray_stream *stream,
                          const xray_layernorm *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "layernorm", op->x, op->weight, op->y);
    XR_CHECK_OPERANDS(d->host, "layernorm", XR_OPERAND(op, x),
                      XR_OPERAND(op, y));
    if (op->dim == 0 || op->x_stride < op->dim || op->y_stride < op->dim)
        return cpu_fail(d, XRAY_E_ARG, "layernorm",
                        "dim %u does not fit strides %llu and %llu", op->dim,
                        (unsigned long long)op->x_stride,
                        (unsigned long long)op->y_stride);
    size_t n = cpu_count(&op->tokens);
    rows_job job = { d, op, n };
    cpu_ranges(d, n, 1, (double)op->dim, layernorm_range, &job);
    return XRAY_OK;
}

static void layernorm_dx_range(void *ctx, size_t first, size_t last)
{
    const rows_job *job = ctx;
    job->d->k->layernorm_dx(job->op, first, last);
}

/* Computes columns first .. last - 1 of dweight and dbias, with all tokens in
 * order. */
static void layernorm_dw_range(void *ctx, size_t first, size_t last)
{
    const rows_job *job = ctx;
    size_t columns[2] = { first, last };
    job->d->k->layernorm_dw(job->op, job->tokens, columns);
}

/* dweight and dbias are computed first, because dx may overwrite dy. */
xray_status cpu_layernorm_grad(void *self, xray_stream *stream,
                               const xray_layernorm_grad *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "layernorm_grad", op->x, op->weight, op->stat, op->dy,
              op->dx);
    XR_CHECK_OPERANDS(d->host, "layernorm_grad", XR_OPERAND(op, x));
    if (op->dim == 0 || op->x_stride < op->dim || op->dy_stride < op->dim ||
        op->dx_stride < op->dim)
        return cpu_fail(d, XRAY_E_ARG, "layernorm_grad",
                        "dim %u does not fit strides %llu, %llu and %llu",
                        op->dim, (unsigned long long)op->x_stride,
                        (unsigned long long)op->dy_stride,
                        (unsigned long long)op->dx_stride);
    size_t n = cpu_count(&op->tokens);
    rows_job job = { d, op, n };
    if (op->dweight || op->dbias)
        cpu_ranges(d, op->dim, 16, (double)n / 2, layernorm_dw_range, &job);
    cpu_ranges(d, n, 1, (double)op->dim, layernorm_dx_range, &job);
    return XRAY_OK;
}

/* ---- rotary positions --------------------------------------------------- */

static void rope_table_range(void *ctx, size_t first, size_t last)
{
    const rows_job *job = ctx;
    const xray_rope_table *op = job->op;
    for (size_t p = first; p < last; p++)
        for (size_t i = 0; i < op->half; i++)
            xray_rope_pair(p, op->inv_freq[i], op->scale,
                           op->table + (p * op->half + i) * 2);
}

xray_status cpu_rope_table(void *self, xray_stream *stream,
                           const xray_rope_table *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "rope_table", op->inv_freq, op->table);
    for (size_t i = 0; i < op->half; i++)
        if (!(op->inv_freq[i] >= 0.0 &&
              op->inv_freq[i] * (double)op->positions < 0x1p30))
            return cpu_fail(d, XRAY_E_RANGE, "rope_table",
                            "frequency %zu, %g, is not in range", i,
                            op->inv_freq[i]);
    rows_job job = { d, op, op->positions };
    cpu_ranges(d, op->positions, 1, (double)op->half * 20, rope_table_range,
               &job);
    return XRAY_OK;
}

static void rope_range(void *ctx, size_t first, size_t last)
{
    const rows_job *job = ctx;
    job->d->k->rope(job->op, first, last);
}

xray_status cpu_rope(void *self, xray_stream *stream, const xray_rope *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "rope", op->x, op->positions, op->table);
    XR_CHECK_OPERANDS(d->host, "rope", { "x", op->x, op->dtype });
    if (2 * (uint64_t)op->half > op->head_dim ||
        op->stride < (uint64_t)op->heads * op->head_dim)
        return cpu_fail(
            d, XRAY_E_ARG, "rope",
            "%u heads of %u, %u of them rotary, do not fit stride %llu",
            op->heads, op->head_dim, 2 * op->half,
            (unsigned long long)op->stride);
    size_t n = cpu_count(&op->tokens);
    xray_status status = check_ids(d, "rope", op->positions, n, 0, INT32_MAX);
    if (status != XRAY_OK)
        return status;
    rows_job job = { d, op, n };
    cpu_ranges(d, n, 1, (double)op->heads * op->half, rope_range, &job);
    return XRAY_OK;
}

/* ---- gated activation --------------------------------------------------- */

static void glu_range(void *ctx, size_t first, size_t last)
{
    const rows_job *job = ctx;
    job->d->k->glu(job->op, first, last);
}

static void glu_grad_range(void *ctx, size_t first, size_t last)
{
    const rows_job *job = ctx;
    job->d->k->glu_grad(job->op, first, last);
}

static xray_status check_activation(const cpu_device *d, const char *where,
                                    uint32_t act, uint32_t dim, uint32_t plain)
{
    if (plain > 1)
        return cpu_fail(d, XRAY_E_ARG, where, "plain is %u, but must be 0 or 1",
                        plain);
    if (act != XRAY_ACT_SILU && act != XRAY_ACT_GELU_TANH)
        return cpu_fail(d, XRAY_E_UNSUPPORTED, where,
                        "activation %u is not supported", act);
    if (dim == 0)
        return cpu_fail(d, XRAY_E_ARG, where, "dim is 0");
    return XRAY_OK;
}

xray_status cpu_glu(void *self, xray_stream *stream, const xray_glu *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "glu", op->x, op->y);
    XR_CHECK_OPERANDS(d->host, "glu", XR_OPERAND(op, x), XR_OPERAND(op, y));
    xray_status status =
        check_activation(d, "glu", op->act, op->dim, op->plain);
    if (status != XRAY_OK)
        return status;
    size_t n = cpu_count(&op->tokens);
    rows_job job = { d, op, n };
    cpu_ranges(d, n, 1, (double)op->dim * 3, glu_range, &job);
    return XRAY_OK;
}

xray_status cpu_glu_grad(void *self, xray_stream *stream,
                         const xray_glu_grad *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "glu_grad", op->x, op->dy, op->dx);
    XR_CHECK_OPERANDS(d->host, "glu_grad", XR_OPERAND(op, x),
                      { "dx", op->dx, XRAY_F32 });
    xray_status status =
        check_activation(d, "glu_grad", op->act, op->dim, op->plain);
    if (status != XRAY_OK)
        return status;
    size_t n = cpu_count(&op->tokens);
    rows_job job = { d, op, n };
    cpu_ranges(d, n, 1, (double)op->dim * 4, glu_grad_range, &job);
    return XRAY_OK;
}
