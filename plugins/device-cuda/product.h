/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products as product*.cu, blas.cu and op_lm_head.cu share them. One
 * form of work, c[m, n] = start + a . b, serves the forward product, the
 * gradient of the input, the gradient of the matrix and the LM head.
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

#define PRODUCT_NARROW_A 1u
#define PRODUCT_NARROW_C 2u
#define PRODUCT_NARROW_FROM 4u /* from and add */

/* Strides count elements, which are floats or, of a, c, from and add where
 * `narrow` says so, bf16. In float32, `b` has type b_dtype. In bfloat16 both
 * operands hold bf16, 16-byte aligned, with strides that are multiples of 8;
 * rows whose length is not a multiple of 8 are padded with zeros. */
typedef struct product_gemm {
    const void *a;
    const void *b;
    void *c;
    const float *bias; /* [n]; sums start from it unless there is `from` */
    const void *from;  /* sums start from it; may be c */
    const void *add;   /* added to the sums */
    /* Actual number of tokens in total; NULL: as launched. */
    const int32_t *live;
    uint64_t a_row;
    uint64_t b_row;
    uint64_t c_row;
    uint64_t from_row; /* of from, or of add */
    uint32_t m;        /* as launched; tokens, except in PRODUCT_TN */
    uint32_t n;
    uint32_t k; /* as launched; tokens in PRODUCT_TN */
    /* Tokens before this product's first that `live` counts */
    uint32_t live_from;
    float scale;       /* of a; 0: 1 */
    uint32_t piece[3]; /* terms of a piece of each part; 0: no more parts */
    uint8_t form;      /* PRODUCT_* */
    uint8_t act;       /* XRAY_ACT_*: c gets activations instead; 0: none */
    uint8_t gates;     /* 1: half of the rows of b are gates, so c has n / 2
                        * columns */
    uint8_t b_dtype;
    uint8_t wide; /* for the kernels: bit per a, b, c whose rows are aligned */
    /* Segments of the summed index; 0: none. Segment s has the s-th piece of
     * up to three parts that lie one after the other, each of `segments`
     * pieces; k may cut the last piece short. In float32 it is one chain, in
     * bfloat16 the sum of its pieces' sums. Then c = add +
     * (sum + bias), without `from` and `act`. Not for PRODUCT_TN. */
    uint8_t segments;
    uint8_t narrow; /* bit per operand of PRODUCT_NARROW_* */
    uint8_t share;  /* for the kernels: segments of a group of warps */
} product_gemm;

#define PRODUCT_AUTO (-1) /* chooses the tile that suits the shape */

/* float32: one FMA chain per output. `tile` selects one of PRODUCT_CHAIN_TILES
 * kernels, which all give the same bits. */
#define PRODUCT_CHAIN_TILES 3
xray_status product_chain(const cuda_device *d, cudaStream_t stream,
                          const char *where, const product_gemm *g, int tile);

/* bfloat16: tensor cores, sixteen terms per step. XRAY_E_UNSUPPORTED if the
 * tile has no kernel for the form. */
#define PRODUCT_TENSOR_TILES 14
xray_status product_tensor(const cuda_device *d, cudaStream_t stream,
                           const char *where, const product_gemm *g, int tile);

/* The same on compute capability 9.0, where groups of warps multiply what the
 * bulk copy engine brings: the bits of product_tensor. XRAY_E_UNSUPPORTED where
 * it cannot. product_tensor calls it where it is the faster one. */
xray_status product_bulk(const cuda_device *d, cudaStream_t stream,
                         const char *where, const product_gemm *g);

#define PRODUCT_BULK_FEWEST 64u /* tokens that product_bulk takes */

/* Whether product_bulk can compute anything on the device. */
int product_bulk_runs(const cuda_device *d);

/* Cycles that product_bulk, and product_tensor without it, should take per step
 * of sixteen terms. UINT64_MAX where product_bulk has too few tokens. */
uint64_t product_bulk_time(const cuda_device *d, const product_gemm *g);
uint64_t product_tensor_time(const cuda_device *d, const product_gemm *g);

/* A product in segments as one product for each of them, by product_tensor, and
 * a kernel that joins the sums in scratch. XRAY_E_UNSUPPORTED where pieces are
 * not aligned or too little scratch was reserved. */
xray_status product_cut(cuda_device *d, cudaStream_t stream, const char *where,
                        const product_gemm *g);

/* The scratch that product_cut should have for `rows` rows of `row` bytes of
 * sums: at most 256 MiB. */
static inline uint64_t product_cut_bytes(uint64_t rows, uint64_t row)
{
    uint64_t most = (uint64_t)256 << 20;
    return rows * row < most ? rows * row : most;
}

/* The product without its epilogue, into scratch, then a kernel for that: what
 * product_narrow does where cuBLASLt computes the product. */
xray_status product_staged(cuda_device *d, cudaStream_t stream,
                           const char *where, const product_gemm *g);

/* Like product_tensor, or by cuBLASLt if the instance has it. It computes
 * neither segments nor PRODUCT_TN, whose sums must not depend on where tokens
 * are cut. */
xray_status product_narrow(cuda_device *d, cudaStream_t stream,
                           const char *where, const product_gemm *g);

/* Elements of a bf16 row of `width`, padded. */
static inline uint64_t product_row(uint64_t width)
{
    return (width + 7) / 8 * 8;
}

/* The element type that a member of arguments stands for. */
static inline uint32_t product_type(uint32_t dtype)
{
    return dtype ? dtype : XRAY_F32;
}

/* Whether the tensor cores can read rows of `width` elements as they are. */
static inline int product_in_place(const void *x, uint64_t row, uint64_t width,
                                   uint32_t dtype)
{
    return dtype == XRAY_BF16 && (uintptr_t)x % 16 == 0 && row % 8 == 0 &&
           width % 8 == 0;
}

/* Element `at` of activations. */
static inline const void *product_element(const void *x, uint64_t at,
                                          uint32_t dtype)
{
    return (const char *)x + at * (dtype == XRAY_BF16 ? 2 : 4);
}

/* Rounds rows of x: row t goes to to + t * product_row(width), padded with
 * zeros. Rows beyond *live - live_from are left unchanged. */
typedef struct product_rounding {
    const void *x;
    uint16_t *to;
    const int32_t *live;
    uint64_t x_row;
    uint32_t rows;
    uint32_t width;
    uint32_t dtype;
    uint32_t live_from;
    float scale; /* of x; 0: 1 */
    uint32_t reserved;
} product_rounding;

xray_status product_round(const cuda_device *d, cudaStream_t stream,
                          const char *where, const product_rounding *r);

/* Sets as operand b what products read of a weight: its data, or its bf16 copy,
 * which is updated first if it is older than the data. */
xray_status product_set_matrix(const cuda_device *d, cudaStream_t stream,
                               const char *where, const xray_weight *w,
                               product_gemm *g);

/* Refuses a weight whose uses do not have `use`, which is XRAY_USE_*. */
xray_status product_check_use(const cuda_device *d, const char *where,
                              const xray_weight *w, uint32_t use);

/* ---- blas.cu ------------------------------------------------------------- */

/* Opens cuBLASLt. Returns NULL and logs the reason if it cannot. */
struct cuda_blas *blas_open(cuda_device *d);
void blas_close(struct cuda_blas *blas); /* accepts NULL */

/* Computes g with the algorithm of its shape. XRAY_E_UNSUPPORTED: the shape has
 * none, for any number of tokens. */
xray_status blas_run(cuda_device *d, cudaStream_t stream, const char *where,
                     const product_gemm *g);

#ifdef __cplusplus
}
#endif

#endif
