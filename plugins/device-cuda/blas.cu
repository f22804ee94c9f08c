/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products by cuBLASLt, which is loaded when an instance is configured
 * to use it.
 *
 * cuBLASLt promises less than X-ray's own kernels: the bits of a row are those
 * of one algorithm, and may depend on the rows around it. Each shape of product
 * therefore keeps the first algorithm that a probe of bits accepts
 * (blas_choose.h), for any number of tokens, or none, and the own kernels
 * compute it.
 */
#include <stdlib.h>

#include "plugins/device-cuda/blas_library.h"

#ifdef BLAS_HEADER
#include <dlfcn.h>

#include "plugins/device-cuda/cu.h"

static int load_library(cuda_blas *b)
{
    static const char *const names[] = { "libcublasLt.so.13",
                                         "libcublasLt.so.12",
                                         "libcublasLt.so" };
    for (size_t i = 0; !b->library && i < sizeof(names) / sizeof(*names); i++)
        b->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!b->library)
        return 0;
#define BLAS_FIND(name)                                       \
    b->name##_at = (decltype(&name))dlsym(b->library, #name); \
    if (!b->name##_at)                                        \
        return 0;
    BLAS_NAMES(BLAS_FIND)
    return 1;
}

struct cuda_blas *blas_open(cuda_device *d)
{
    cuda_blas *b = (cuda_blas *)calloc(1, sizeof(*b));
    if (b && load_library(b) &&
        b->cublasLtCreate_at(&b->handle) == CUBLAS_STATUS_SUCCESS) {
        /* Freed with the instance's other blocks. */
        b->workspace = cuda_alloc(d, XRAY_TAG_WORKSPACE, WORKSPACE_BYTES);
        if (b->workspace)
            return b;
        blas_log(d, XRAY_LOG_WARN,
                 "products = cublaslt: there is no memory for cuBLASLt's "
                 "workspace, so the plugin's own kernels compute the products");
        blas_close(b);
        return NULL;
    }
    blas_log(d, XRAY_LOG_WARN,
             "products = cublaslt: libcublasLt.so cannot be loaded, so the "
             "plugin's own kernels compute the products");
    if (b)
        b->handle = NULL;
    blas_close(b);
    return NULL;
}

void blas_close(struct cuda_blas *b)
{
    if (!b)
        return;
    if (b->handle)
        (void)b->cublasLtDestroy_at(b->handle);
    if (b->library)
        (void)dlclose(b->library);
    free(b->shapes);
    free(b);
}

void blas_destroy_call(const cuda_blas *b, blas_call *c)
{
    if (c->what)
        (void)b->cublasLtMatmulDescDestroy_at(c->what);
    if (c->weight)
        (void)b->cublasLtMatrixLayoutDestroy_at(c->weight);
    if (c->x)
        (void)b->cublasLtMatrixLayoutDestroy_at(c->x);
    if (c->y)
        (void)b->cublasLtMatrixLayoutDestroy_at(c->y);
}

