/* SPDX-License-Identifier: Apache-2.0
 *
 * Weight handles and the operator matmul on NVIDIA GPUs: it converts operands
 * to the instance's precision, then one kernel computes the product.
 */
#include <stdlib.h>

#include "plugins/device-cuda/blas_choose.h"
#include "plugins/device-cuda/cu.h"
#include "plugins/device-cuda/product_epilogue.h"

/* ---- rounding ------------------------------------------------------------ */

CU_FN float value_at(const void *x, uint64_t at, uint32_t dtype)
{
    if (dtype == XRAY_F32)
        return ((const float *)x)[at];
    uint16_t h = ((const uint16_t *)x)[at];
    return dtype == XRAY_BF16 ? cu_from_bf16(h) : cu_from_f16(h);
}

/* Rounds rows to bf16. Bound by memory: 2 or 4 bytes in and 2 out per element;
 * a thread does eight elements. */
__global__ void __launch_bounds__(256) round_rows(product_rounding r)
{
    uint64_t chunks = (r.width + 7) / 8;
    uint64_t i = (uint64_t)blockIdx.x * 256 + threadIdx.x;
    uint64_t row = i / chunks;
    uint32_t col = (uint32_t)(i % chunks) * 8;
    uint64_t rows = r.rows;
    if (r.live) {
        int64_t live = (int64_t)*r.live - (int64_t)r.live_from;
        uint64_t most = live < 0 ? 0 : (uint64_t)live;
        rows = rows < most ? rows : most;
    }
    if (row >= rows)
        return;
    uint64_t at = row * r.x_row + col;
    const float *wide = (const float *)r.x + at;
    float v[8];
    const uint16_t *half = (const uint16_t *)r.x + at;
    if (r.dtype == XRAY_BF16 && col + 8 <= r.width &&
        ((uintptr_t)half & 15u) == 0) {
        uint4 p = *(const uint4 *)(const void *)half;
        uint32_t u[4] = { p.x, p.y, p.z, p.w };
#pragma unroll
        for (uint32_t j = 0; j < 8; j++)
            v[j] = cu_from_bf16((uint16_t)(u[j / 2] >> j % 2 * 16));
    } else if (r.dtype == XRAY_F32 && col + 8 <= r.width &&
               ((uintptr_t)wide & 15u) == 0) {
        float4 p = *(const float4 *)(const void *)wide;
        float4 q = *(const float4 *)(const void *)(wide + 4);
        v[0] = p.x;
        v[1] = p.y;
        v[2] = p.z;
        v[3] = p.w;
        v[4] = q.x;
        v[5] = q.y;
        v[6] = q.z;
        v[7] = q.w;
    } else {
#pragma unroll
        for (uint32_t j = 0; j < 8; j++)
            v[j] = col + j < r.width ? value_at(r.x, at + j, r.dtype) : 0.0f;
    }
    if (r.scale != 0.0f)
#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = v[j] * r.scale;
    uint4 out = make_uint4(cu_pack_bf16(v[0], v[1]), cu_pack_bf16(v[2], v[3]),
                           cu_pack_bf16(v[4], v[5]), cu_pack_bf16(v[6], v[7]));
    *(uint4 *)(void *)(r.to + (row * chunks * 8 + col)) = out;
}

xray_status product_round(const cuda_device *d, cudaStream_t stream,
                          const char *where, const product_rounding *r)
{
    uint64_t parts = (uint64_t)r->rows * (product_row(r->width) / 8);
    if (parts == 0)
        return XRAY_OK;
    CU_LAUNCH(round_rows, dim3((unsigned)((parts + 255) / 256)), 256, 0, stream,
              *r);
    return cuda_launched(d, where);
}

/* ---- weight handles ------------------------------------------------------ */

#define ALL_USES (XRAY_USE_NT | XRAY_USE_NN | XRAY_USE_TN)

static xray_status refuse_weight(const cuda_device *d,
                                 const xray_weight_desc *desc)
{
    if (desc->rows == 0 || desc->cols == 0 || desc->rows > INT32_MAX ||
        desc->cols > INT32_MAX)
        return cuda_fail(d, XRAY_E_RANGE, "weight_create",
                         "a matrix of %llu x %llu is empty or too large",
                         (unsigned long long)desc->rows,
                         (unsigned long long)desc->cols);
    if (desc->dtype < XRAY_F32 || desc->dtype > XRAY_F16)
        return cuda_fail(d, XRAY_E_UNSUPPORTED, "weight_create",
                         "element type %u is not supported", desc->dtype);
    if (desc->product_dtype && desc->product_dtype != XRAY_BF16)
        return cuda_fail(d, XRAY_E_UNSUPPORTED, "weight_create",
                         "product_dtype is %u, but must be 0 or XRAY_BF16 (%u)",
                         desc->product_dtype, XRAY_BF16);
    if (!desc->uses || desc->uses & ~ALL_USES)
        return cuda_fail(d, XRAY_E_ARG, "weight_create",
                         "uses is 0x%x, which is not a set of XRAY_USE_*",
                         desc->uses);
    return XRAY_OK;
}

