/* SPDX-License-Identifier: Apache-2.0
 *
 * How an algorithm of cuBLASLt is chosen: by a probe of its bits.
 *
 * An algorithm suits X-ray if a row of y depends on the same row of x only: not
 * on its place, and not on how many rows there are. Row r of the probe's x is
 * row r % BLAS_PERIOD of the same values, so all rows of y are compared with
 * BLAS_PERIOD rows that are kept.
 */
#ifndef CUDA_BLAS_CHOOSE_H
#define CUDA_BLAS_CHOOSE_H

#include "plugins/device-cuda/product.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BLAS_PERIOD 16u       /* different rows of a probe's x */
#define BLAS_TOKENS 4096u     /* of a probe, and of a call, at the most */
#define BLAS_WORKSPACE 32u    /* MiB that algorithms can use */
#define BLAS_PROBE_MIB 640ull /* the most that x or y of a probe takes */

/* Memory of a probe, all of it on the device. Rows of y and of `kept` have
 * `row` elements of 2 bytes, of which `used` count. */
typedef struct blas_probe {
    const cuda_device *d;
    cudaStream_t stream;
    void *self; /* of `run` */
    /* Enqueues the product of `tokens` rows by a candidate into y.
     * XRAY_E_UNSUPPORTED: the candidate does not compute it. */
    xray_status (*run)(void *self, uint32_t candidate, uint32_t tokens);
    uint16_t *y;
    uint16_t *kept;
    uint32_t *differ;
    uint64_t row;
    uint64_t used;
    uint32_t tokens;     /* the most, at least BLAS_PERIOD */
    uint32_t candidates; /* in order of preference */
    int given;           /* 1: `kept` is given, otherwise the first run's */
} blas_probe;

typedef struct blas_verdict {
    int holds;
    int refused;     /* 1: it does not compute `tokens` tokens */
    uint32_t tokens; /* for which the bits differ or that it refused */
} blas_verdict;

/* How many numbers of tokens a probe tries, and the i-th of them, the most
 * first; 0: none, because the probe has less tokens. */
#define BLAS_TRIALS 16u
uint32_t blas_trial_tokens(const blas_probe *p, uint32_t i);

/* Whether y of `tokens` rows has the rows that are kept. Waits for it. */
xray_status blas_compare(const blas_probe *p, uint32_t tokens, int *out_same);

/* Tries one number of tokens. `keep`: its first rows become those kept. */
xray_status blas_try(const blas_probe *p, uint32_t candidate, uint32_t tokens,
                     int keep, blas_verdict *out);

/* Finds the first candidate that holds; *out is `candidates` if none does.
 * `why` is the verdict over it, or over the first one if none holds. */
xray_status blas_choose(const blas_probe *p, uint32_t *out, blas_verdict *why);

/* How operands of a probe make the order of a sum visible, also where it is
 * rounded to bf16: the sum's first term is large and its last one cancels it,
 * so the terms between lose low bits as they are added. */
#define BLAS_PLAIN 0u
#define BLAS_X 1u    /* the first and the last of a row are large */
#define BLAS_W_NT 2u /* the last column is the first */
#define BLAS_W_NN 3u /* the last row is the first */
#define BLAS_LARGE 0x1p20f

/* A matrix of pseudo-random values in [-1, 1), whose row r is that of r %
 * period. Elements from `width` to `row` are left unchanged. */
typedef struct blas_values {
    void *to;
    uint64_t row;
    uint32_t rows;
    uint32_t width;
    uint32_t period;
    uint32_t seed;
    uint32_t narrow; /* 1: bf16, otherwise float */
    uint32_t kind;   /* BLAS_PLAIN, ... */
} blas_values;

xray_status blas_fill(const cuda_device *d, cudaStream_t stream,
                      const blas_values *v);

/* Rounds rows [rows, n] of floats to bf16. */
xray_status blas_round(const cuda_device *d, cudaStream_t stream,
                       const float *from, uint64_t from_row, uint16_t *to,
                       uint64_t to_row, uint32_t rows, uint32_t n);

/* ---- blas.cu ------------------------------------------------------------- */

/* Chooses the algorithms of a weight's products before any of them can be
 * captured. `lent`: bf16 memory of the weight's padded size whose content
 * nobody needs, or NULL. Does nothing for shapes that are known. */
xray_status blas_weight(cuda_device *d, uint64_t rows, uint64_t cols,
                        uint32_t uses, uint16_t *lent);

/* XRAY_OK: cuBLASLt computes the shape of g, XRAY_E_UNSUPPORTED: the own
 * kernels do. Any other status is an error. */
xray_status blas_computes(cuda_device *d, const char *where,
                          const product_gemm *g);

#ifdef __cplusplus
}
#endif

#endif
