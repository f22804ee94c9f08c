/* SPDX-License-Identifier: Apache-2.0
 *
 * device-cuda: the instance, and what the operator files share.
 *
 * Two precisions. `float32` computes the contract xray.fp32/1 of
 * docs/numerics.md to the last bit: the CPU's results. `bfloat16` differs in
 * three places, matrix products, attention and the head: their operands are
 * rounded to bf16 (to nearest even), products are summed by the tensor cores
 * in fp32, sixteen terms a step, the steps in index order from the
 * accumulator. Everything else is as in float32. In both, no result depends
 * on the batch around a row or on how many tokens a call has; a weight's
 * gradient does not depend on where tokens are cut into calls in float32, and
 * in bfloat16 where the cuts are multiples of CUDA_GRAIN tokens.
 */
#ifndef CUDA_DEVICE_H
#define CUDA_DEVICE_H

#include <xray/device.h>

#include "plugins/device-cuda/config.h"

#ifdef XR_CUDA_EMULATED
#include "emulate.h"
#else
#include <cuda_runtime_api.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define CUDA_GRAIN 16u /* tokens that one tensor-core step sums */

#define CUDA_SCRATCH_X 0u      /* operands rounded to bf16 */
#define CUDA_SCRATCH_LOGITS 1u /* of a chunk of the head */
#define CUDA_SCRATCH_ATTEND                                                  \
    2u                         /* attention: partial results of splits, rows \
                                */
#define CUDA_SCRATCH_REDUCE 3u /* sums of blocks */
#define CUDA_SCRATCH_COUNT 4u

typedef struct cuda_scratch_part {
    void *data;
    uint64_t bytes;
} cuda_scratch_part;

struct cuda_blas; /* blas.cu */

typedef struct cuda_device {
    const xray_host *host;
    char name[160];
    int index;
    int precision;          /* CUDA_* */
    int sms;                /* multiprocessors */
    int shared_most;        /* bytes of shared memory a block may ask for */
    cudaStream_t stream;    /* the default one of this instance */
    struct cuda_blas *blas; /* NULL: own kernels make the products */
    cuda_scratch_part scratch[CUDA_SCRATCH_COUNT];
    uint64_t live[XRAY_TAG_COUNT];
    uint64_t high[XRAY_TAG_COUNT];
    uint64_t live_all;
    uint64_t high_all;
    struct cuda_driver *driver; /* memory.c */
    struct cuda_block *blocks;
    struct cuda_mapped *mapped; /* share.c: blocks of other processes */
    uint64_t *sum;              /* [dev] of checksum */
    int capturing;              /* 1 between graph_begin and graph_end */
    int sharing;                /* 1: new blocks can be shared */
    xray_weight *weights;       /* all handles, the newest first */
} cuda_device;

struct xray_weight {
    cuda_device *device;
    const void *data; /* [dev] the caller's [rows, cols] */
    uint64_t rows;
    uint64_t cols;
    uint32_t dtype;
    uint32_t trainable;
    uint16_t *narrow; /* [dev] bf16 copy of this weight's own, rows filled up to
                       * multiples of 8, made again after a change; NULL: `data`
                       * is used as it is */
    uint32_t stale;   /* 1: `narrow` is older than `data` */
    uint32_t reserved;
    xray_weight *prev; /* of cuda_device.weights */
    xray_weight *next;
};

/* Records one sentence with the host and returns `status`. */
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
xray_status
cuda_fail(const cuda_device *d, xray_status status, const char *where,
          const char *fmt, ...);

/* XRAY_OK, or a sentence with CUDA's own name and text of the error: out of
 * memory is XRAY_E_NOMEM, a spoiled context XRAY_E_DEVICE. */
xray_status cuda_check(const cuda_device *d, const char *where,
                       cudaError_t error);

/* Of the launch before it. */
xray_status cuda_launched(const cuda_device *d, const char *where);