/* Whether products cannot read a matrix at `data` in place: the tensor cores
 * take bf16 only, the others any type, but not as another one. */
static int needs_copy(int64_t precision, const xray_weight_desc *desc,
                      const void *data)
{
    if (precision == CUDA_BFLOAT16)
        return !product_in_place(data, desc->cols, desc->cols, desc->dtype);
    return desc->product_dtype && desc->product_dtype != desc->dtype;
}

static uint64_t copy_bytes(const xray_weight_desc *desc)
{
    return desc->rows * product_row(desc->cols) * sizeof(uint16_t);
}

uint64_t cuda_plan_weight(const void *config, const xray_weight_desc *desc)
{
    cuda_config c = cuda_copy_config(config);
    if (!desc || desc->header.size < sizeof(*desc) ||
        refuse_weight(NULL, desc) != XRAY_OK)
        return 0;
    return needs_copy(c.precision, desc, NULL) ? copy_bytes(desc) : 0;
}

xray_status cuda_weight_create(void *self, const xray_weight_desc *desc,
                               xray_weight **out)
{
    cuda_device *d = (cuda_device *)self;
    if (!desc || desc->header.size < sizeof(*desc) || !desc->data)
        return cuda_fail(d, XRAY_E_ARG, "weight_create",
                         "the matrix has no data");
    xray_status status = refuse_weight(d, desc);
    if (status != XRAY_OK)
        return status;
    xray_weight *w = (xray_weight *)calloc(1, sizeof(*w));
    uint16_t *narrow = NULL;
    int copied = needs_copy(d->precision, desc, desc->data);
    if (w && copied)
        narrow = (uint16_t *)cuda_alloc(d, XRAY_TAG_WEIGHTS, copy_bytes(desc));
    if (!w || (copied && !narrow)) {
        free(w);
        return cuda_fail(d, XRAY_E_NOMEM, "weight_create",
                         "no memory for a bf16 copy of a matrix of %llu x %llu",
                         (unsigned long long)desc->rows,
                         (unsigned long long)desc->cols);
    }
    if (d->blas)
        status = blas_weight(d, desc->rows, desc->cols, desc->uses, narrow);
    if (status != XRAY_OK) {
        cuda_free(d, narrow);
        free(w);
        return status;
    }
    w->device = d;
    w->data = desc->data;
    w->rows = desc->rows;
    w->cols = desc->cols;
    w->dtype = desc->dtype;
    w->uses = desc->uses;
    w->narrow = narrow;
    w->stale = narrow != NULL;
    w->next = d->weights;
    if (d->weights)
        d->weights->prev = w;
    d->weights = w;
    *out = w;
    return XRAY_OK;
}

void cuda_weight_destroy(void *self, xray_weight *weight)
{
    cuda_device *d = (cuda_device *)self;
    if (!weight)
        return;
    if (weight->prev)
        weight->prev->next = weight->next;
    else
        d->weights = weight->next;
    if (weight->next)
        weight->next->prev = weight->prev;
    cuda_free(d, weight->narrow);
    free(weight);
}

xray_status cuda_weight_changed(void *self, xray_weight *weight)
{
    if (!weight)
        return cuda_fail((cuda_device *)self, XRAY_E_ARG, "weight_changed",
                         "weight is NULL");
    weight->stale = weight->narrow != NULL;
    return XRAY_OK;
}

static xray_status refresh_weight(const cuda_device *d, cudaStream_t stream,
                                  const char *where, const xray_weight *w)
{
    if (!w->stale)
        return XRAY_OK;
    product_rounding r = {};
    r.x = w->data;
    r.to = w->narrow;
    r.x_row = w->cols;
    r.rows = (uint32_t)w->rows;
    r.width = (uint32_t)w->cols;
    r.dtype = w->dtype;
    xray_status status = product_round(d, stream, where, &r);
    if (status == XRAY_OK)
        const_cast<xray_weight *>(w)->stale = 0;
    return status;
}

