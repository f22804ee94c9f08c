/* SPDX-License-Identifier: Apache-2.0
 *
 * blas.cu and blas_probe.cu share this where the toolkit has cuBLASLt.
 */
#ifndef CUDA_BLAS_LIBRARY_H
#define CUDA_BLAS_LIBRARY_H

#include "plugins/device-cuda/blas_choose.h"

#if !defined(XR_CUDA_EMULATED) && defined(__has_include)
#if __has_include(<cublasLt.h>)
#define BLAS_HEADER 1
#endif
#endif

#ifdef BLAS_HEADER
#include <cublasLt.h>

#define WORKSPACE_BYTES ((size_t)BLAS_WORKSPACE << 20)

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

#define FROM_ZERO 0u
#define FROM_C 1u
#define FROM_BIAS 2u

/* The shape of a product and the algorithm chosen for it. */
typedef struct blas_shape {
    uint32_t form;
    uint32_t n;
    uint32_t k;
    uint32_t start;  /* FROM_* */
    uint32_t narrow; /* PRODUCT_NARROW_C: y is bf16; or 0 */
    uint32_t tokens; /* of one call of the algorithm, at the most */
    int known;       /* 1: `algorithm` is valid; 0: none was found */
    cublasLtMatmulAlgo_t algorithm;
} blas_shape;

typedef struct cuda_blas {
    void *library;
    cublasLtHandle_t handle;
    void *workspace; /* [dev] WORKSPACE_BYTES */
#define BLAS_MEMBER(name) decltype(&name) name##_at;
    BLAS_NAMES(BLAS_MEMBER)
    uint32_t count;
    uint32_t room;
    blas_shape *shapes;
} cuda_blas;

/* The descriptors of a cuBLASLt call, which sees rows as columns. */
typedef struct blas_call {
    cublasLtMatmulDesc_t what;
    cublasLtMatrixLayout_t weight;
    cublasLtMatrixLayout_t x;
    cublasLtMatrixLayout_t y;
} blas_call;

static inline void blas_log(const cuda_device *d, uint32_t level,
                            const char *text)
{
    if (d->host && d->host->log)
        d->host->log(d->host, level, text);
}

static inline int blas_succeeded(cublasStatus_t s)
{
    return s == CUBLAS_STATUS_SUCCESS;
}

static inline int blas_is_narrow(const product_gemm *g)
{
    return (g->narrow & PRODUCT_NARROW_C) != 0;
}

/* Elements of a row of y in scratch, a multiple of 16 bytes. */
static inline uint64_t blas_dense_row(const product_gemm *g)
{
    uint64_t unit = blas_is_narrow(g) ? 8 : 4;
    return (g->n + unit - 1) / unit * unit;
}

/* Makes the descriptors of g for m tokens, also where that fails: the caller
 * destroys them. */
int blas_create_call(const cuda_blas *b, const product_gemm *g, uint32_t m,
                     blas_call *c);
void blas_destroy_call(const cuda_blas *b, blas_call *c);

cublasStatus_t blas_call_library(const cuda_blas *b, cudaStream_t stream,
                                 const product_gemm *g,
                                 const cublasLtMatmulAlgo_t *algorithm);

/* NULL: the shape is not known. */
const blas_shape *blas_find_shape(const cuda_blas *b, uint32_t form, uint32_t n,
                                  uint32_t k, uint32_t start, uint32_t narrow);
xray_status blas_add_shape(cuda_device *d, const blas_shape *shape);

/* Chooses the algorithms of all variants of a form (blas_probe.cu). */
xray_status blas_probe_form(cuda_device *d, uint32_t form, uint32_t n,
                            uint32_t k, uint16_t *lent);
#endif

#endif