/* In columns: y [n, m] = op(W) x [k, m], where W is [k, n] in PRODUCT_NT. */
int blas_create_call(const cuda_blas *b, const product_gemm *g, uint32_t m,
                     blas_call *c)
{
    int nt = g->form == PRODUCT_NT;
    cublasOperation_t turn = nt ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t bias = CUBLASLT_EPILOGUE_BIAS;
    cudaDataType_t y = g->narrow & PRODUCT_NARROW_C ? CUDA_R_16BF : CUDA_R_32F;
    int made =
        blas_succeeded(b->cublasLtMatmulDescCreate_at(
            &c->what, CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
        blas_succeeded(b->cublasLtMatmulDescSetAttribute_at(
            c->what, CUBLASLT_MATMUL_DESC_TRANSA, &turn, sizeof(turn))) &&
        blas_succeeded(b->cublasLtMatrixLayoutCreate_at(
            &c->weight, CUDA_R_16BF, nt ? g->k : g->n, nt ? g->n : g->k,
            (int64_t)g->b_row)) &&
        blas_succeeded(b->cublasLtMatrixLayoutCreate_at(
            &c->x, CUDA_R_16BF, g->k, m, (int64_t)g->a_row)) &&
        blas_succeeded(b->cublasLtMatrixLayoutCreate_at(&c->y, y, g->n, m,
                                                        (int64_t)g->c_row));
    if (made && g->bias && !g->from)
        made =
            blas_succeeded(b->cublasLtMatmulDescSetAttribute_at(
                c->what, CUBLASLT_MATMUL_DESC_EPILOGUE, &bias, sizeof(bias))) &&
            blas_succeeded(b->cublasLtMatmulDescSetAttribute_at(
                c->what, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &g->bias,
                sizeof(g->bias)));
    return made;
}

/* ---- calls --------------------------------------------------------------- */

cublasStatus_t blas_call_library(const cuda_blas *b, cudaStream_t stream,
                                 const product_gemm *g,
                                 const cublasLtMatmulAlgo_t *algorithm)
{
    float one = 1.0f;
    float start = g->from ? 1.0f : 0.0f;
    blas_call c = {};
    cublasStatus_t s = CUBLAS_STATUS_ALLOC_FAILED;
    if (blas_create_call(b, g, g->m, &c))
        s = b->cublasLtMatmul_at(b->handle, c.what, &one, g->b, c.weight, g->a,
                                 c.x, &start, g->c, c.y, g->c, c.y, algorithm,
                                 b->workspace, WORKSPACE_BYTES, stream);
    blas_destroy_call(b, &c);
    return s;
}

/* ---- shapes -------------------------------------------------------------- */

const blas_shape *blas_find_shape(const cuda_blas *b, uint32_t form, uint32_t n,
                                  uint32_t k, uint32_t start, uint32_t narrow)
{
    for (uint32_t i = 0; i < b->count; i++) {
        const blas_shape *s = &b->shapes[i];
        if (s->form == form && s->n == n && s->k == k && s->start == start &&
            s->narrow == narrow)
            return s;
    }
    return NULL;
}

xray_status blas_add_shape(cuda_device *d, const blas_shape *shape)
{
    cuda_blas *b = d->blas;
    if (b->count == b->room) {
        uint32_t room = b->room ? 2 * b->room : 64;
        blas_shape *more =
            (blas_shape *)realloc(b->shapes, room * sizeof(*more));
        if (!more)
            return cuda_fail(d, XRAY_E_NOMEM, "products", "no memory");
        b->shapes = more;
        b->room = room;
    }
    b->shapes[b->count++] = *shape;
    return XRAY_OK;
}

xray_status blas_weight(cuda_device *d, uint64_t rows, uint64_t cols,
                        uint32_t uses, uint16_t *lent)
{
    xray_status status = XRAY_OK;
    if (d->capturing)
        return XRAY_OK;
    (void)cuda_stream(d, NULL); /* sets the thread's device */
    if (uses & XRAY_USE_NT)
        status = blas_probe_form(d, PRODUCT_NT, (uint32_t)rows, (uint32_t)cols,
                                 lent);
    if (status == XRAY_OK && uses & XRAY_USE_NN)
        status = blas_probe_form(d, PRODUCT_NN, (uint32_t)cols, (uint32_t)rows,
                                 lent);
    return status;
}

/* Finds the shape of g, or probes it: shapes are those of weights, so this
 * happens only if a weight was created during a capture. */
static xray_status require_shape(cuda_device *d, const char *where,
                                 const product_gemm *g, const blas_shape **out)
{
    uint32_t start = g->from ? FROM_C : g->bias ? FROM_BIAS : FROM_ZERO;
    uint32_t narrow = g->narrow & PRODUCT_NARROW_C;
    int nt = g->form == PRODUCT_NT;
    *out = blas_find_shape(d->blas, g->form, g->n, g->k, start, narrow);
    if (*out)
        return XRAY_OK;
    if (d->capturing)
        return cuda_fail(d, XRAY_E_STATE, where,
                         "cuBLASLt has not been probed for a product of n %u "
                         "and k %u, which a graph captures; run it once before",
                         g->n, g->k);
    xray_status status = blas_weight(d, nt ? g->n : g->k, nt ? g->k : g->n,
                                     nt ? XRAY_USE_NT : XRAY_USE_NN, NULL);
    *out = blas_find_shape(d->blas, g->form, g->n, g->k, start, narrow);
    return status != XRAY_OK ? status : *out ? XRAY_OK : XRAY_E_UNSUPPORTED;
}

xray_status blas_computes(cuda_device *d, const char *where,
                          const product_gemm *g)
{
    const blas_shape *shape = NULL;
    xray_status status = require_shape(d, where, g, &shape);
    return status == XRAY_OK && !shape->known ? XRAY_E_UNSUPPORTED : status;
}

/* ---- products ------------------------------------------------------------ */

/* Whether strides and addresses suit every algorithm, and no rows are to be
 * left unchanged. The choice of an algorithm may depend on the shape alone. */
static int is_regular(const product_gemm *g)
{
    return !g->live && (uintptr_t)g->c % 16 == 0 &&
           g->c_row % (blas_is_narrow(g) ? 8 : 4) == 0 &&
           (uintptr_t)g->bias % 16 == 0;
}

/* Copies the valid rows of y to or from a dense copy. */
template <typename T>
static __global__ void __launch_bounds__(256)
    move_rows(product_gemm g, T *dense, uint64_t to_row, int out)
{
    uint32_t col = blockIdx.y * 256 + threadIdx.x;
    uint32_t row = blockIdx.x;
    if (g.live && (int64_t)(row + g.live_from) >= (int64_t)*g.live)
        return;
    if (col >= g.n)
        return;
    T *y = (T *)g.c + row * g.c_row + col;
    T *to = dense + row * to_row + col;
    if (out)
        *y = *to;
    else
        *to = *y;
}

static xray_status launch_moves(const cuda_device *d, cudaStream_t stream,
                                const char *where, const product_gemm *g,
                                void *dense, int out)
{
    dim3 grid(g->m, (g->n + 255) / 256);
    uint64_t row = blas_dense_row(g);
    if (blas_is_narrow(g))
        CU_LAUNCH(move_rows<uint16_t>, grid, 256, 0, stream, *g,
                  (uint16_t *)dense, row, out);
    else
        CU_LAUNCH(move_rows<float>, grid, 256, 0, stream, *g, (float *)dense,
                  row, out);
    return cuda_launched(d, where);
}

static xray_status run_algorithm(cuda_device *d, cudaStream_t stream,
                                 const char *where, const product_gemm *g,
                                 const blas_shape *shape)
{
    cublasStatus_t s = blas_call_library(d->blas, stream, g, &shape->algorithm);
    if (blas_succeeded(s))
        return XRAY_OK;
    return cuda_fail(
        d, XRAY_E_DEVICE, where,
        "cuBLASLt failed with status %d for a product of %u x %u x %u", (int)s,
        g->m, g->n, g->k);
}

/* Runs the product with a dense y and an aligned bias in scratch. */
static xray_status run_dense(cuda_device *d, cudaStream_t stream,
                             const char *where, const product_gemm *g,
                             const blas_shape *shape)
{
    product_gemm dense = *g;
    void *to = NULL;
    dense.c_row = blas_dense_row(g);
    dense.live = NULL;
    uint64_t bytes = g->m * dense.c_row * (blas_is_narrow(g) ? 2 : 4);
    xray_status status =
        cuda_scratch(d, CUDA_SCRATCH_REDUCE, bytes + g->n * sizeof(float), &to);
    if (status != XRAY_OK)
        return status;
    dense.c = to;
    if (g->from)
        dense.from = to;
    if (g->bias) {
        float *bias = (float *)(void *)((char *)to + bytes);
        dense.bias = bias;
        status = cuda_check(d, where,
                            cudaMemcpyAsync(bias, g->bias, g->n * sizeof(float),
                                            cudaMemcpyDeviceToDevice, stream));
        if (status != XRAY_OK)
            return status;
    }
    if (g->from)
        status = launch_moves(d, stream, where, g, to, 0);
    if (status == XRAY_OK)
        status = run_algorithm(d, stream, where, &dense, shape);
    return status == XRAY_OK ? launch_moves(d, stream, where, g, to, 1)
                             : status;
}

xray_status blas_run(cuda_device *d, cudaStream_t stream, const char *where,
                     const product_gemm *g)
{
    const blas_shape *shape = NULL;
    xray_status status = require_shape(d, where, g, &shape);
    if (status != XRAY_OK)
        return status;
    if (!shape->known)
        return XRAY_E_UNSUPPORTED;
    /* Only numbers of tokens that were probed. */
    for (uint32_t at = 0; status == XRAY_OK && at < g->m; at += shape->tokens) {
        product_gemm piece = *g;
        uint64_t element = blas_is_narrow(g) ? 2 : 4;
        piece.m = g->m - at < shape->tokens ? g->m - at : shape->tokens;
        piece.a = (const char *)g->a + at * g->a_row * sizeof(uint16_t);
        piece.c = (char *)g->c + at * g->c_row * element;
        piece.from = g->from ? piece.c : NULL;
        piece.live_from = g->live_from + at;
        status = is_regular(&piece)
                     ? run_algorithm(d, stream, where, &piece, shape)
                     : run_dense(d, stream, where, &piece, shape);
    }
    return status;
}

#else

struct cuda_blas *blas_open(cuda_device *d)
{
    if (d->host && d->host->log)
        d->host->log(d->host, XRAY_LOG_WARN,
                     "products = cublaslt: this build has no cuBLASLt, so the "
                     "plugin's own kernels compute the products");
    return NULL;
}

void blas_close(struct cuda_blas *blas)
{
    (void)blas;
}

xray_status blas_weight(cuda_device *d, uint64_t rows, uint64_t cols,
                        uint32_t uses, uint16_t *lent)
{
    (void)d;
    (void)rows;
    (void)cols;
    (void)uses;
    (void)lent;
    return XRAY_OK;
}

xray_status blas_computes(cuda_device *d, const char *where,
                          const product_gemm *g)
{
    (void)d;
    (void)where;
    (void)g;
    return XRAY_E_UNSUPPORTED;
}

xray_status blas_run(cuda_device *d, cudaStream_t stream, const char *where,
                     const product_gemm *g)
{
    (void)d;
    (void)stream;
    (void)where;
    (void)g;
    return XRAY_E_UNSUPPORTED;
}

#endif