xray_status cuda_weights_refresh(cuda_device *d, cudaStream_t stream)
{
    xray_status status = XRAY_OK;
    for (xray_weight *w = d->weights; w && status == XRAY_OK; w = w->next)
        status = refresh_weight(d, stream, "graph_launch", w);
    return status;
}

xray_status product_set_matrix(const cuda_device *d, cudaStream_t stream,
                               const char *where, const xray_weight *w,
                               product_gemm *g)
{
    if (w->evicted)
        return cuda_fail(d, XRAY_E_STATE, where,
                         "the weight was evicted; call weight_changed");
    xray_status status = refresh_weight(d, stream, where, w);
    g->b = w->narrow ? w->narrow : w->data;
    g->b_row = w->narrow ? product_row(w->cols) : w->cols;
    g->b_dtype = (uint8_t)(w->narrow ? XRAY_BF16 : w->dtype);
    return status;
}

/* ---- products ------------------------------------------------------------ */

xray_status product_check_use(const cuda_device *d, const char *where,
                              const xray_weight *w, uint32_t use)
{
    const char *name = use == XRAY_USE_NT   ? "XRAY_NT"
                       : use == XRAY_USE_NN ? "XRAY_NN"
                                            : "dweight";
    const char *needed = use == XRAY_USE_NT   ? "XRAY_USE_NT"
                         : use == XRAY_USE_NN ? "XRAY_USE_NN"
                                              : "XRAY_USE_TN";
    if (w->uses & use)
        return XRAY_OK;
    return cuda_fail(d, XRAY_E_STATE, where,
                     "%s needs a weight with %s among its uses", name, needed);
}

/* A product that is computed without its epilogue, in `stage` [m, n]: copies
 * what its sums start from, or ends it. Each thread does one element. */
__global__ void __launch_bounds__(256)
    finish_rows(product_gemm g, float *stage, int start)
{
    uint32_t half = product_gates(&g);
    uint32_t col = blockIdx.y * 256 + threadIdx.x;
    uint32_t row = blockIdx.x;
    if (g.live && (int64_t)row + g.live_from >= (int64_t)*g.live)
        return;
    if (col >= (half ? half : g.n))
        return;
    float *at = stage + (uint64_t)row * g.n + col;
    if (start)
        *at = product_read(&g, g.from, row * g.from_row + col);
    else if (half)
        product_put2(&g, row, 2 * col, at[0], at[half]);
    else
        product_put(&g, row, col, *at);
}

xray_status product_staged(cuda_device *d, cudaStream_t stream,
                           const char *where, const product_gemm *g)
{
    product_gemm plain = *g;
    void *stage = NULL;
    xray_status status = cuda_scratch(
        d, CUDA_SCRATCH_STAGE, (uint64_t)g->m * g->n * sizeof(float), &stage);
    if (status != XRAY_OK)
        return status;
    plain.c = stage;
    plain.c_row = g->n;
    plain.from = NULL;
    plain.add = NULL;
    plain.act = 0;
    plain.gates = 0;
    plain.narrow = 0;
    dim3 grid(g->m, (g->n + 255) / 256);
    if (g->from) {
        CU_LAUNCH(finish_rows, grid, 256, 0, stream, *g, (float *)stage, 1);
        plain.from = plain.c;
        plain.from_row = plain.c_row;
        status = cuda_launched(d, where);
    }
    if (status == XRAY_OK)
        status = product_narrow(d, stream, where, &plain);
    if (status != XRAY_OK)
        return status;
    CU_LAUNCH(finish_rows, grid, 256, 0, stream, *g, (float *)stage, 0);
    return cuda_launched(d, where);
}

/* Whether a product has an epilogue that cuBLASLt does not compute. It rounds
 * sums to bf16 once, but only those that start from 0. */
static int needs_stage(const product_gemm *g)
{
    return g->act || g->add || (g->from && g->from != g->c) ||
           (g->narrow & PRODUCT_NARROW_C && (g->from || g->bias));
}

/* Cycles of a launch and of its first and last tiles, and bytes that memory
 * moves in a cycle, on an H200. In tests sums are short, and launches cost
 * nothing. */
#ifdef XR_CUDA_EMULATED
#define LAUNCH_CYCLES 0u
#else
#define LAUNCH_CYCLES 5000u
#endif
#define CYCLE_BYTES 2400u

/* Whether product_cut should be faster than product_tensor, of which it needs
 * the products of product_bulk. */
