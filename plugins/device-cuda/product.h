/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products: what product*.cu, blas.cu and op_lm_head.cu share. One shape
 * of work, c[m, n] = start + a . b, serves the forward product, the gradient of
 * the input, the gradient of the matrix and the head.
 */
#ifndef CUDA_PRODUCT_H
#define CUDA_PRODUCT_H

#include "plugins/device-cuda/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PRODUCT_NT 0u /* c[m, n] = sum_k a[m, k] b[n, k] */
#define PRODUCT_NN 1u /* c[m, n] = sum_k a[m, k] b[k, n] */
#define PRODUCT_TN 2u /* c[m, n] = sum_k a[k, m] b[k, n] */

/* Strides count elements. In float32 `a` holds floats and `b` what b_dtype
 * says; in bfloat16 both hold bf16, 16-byte aligned, with strides that are
 * multiples of 8, and where they end between those, zeros fill them up. */
typedef struct product_gemm {
    const void *a;
    const void *b;
    float *c;
    const float *bias;   /* [n] or NULL */
    const int32_t *live; /* tokens there are in all, or NULL: as launched */
    uint64_t a_row;
    uint64_t b_row;
    uint64_t c_row;
    uint32_t form; /* PRODUCT_* */
    uint32_t m;    /* as launched; tokens, except in PRODUCT_TN */
    uint32_t n;
    uint32_t k;          /* as launched; tokens in PRODUCT_TN */
    uint32_t live_from;  /* tokens before this product's first, of `live` */
    uint32_t accumulate; /* 1: sums start from c */
    uint32_t b_dtype;
    uint32_t wide; /* of the kernels: bits a, b, c: rows start aligned */
} product_gemm;

#define PRODUCT_AUTO (-1) /* the tile that suits the shape */

/* float32: one FMA chain an output. `tile` picks a kernel, all with the same
 * bits; fewer than PRODUCT_CHAIN_TILES. */
#define PRODUCT_CHAIN_TILES 3
xray_status product_chain(const cuda_device *d, cudaStream_t stream,
                          const char *where, const product_gemm *g, int tile);

/* bfloat16: tensor cores, sixteen terms a step. A tile that has no kernel of
 * the form is XRAY_E_UNSUPPORTED. */
#define PRODUCT_TENSOR_TILES 6
xray_status product_tensor(const cuda_device *d, cudaStream_t stream,
                           const char *where, const product_gemm *g, int tile);

/* As product_tensor, or by cuBLASLt where the instance has it and the form is
 * not PRODUCT_TN, whose sums must not depend on where tokens are cut. */
xray_status product_narrow(cuda_device *d, cudaStream_t stream,
                           const char *where, const product_gemm *g);

/* Elements of a bf16 row of `width`. */
static inline uint64_t product_row(uint64_t width)
{
    return (width + 7) / 8 * 8;
}

/* Rows of x, rounded: row t at to + t * product_row(width), filled up with
 * zeros. Rows beyond *live - live_from are left as they are. */
typedef struct product_rounding {
    const void *x;
    uint16_t *to;
    const int32_t *live;
    uint64_t x_row;
    uint32_t rows;
    uint32_t width;
    uint32_t dtype;
    uint32_t live_from;
} product_rounding;

xray_status product_round(const cuda_device *d, cudaStream_t stream,
                          const char *where, const product_rounding *r);

/* What products read of a weight: its data, or its bf16 copy, made again if it
 * is older. */
typedef struct product_matrix {
    const void *data;
    uint64_t row;
    uint32_t dtype;
    uint32_t reserved;
} product_matrix;

xray_status product_matrix_of(const cuda_device *d, cudaStream_t stream,
                              const char *where, const xray_weight *w,
                              product_matrix *out);

/* dbias[n] += sum of dy[t, n] over tokens, in order. */
xray_status product_bias_grad(const cuda_device *d, cudaStream_t stream,
                              const char *where, const xray_matmul_grad *op);

/* ---- blas.cu ------------------------------------------------------------- */

/* cuBLASLt, or NULL with a line in the log that says why not. */
struct cuda_blas *blas_open(cuda_device *d);
void blas_close(struct cuda_blas *blas); /* accepts NULL */

/* g by the one algorithm of its shape. XRAY_E_UNSUPPORTED: it has none, for no
 * number of tokens. */
xray_status blas_run(cuda_device *d, cudaStream_t stream, const char *where,
                     const product_gemm *g);

#ifdef __cplusplus
}
#endif

#endif