/* Refuses a NULL or too short argument struct, or a pointer that is needed. */
#define CUDA_CHECK(d, op, where, ...)                                      \
    do {                                                                   \
        if (!(op) || (op)->header.size < sizeof(*(op)))                    \
            return cuda_fail(d, (op) ? XRAY_E_ABI : XRAY_E_ARG, where,     \
                             "argument struct is %s",                      \
                             (op) ? "too short" : "NULL");                 \
        const void *const needed_[] = { __VA_ARGS__ };                     \
        for (size_t i_ = 0; i_ < sizeof(needed_) / sizeof(*needed_); i_++) \
            if (!needed_[i_])                                              \
                return cuda_fail(d, XRAY_E_ARG, where,                     \
                                 "required pointer %d of %s is NULL",      \
                                 (int)i_ + 1, #__VA_ARGS__);               \
    } while (0)

/* The stream of a call: the instance's own for NULL. */
cudaStream_t cuda_stream(const cuda_device *d, xray_stream *stream);

/* Scratch of at least `bytes`, 256-byte aligned, whose content is lost with the
 * next call for the same part. It grows only when asked for more than ever,
 * waiting for the device first; while a graph is captured that is refused. */
xray_status cuda_scratch(cuda_device *d, uint32_t part, uint64_t bytes,
                         void **out);

/* Device memory counted under a tag, zeroed; NULL if there is none. */
void *cuda_alloc(cuda_device *d, uint32_t tag, uint64_t bytes);
void cuda_free(cuda_device *d, void *ptr);

/* ---- products, shared by matmul and the head ---------------------------- */

typedef struct cuda_product {
    const xray_weight *weight;
    const float *x; /* [dev] row t at x + t * x_row */
    float *y;       /* [dev] */
    uint64_t x_row;
    uint64_t y_row;
    uint64_t tokens;
    const int32_t *live; /* [dev] real number of tokens, or NULL */
    uint64_t live_from;  /* tokens before x's first, counted by `live` */
    const float *bias;   /* [dev] or NULL */
    uint32_t kind;       /* XRAY_NT or XRAY_NN */
    uint32_t accumulate;
    uint64_t first; /* of the weight's rows [first, first + count), which are */
    uint64_t count; /* y's columns (NT), or x's (NN); 0: all */
} cuda_product;

/* y as xray_matmul says, in the instance's precision. */
xray_status cuda_product_run(cuda_device *d, cudaStream_t stream,
                             const char *where, const cuda_product *p);

/* dw and dbias as xray_matmul_grad says, in the instance's precision. */
xray_status cuda_fold(cuda_device *d, cudaStream_t stream, const char *where,
                      const xray_matmul_grad *op);

/* Makes bf16 copies that are older than their data again. A graph holds the
 * products of its capture and not this, so graph_launch does it first. */
xray_status cuda_weights_refresh(cuda_device *d, cudaStream_t stream);

/* ---- the operator table ------------------------------------------------- */

xray_status cuda_weight_create(void *self, const xray_weight_desc *desc,
                               xray_weight **out);
void cuda_weight_destroy(void *self, xray_weight *weight);
xray_status cuda_weight_changed(void *self, xray_weight *weight);
uint64_t cuda_kv_block_bytes(void *self, const xray_kv *kv);

#define CUDA_OP(name, type) \
    xray_status cuda_##name(void *self, xray_stream *stream, const type *op)
CUDA_OP(matmul, xray_matmul);
CUDA_OP(matmul_grad, xray_matmul_grad);
CUDA_OP(embedding, xray_embedding);
CUDA_OP(embedding_grad, xray_embedding_grad);
CUDA_OP(gather, xray_rows);
CUDA_OP(scatter, xray_rows);
CUDA_OP(rmsnorm, xray_rmsnorm);
CUDA_OP(rmsnorm_grad, xray_rmsnorm_grad);
CUDA_OP(layernorm, xray_layernorm);
CUDA_OP(layernorm_grad, xray_layernorm_grad);
CUDA_OP(rope_table, xray_rope_table);
CUDA_OP(rope, xray_rope);
CUDA_OP(glu, xray_glu);
CUDA_OP(glu_grad, xray_glu_grad);
CUDA_OP(attention, xray_attention);
CUDA_OP(attention_grad, xray_attention_grad);
CUDA_OP(attention_kv, xray_attention_kv);
CUDA_OP(lm_head_logp, xray_lm_head_logp);
CUDA_OP(lm_head_grad, xray_lm_head_grad);
CUDA_OP(sample, xray_sample);
CUDA_OP(axpby, xray_axpby);
CUDA_OP(cast, xray_cast);
CUDA_OP(sumsq, xray_sumsq);
CUDA_OP(adamw, xray_adamw);

#ifdef __cplusplus
}
#endif

#endif