static int cut_pays(const cuda_device *d, const product_gemm *g)
{
    if (!g->segments || !product_bulk_runs(d))
        return 0;
    uint64_t bulk = product_bulk_time(d, g);
    uint64_t warps = product_tensor_time(d, g);
    uint64_t moved = (uint64_t)g->m * g->n * 2 * sizeof(float);
    uint64_t extra = g->segments * (LAUNCH_CYCLES + moved / CYCLE_BYTES);
    return bulk < warps && extra < (warps - bulk) * (g->k / 16);
}

xray_status product_narrow(cuda_device *d, cudaStream_t stream,
                           const char *where, const product_gemm *g)
{
    if (cut_pays(d, g)) {
        xray_status status = product_cut(d, stream, where, g);
        if (status != XRAY_E_UNSUPPORTED)
            return status;
    }
    if (d->blas && g->form != PRODUCT_TN && !g->segments) {
        product_gemm plain = *g;
        int staged = needs_stage(g);
        if (staged)
            plain.narrow = 0;
        xray_status status = blas_computes(d, where, &plain);
        if (status == XRAY_OK)
            return staged ? product_staged(d, stream, where, g)
                          : blas_run(d, stream, where, g);
        if (status != XRAY_E_UNSUPPORTED)
            return status;
    }
    return product_tensor(d, stream, where, g, PRODUCT_AUTO);
}

/* Rounds x to bf16 in scratch and sets it as operand a of g, unless the tensor
 * cores can read it as it is. */
static xray_status narrow_x(cuda_device *d, cudaStream_t stream,
                            const xray_matmul *op, product_gemm *g)
{
    if (g->scale == 0.0f &&
        product_in_place(op->x, op->x_stride, g->k, op->x_dtype))
        return XRAY_OK;
    uint64_t row = product_row(g->k);
    void *to = NULL;
    xray_status status =
        cuda_scratch(d, CUDA_SCRATCH_X, g->m * row * sizeof(uint16_t), &to);
    if (status != XRAY_OK)
        return status;
    product_rounding r = {};
    r.x = op->x;
    r.to = (uint16_t *)to;
    r.live = g->live;
    r.x_row = op->x_stride;
    r.rows = g->m;
    r.width = g->k;
    r.dtype = product_type(op->x_dtype);
    r.scale = g->scale;
    g->a = to;
    g->a_row = row;
    return product_round(d, stream, "matmul", &r);
}

/* Refuses what an epilogue cannot be combined with. */
static xray_status check_epilogue(const cuda_device *d, const xray_matmul *op)
{
    if (op->kind != XRAY_NT && op->kind != XRAY_NN)
        return cuda_fail(d, XRAY_E_ARG, "matmul", "unknown kind %u", op->kind);
    if (op->act > XRAY_ACT_GELU_TANH)
        return cuda_fail(d, XRAY_E_UNSUPPORTED, "matmul",
                         "activation %u is not supported", op->act);
    if (op->plain > (op->act ? 1u : 0u))
        return cuda_fail(d, XRAY_E_ARG, "matmul",
                         "plain is %u, but must be 0, or 1 with an activation",
                         op->plain);
    if (op->act && (op->kind != XRAY_NT || op->residual))
        return cuda_fail(d, XRAY_E_ARG, "matmul",
                         "an activation needs kind XRAY_NT and no residual");
    if (op->act && !op->plain && op->weight->rows % 2)
        return cuda_fail(d, XRAY_E_ARG, "matmul",
                         "%llu outputs are not as many gates as up projections",
                         (unsigned long long)op->weight->rows);
    return XRAY_OK;
}

/* Refuses rows that overlap. `in` and `out` are those of the matrix. */
static xray_status check_strides(const cuda_device *d, const xray_matmul *op,
                                 uint64_t in, uint64_t out)
{
    out /= op->act && !op->plain ? 2 : 1;
    if (op->x_stride < in || op->y_stride < out)
        return cuda_fail(
            d, XRAY_E_ARG, "matmul",
            "strides %llu and %llu do not fit rows of %llu and %llu",
            (unsigned long long)op->x_stride, (unsigned long long)op->y_stride,
            (unsigned long long)in, (unsigned long long)out);
    if (op->residual && op->residual_stride < out)
        return cuda_fail(d, XRAY_E_ARG, "matmul",
                         "residual_stride %llu does not fit rows of %llu",
                         (unsigned long long)op->residual_stride,
                         (unsigned long long)out);
    return XRAY_OK;
}

