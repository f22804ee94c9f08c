/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products by cuBLASLt, which is loaded when an instance is configured
 * to use it.
 *
 * cuBLASLt promises less than X-ray's own kernels: the bits of a row are those
 * of one algorithm. Each shape of product therefore keeps the first suitable
 * algorithm, one that does not split the summed index, for any number of
 * tokens.
 */
#include <stdlib.h>

#include "plugins/device-cuda/product.h"

#if !defined(XR_CUDA_EMULATED) && defined(__has_include)
#if __has_include(<cublasLt.h>)
#define BLAS_HEADER 1
#endif
#endif

#ifdef BLAS_HEADER
#include <cublasLt.h>
#include <dlfcn.h>

#define REFERENCE_TOKENS 4096u /* tokens for which algorithms are requested */
/* Algorithms requested, of which the first that fits is taken. */
#define CHOICES 16
#define SHAPES 128 /* shapes that an instance remembers */

#define BLAS_NAMES(X)                       \
    X(cublasLtCreate)                       \
    X(cublasLtDestroy)                      \
    X(cublasLtMatmul)                       \
    X(cublasLtMatmulAlgoCheck)              \
    X(cublasLtMatmulAlgoConfigGetAttribute) \
    X(cublasLtMatmulAlgoGetHeuristic)       \
    X(cublasLtMatmulDescCreate)             \
    X(cublasLtMatmulDescDestroy)            \
    X(cublasLtMatmulDescSetAttribute)       \
    X(cublasLtMatmulPreferenceCreate)       \
    X(cublasLtMatmulPreferenceDestroy)      \
    X(cublasLtMatmulPreferenceSetAttribute) \
    X(cublasLtMatrixLayoutCreate)           \
    X(cublasLtMatrixLayoutDestroy)

/* The shape of a product and the algorithm chosen for it. */
typedef struct blas_shape {
    uint32_t form;
    uint32_t n;
    uint32_t k;
    uint32_t start; /* 0, 1 accumulate, 2 bias */
    int known;      /* 1: `algorithm` is valid; 0: none was found */
    cublasLtMatmulAlgo_t algorithm;
} blas_shape;

typedef struct cuda_blas {
    void *library;
    cublasLtHandle_t handle;
#define BLAS_MEMBER(name) decltype(&name) name##_at;
    BLAS_NAMES(BLAS_MEMBER)
    uint32_t count;
    blas_shape shapes[SHAPES];
} cuda_blas;

/* The descriptors of a cuBLASLt call, which sees rows as columns. */
typedef struct blas_call {
    cublasLtMatmulDesc_t what;
    cublasLtMatrixLayout_t weight;
    cublasLtMatrixLayout_t x;
    cublasLtMatrixLayout_t y;
} blas_call;

static void log_warning(const cuda_device *d, const char *text)
{
    if (d->host && d->host->log)
        d->host->log(d->host, XRAY_LOG_WARN, text);
}

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
        b->cublasLtCreate_at(&b->handle) == CUBLAS_STATUS_SUCCESS)
        return b;
    log_warning(d,
                "products = cublaslt: libcublasLt.so cannot be loaded, so the "
                "plugin's own kernels compute the products");
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
    free(b);
}

static void destroy_call(const cuda_blas *b, blas_call *c)
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

static int succeeded(cublasStatus_t s)
{
    return s == CUBLAS_STATUS_SUCCESS;
}

