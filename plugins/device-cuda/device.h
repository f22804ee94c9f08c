/* SPDX-License-Identifier: Apache-2.0
 *
 * The instance of the CUDA device, and what its operator files share.
 *
 * There are two precisions. `float32` computes the contracts xray.fp32/2 and
 * xray.bf16/1 of docs/numerics.md to the last bit, so it has the CPU's results.
 * `bfloat16` differs in three operators: matrix products, attention and the LM
 * head. Their operands are rounded to bf16 (to nearest even) unless they are
 * bf16 already, and the tensor cores sum the products in fp32, sixteen terms in
 * a step, with the steps in index order from 0, to which the start is added at
 * the end, and segments cut and joined as in float32. Everything else is as in
 * float32.
 *
 * In both precisions no result depends on the batch around a row or on the
 * number of tokens in a call. The gradient of a weight does not depend on where
 * the tokens are cut into calls: in float32 for any cut, in bfloat16 for cuts
 * at multiples of CUDA_GRAIN tokens.
 */
#ifndef CUDA_DEVICE_H
#define CUDA_DEVICE_H

#include <xray/device.h>

#include "core/base/operand.h"
#include "plugins/device-cuda/config.h"

#ifdef XR_CUDA_EMULATED
#include "emulate.h"
#else
#include <cuda_runtime_api.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define CUDA_GRAIN 4096u /* tokens of a sum of a weight's gradient */

#define CUDA_SCRATCH_X 0u      /* operands rounded to bf16 */
#define CUDA_SCRATCH_LOGITS 1u /* logits of a chunk of items */
#define CUDA_SCRATCH_ATTEND 2u /* partial results of attention splits, rows */
#define CUDA_SCRATCH_REDUCE 3u /* sums of blocks */
#define CUDA_SCRATCH_STAGE 4u  /* products whose epilogue is a kernel */
#define CUDA_SCRATCH_COUNT 5u

typedef struct cuda_scratch_part {
    void *data;
    uint64_t bytes;
} cuda_scratch_part;

struct cuda_blas; /* blas.cu */

typedef struct cuda_device {
    const xray_host *host;
    char name[160];
    int index;
    int precision; /* CUDA_* */
    int sms;       /* number of multiprocessors */
    /* Bytes of shared memory that a block may request */
    int shared_most;
    cudaStream_t stream;    /* default stream of this instance */
    struct cuda_blas *blas; /* NULL: the plugin's own kernels do the products */
    cuda_scratch_part scratch[CUDA_SCRATCH_COUNT];
    uint64_t live[XRAY_TAG_COUNT];
    uint64_t high[XRAY_TAG_COUNT];
    uint64_t live_all;
    uint64_t high_all;
    uint64_t host_live;
    uint64_t host_high;
    struct cuda_driver *driver; /* memory.c */
    struct cuda_block *blocks;
    struct cuda_host_block *host_blocks;
    struct cuda_mapped *mapped; /* blocks of other processes (share.c) */
    uint64_t *sum;              /* [dev] result of the checksum */
    uint64_t scratch_moves;     /* how often a part of `scratch` has grown */
    int frozen;                 /* 1: scratch stays as it was reserved */
    int capturing;              /* 1 between graph_begin and graph_end */
    int sharing;                /* 1: new blocks can be shared */
    xray_weight *weights;       /* all handles, newest first */
} cuda_device;

struct xray_weight {
    cuda_device *device;
    const void *data; /* [dev] the caller's [rows, cols] */
    uint64_t rows;
    uint64_t cols;
    uint32_t dtype;
    uint32_t uses; /* XRAY_USE_* */
    /* [dev] This weight's own copy in bf16, whose rows are padded to multiples
     * of 8; computed again after a change. NULL: `data` is used directly. */
    uint16_t *narrow;
    uint32_t stale;   /* 1: `narrow` is older than `data` */
    uint32_t evicted; /* 1: `narrow` has no memory */
    uint32_t reserved;
    xray_weight *prev; /* previous handle in cuda_device.weights */
    xray_weight *next;
};

/* The options of an instance; those of NULL are index -1 and bfloat16. */
cuda_config cuda_copy_config(const void *config);

/* Reports one sentence to the host and returns `status`. */
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
xray_status
cuda_fail(const cuda_device *d, xray_status status, const char *where,
          const char *fmt, ...);

/* Returns XRAY_OK, or reports a sentence with CUDA's own name and text of the
 * error. Out of memory becomes XRAY_E_NOMEM, a corrupted context
 * XRAY_E_DEVICE. */
xray_status cuda_check(const cuda_device *d, const char *where,
                       cudaError_t error);

/* The same for the kernel launch before this call. */
xray_status cuda_launched(const cuda_device *d, const char *where);

/* Refuses an argument struct that is NULL or too short, and NULL in a pointer
 * that the operator requires. */
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

/* Returns the stream of a call: the instance's own for NULL. */
cudaStream_t cuda_stream(const cuda_device *d, xray_stream *stream);

/* Gives scratch of at least `bytes`, 256-byte aligned. The next call for the
 * same part overwrites its content. It grows only when a call needs more than
 * any call before, and waits for the device first; growth is refused while a
 * graph is captured, and once the scratch is frozen. */
xray_status cuda_scratch(cuda_device *d, uint32_t part, uint64_t bytes,
                         void **out);

/* Allocates zeroed device memory that is counted under a tag; NULL if there is
 * not enough. */
void *cuda_alloc(cuda_device *d, uint32_t tag, uint64_t bytes);
void cuda_free(cuda_device *d, void *ptr);

/* Updates bf16 copies that are older than their data. A graph contains the
 * products of its capture but not this update, so graph_launch does it
 * first. */
xray_status cuda_weights_refresh(cuda_device *d, cudaStream_t stream);

/* ---- the operator table ------------------------------------------------- */

xray_status cuda_weight_create(void *self, const xray_weight_desc *desc,
                               xray_weight **out);
void cuda_weight_destroy(void *self, xray_weight *weight);
xray_status cuda_weight_changed(void *self, xray_weight *weight);
uint64_t cuda_kv_block_bytes(void *self, const xray_kv *kv);
uint64_t cuda_plan_weight(const void *config, const xray_weight_desc *desc);
uint64_t cuda_plan_kv_block(const void *config, const xray_kv *kv);
uint64_t cuda_plan_scratch(const void *config, uint32_t threads,
                           const xray_device_work *works, uint64_t count,
                           uint64_t stride);
xray_status cuda_reserve(void *self, const xray_device_work *works,
                         uint64_t count, uint64_t stride);

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
CUDA_OP(lm_head_join, xray_lm_head_join);
CUDA_OP(sample, xray_sample);
CUDA_OP(edit_logits, xray_edit_logits);
CUDA_OP(pick_logp, xray_pick_logp);
CUDA_OP(advance, xray_advance);
CUDA_OP(axpby, xray_axpby);
CUDA_OP(cast, xray_cast);
CUDA_OP(sumsq, xray_sumsq);
CUDA_OP(adamw, xray_adamw);

#ifdef __cplusplus
}
#endif

#endif