/* Sets how many terms a segment has of each part of a sum of `depth` terms. */
static xray_status cut_sum(const cuda_device *d, const xray_matmul *op,
                           uint64_t depth, product_gemm *g)
{
    uint32_t n = op->segments ? op->segments : 1;
    const uint64_t one[3] = { depth, 0, 0 };
    const uint64_t *part =
        op->part[0] || op->part[1] || op->part[2] ? op->part : one;
    if (n > XRAY_SEGMENTS || (n & (n - 1)))
        return cuda_fail(d, XRAY_E_ARG, "matmul",
                         "segments is %u, but must be a power of two up to %u",
                         n, XRAY_SEGMENTS);
    if (n > 1 && op->act)
        return cuda_fail(d, XRAY_E_ARG, "matmul",
                         "an activation needs a sum of one segment, not of %u",
                         n);
    for (uint64_t i = 0, left = depth; i < 3; left -= part[i++])
        if (part[i] > left || (i == 2 && part[i] < left))
            return cuda_fail(
                d, XRAY_E_ARG, "matmul",
                "parts of %llu, %llu and %llu do not add up to %llu",
                (unsigned long long)part[0], (unsigned long long)part[1],
                (unsigned long long)part[2], (unsigned long long)depth);
    for (int i = 0, pieces = 0; n > 1 && i < 3; i++) {
        if (part[i] % n)
            return cuda_fail(d, XRAY_E_ARG, "matmul",
                             "a part of %llu cannot be cut into %u segments",
                             (unsigned long long)part[i], n);
        if (part[i])
            g->piece[pieces++] = (uint32_t)(part[i] / n);
    }
    g->segments = n > 1 ? (uint8_t)n : 0;
    return XRAY_OK;
}

/* Sets all of g but the matrix and the segments. */
static void set_gemm(const xray_matmul *op, uint64_t in, uint64_t out,
                     product_gemm *g)
{
    g->a = op->x;
    g->a_row = op->x_stride;
    g->c = op->y;
    g->c_row = op->y_stride;
    g->bias = op->bias;
    g->live = op->tokens.live;
    g->form = op->kind == XRAY_NT ? PRODUCT_NT : PRODUCT_NN;
    g->m = (uint32_t)op->tokens.bound;
    g->n = (uint32_t)out;
    g->k = (uint32_t)in;
    g->scale = op->alpha == 1.0f ? 0.0f : op->alpha;
    g->act = (uint8_t)op->act;
    g->gates = op->act && !op->plain;
    g->from_row = op->residual_stride;
    *(op->bias || g->segments ? &g->add : &g->from) = op->residual;
    g->narrow = (op->x_dtype == XRAY_BF16 ? PRODUCT_NARROW_A : 0) |
                (op->y_dtype == XRAY_BF16 ? PRODUCT_NARROW_C : 0) |
                (op->residual_dtype == XRAY_BF16 ? PRODUCT_NARROW_FROM : 0);
}

xray_status cuda_matmul(void *self, xray_stream *stream, const xray_matmul *op)
{
    cuda_device *d = (cuda_device *)self;
    CUDA_CHECK(d, op, "matmul", op->weight, op->x, op->y);
    XR_CHECK_OPERANDS(d->host, "matmul", XR_OPERAND(op, x), XR_OPERAND(op, y),
                      XR_OPERAND(op, residual));
    const xray_weight *w = op->weight;
    int nt = op->kind == XRAY_NT;
    uint64_t in = nt ? w->cols : w->rows;
    uint64_t out = nt ? w->rows : w->cols;
    product_gemm g = {};
    xray_status status = check_epilogue(d, op);
    if (status == XRAY_OK)
        status = check_strides(d, op, in, out);
    if (status == XRAY_OK)
        status = cut_sum(d, op, in, &g);
    if (status != XRAY_OK || op->tokens.bound == 0)
        return status;
    if (op->tokens.bound > INT32_MAX)
        return cuda_fail(d, XRAY_E_RANGE, "matmul",
                         "%llu tokens are too many for a call",
                         (unsigned long long)op->tokens.bound);
    set_gemm(op, in, out, &g);
    cudaStream_t s = cuda_stream(d, stream);
    status = product_check_use(d, "matmul", w, nt ? XRAY_USE_NT : XRAY_USE_NN);
    if (status == XRAY_OK)
        status = product_set_matrix(d, s, "matmul", w, &g);
    if (status != XRAY_OK)
        return status;
    if (d->precision == CUDA_FLOAT32)
        return product_chain(d, s, "matmul", &g, PRODUCT_AUTO);
    status = narrow_x(d, s, op, &g);
    return status == XRAY_OK ? product_narrow(d, s, "matmul", &g) : status;
}