/* In columns: y [n, m] = op(W) x [k, m], where W is [k, n] in PRODUCT_NT. */
static int create_call(const cuda_blas *b, const product_gemm *g, uint32_t m,
                       blas_call *c)
{
    int nt = g->form == PRODUCT_NT;
    cublasOperation_t turn = nt ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t bias = CUBLASLT_EPILOGUE_BIAS;
    int made =
        succeeded(b->cublasLtMatmulDescCreate_at(&c->what, CUBLAS_COMPUTE_32F,
                                                 CUDA_R_32F)) &&
        succeeded(b->cublasLtMatmulDescSetAttribute_at(
            c->what, CUBLASLT_MATMUL_DESC_TRANSA, &turn, sizeof(turn))) &&
        succeeded(b->cublasLtMatrixLayoutCreate_at(
            &c->weight, CUDA_R_16BF, nt ? g->k : g->n, nt ? g->n : g->k,
            (int64_t)g->b_row)) &&
        succeeded(b->cublasLtMatrixLayoutCreate_at(&c->x, CUDA_R_16BF, g->k, m,
                                                   (int64_t)g->a_row)) &&
        succeeded(b->cublasLtMatrixLayoutCreate_at(&c->y, CUDA_R_32F, g->n, m,
                                                   (int64_t)g->c_row));
    if (made && g->bias && !g->from)
        made =
            succeeded(b->cublasLtMatmulDescSetAttribute_at(
                c->what, CUBLASLT_MATMUL_DESC_EPILOGUE, &bias, sizeof(bias))) &&
            succeeded(b->cublasLtMatmulDescSetAttribute_at(
                c->what, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &g->bias,
                sizeof(g->bias)));
    return made;
}

/* Whether the algorithm sums the complete index in one piece. */
static int sums_undivided(const cuda_blas *b, const cublasLtMatmulAlgo_t *a)
{
    int32_t split = 0;
    uint32_t scheme = 0;
    size_t written = 0;
    return succeeded(b->cublasLtMatmulAlgoConfigGetAttribute_at(
               a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof(split),
               &written)) &&
           succeeded(b->cublasLtMatmulAlgoConfigGetAttribute_at(
               a, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
               sizeof(scheme), &written)) &&
           split <= 1 && scheme == CUBLASLT_REDUCTION_SCHEME_NONE;
}

static int algorithm_fits(const cuda_blas *b, const blas_call *c,
                          const cublasLtMatmulAlgo_t *a)
{
    cublasLtMatmulHeuristicResult_t r;
    return succeeded(b->cublasLtMatmulAlgoCheck_at(
               b->handle, c->what, c->weight, c->x, c->y, c->y, a, &r)) &&
           r.workspaceSize == 0;
}

static int fits_tokens(const cuda_blas *b, const product_gemm *g, uint32_t m,
                       const cublasLtMatmulAlgo_t *a)
{
    blas_call c = {};
    int good = create_call(b, g, m, &c) && algorithm_fits(b, &c, a);
    destroy_call(b, &c);
    return good;
}

/* Elements of a row of y in scratch. */
static uint64_t dense_row(const product_gemm *g)
{
    return ((uint64_t)g->n + 3) / 4 * 4;
}

/* Chooses the first algorithm that can serve one token as well as many. */
static void choose_algorithm(const cuda_blas *b, const product_gemm *first,
                             blas_shape *shape)
{
    /* Only the shape of the call that happens to come first enters the
     * choice. */
    product_gemm dense = *first;
    dense.a_row = product_row(first->k);
    dense.c_row = dense_row(first);
    const product_gemm *g = &dense;
    static const uint32_t probes[] = { 1, 2, 7, 16, 100, 256, 1000, 16384 };
    cublasLtMatmulPreference_t wish = NULL;
    cublasLtMatmulHeuristicResult_t found[CHOICES];
    uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE;
    uint64_t workspace = 0;
    int count = 0;
    blas_call c = {};
    int asked = create_call(b, g, REFERENCE_TOKENS, &c) &&
                succeeded(b->cublasLtMatmulPreferenceCreate_at(&wish)) &&
                succeeded(b->cublasLtMatmulPreferenceSetAttribute_at(
                    wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &none,
                    sizeof(none))) &&
                succeeded(b->cublasLtMatmulPreferenceSetAttribute_at(
                    wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                    sizeof(workspace))) &&
                succeeded(b->cublasLtMatmulAlgoGetHeuristic_at(
                    b->handle, c.what, c.weight, c.x, c.y, c.y, wish, CHOICES,
                    found, &count));
    for (int i = 0; asked && !shape->known && i < count; i++) {
        int good =
            succeeded(found[i].state) && sums_undivided(b, &found[i].algo);
        for (size_t p = 0; good && p < sizeof(probes) / sizeof(*probes); p++)
            good = fits_tokens(b, g, probes[p], &found[i].algo);
        if (!good)
            continue;
        shape->algorithm = found[i].algo;
        shape->known = 1;
    }
    if (wish)
        (void)b->cublasLtMatmulPreferenceDestroy_at(wish);
    destroy_call(b, &c);
}

/* Returns NULL if the instance has no space for another shape. */
static blas_shape *find_shape(cuda_blas *b, const product_gemm *g)
{
    uint32_t start = g->from ? 1u : g->bias ? 2u : 0u;
    for (uint32_t i = 0; i < b->count; i++) {
        blas_shape *s = &b->shapes[i];
        if (s->form == g->form && s->n == g->n && s->k == g->k &&
            s->start == start)
            return s;
    }
    if (b->count == SHAPES)
        return NULL;
    blas_shape *s = &b->shapes[b->count++];
    s->form = g->form;
    s->n = g->n;
    s->k = g->k;
    s->start = start;
    choose_algorithm(b, g, s);
    return s;
}

/* Whether strides and addresses suit every algorithm, and no rows are to be
 * left unchanged. The choice of an algorithm may depend on the shape alone. */
static int is_regular(const product_gemm *g)
{
    return !g->live && (uintptr_t)g->c % 16 == 0 && g->c_row % 4 == 0 &&
           (uintptr_t)g->bias % 16 == 0;
}

/* Copies the valid rows of y to or from a dense copy. */
static __global__ void __launch_bounds__(256)
    move_rows(product_gemm g, float *dense, uint64_t dense_row, int out)
{
    uint32_t col = blockIdx.y * 256 + threadIdx.x;
    uint32_t row = blockIdx.x;
    if (g.live && (int64_t)(row + g.live_from) >= (int64_t)*g.live)
        return;
    if (col >= g.n)
        return;
    float *y = (float *)g.c + row * g.c_row + col;
    float *to = dense + row * dense_row + col;
    if (out)
        *y = *to;
    else
        *to = *y;
}

static xray_status run_algorithm(cuda_device *d, cudaStream_t stream,
                                 const char *where, const product_gemm *g,
                                 const blas_shape *shape)
{
    const cuda_blas *b = d->blas;
    float one = 1.0f;
    float start = g->from ? 1.0f : 0.0f;
    blas_call c = {};
    cublasStatus_t s = CUBLAS_STATUS_ALLOC_FAILED;
    if (create_call(b, g, g->m, &c))
        s = b->cublasLtMatmul_at(b->handle, c.what, &one, g->b, c.weight, g->a,
                                 c.x, &start, g->c, c.y, g->c, c.y,
                                 &shape->algorithm, NULL, 0, stream);
    destroy_call(b, &c);
    if (succeeded(s))
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
    dense.c_row = dense_row(g);
    dense.live = NULL;
    uint64_t floats = g->m * dense.c_row;
    xray_status status = cuda_scratch(d, CUDA_SCRATCH_REDUCE,
                                      (floats + g->n) * sizeof(float), &to);
    if (status != XRAY_OK)
        return status;
    float *y = (float *)to;
    dense.c = y;
    if (g->bias) {
        dense.bias = y + floats;
        status = cuda_check(d, where,
                            cudaMemcpyAsync(y + floats, g->bias,
                                            g->n * sizeof(float),
                                            cudaMemcpyDeviceToDevice, stream));
        if (status != XRAY_OK)
            return status;
    }
    dim3 grid(g->m, (g->n + 255) / 256);
    if (g->from) {
        move_rows<<<grid, 256, 0, stream>>>(*g, y, dense.c_row, 0);
        status = cuda_launched(d, where);
    }
    if (status == XRAY_OK)
        status = run_algorithm(d, stream, where, &dense, shape);
    if (status != XRAY_OK)
        return status;
    move_rows<<<grid, 256, 0, stream>>>(*g, y, dense.c_row, 1);
    return cuda_launched(d, where);
}

xray_status blas_run(cuda_device *d, cudaStream_t stream, const char *where,
                     const product_gemm *g)
{
    const blas_shape *shape = find_shape(d->blas, g);
    if (!shape || !shape->known)
        return XRAY_E_UNSUPPORTED;
    return is_regular(g) ? run_algorithm(d, stream, where, g, shape)
                         : run_dense(d, stream, where, g, shape);
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
