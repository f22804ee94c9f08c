/* SPDX-License-Identifier: Apache-2.0
 *
 * The instance of the CPU device, and what its operator files share: memory,
 * scratch, parallel loops and matrix products.
 */
#ifndef CPU_DEVICE_H
#define CPU_DEVICE_H

#include <xray/device.h>

#include "core/base/operand.h"
#include "core/base/services.h"
#include "plugins/device-cpu/kernels.h"
#include "plugins/device-cpu/pool.h"

#define CPU_ISA_AUTO 0
#define CPU_ISA_AVX512 1
#define CPU_ISA_AVX2 2
#define CPU_ISA_SCALAR 3

#define CPU_SHARE_AUTO 0
#define CPU_SHARE_ON 1
#define CPU_SHARE_OFF 2

typedef struct cpu_config {
    int64_t isa;     /* CPU_ISA_* */
    uint64_t memory; /* bytes that plans assume; 0: what the machine has */
    int64_t share;   /* CPU_SHARE_* */
} cpu_config;

typedef struct cpu_region cpu_region; /* share.c */
typedef struct cpu_remote cpu_remote; /* share.c */

/* Tag of host memory, which `memory` reports apart from the device's tags. */
#define CPU_TAG_HOST XRAY_TAG_COUNT
#define CPU_TAGS (XRAY_TAG_COUNT + 1)

typedef struct cpu_device {
    const xray_host *host;
    const xray_call_service *calls;
    cpu_pool *pool;
    const cpu_kernels *k;
    char name[128];
    uint64_t live[CPU_TAGS];
    uint64_t high[CPU_TAGS];
    uint64_t live_all;
    uint64_t high_all;
    float *scratch[2]; /* CPU_SCRATCH_*, 64-byte aligned, for all threads */
    size_t scratch_bytes[2];
    int64_t share;      /* CPU_SHARE_* */
    cpu_region *region; /* holds the blocks that can be shared; or NULL */
    cpu_remote *remotes;
    uint32_t sharing; /* 1: new blocks are allocated in the region */
    uint32_t frozen;  /* 1: scratch stays as it was reserved */
} cpu_device;

/* A packed copy of a matrix as panels of 16 outputs, [panel][depth][16], of
 * floats or bf16. */
typedef struct cpu_panels {
    void *data; /* NULL: not offered */
    uint64_t stale;
} cpu_panels;

struct xray_weight {
    cpu_device *device;
    const void *data;
    uint64_t rows;
    uint64_t cols;
    uint32_t dtype;
    uint32_t uses;      /* XRAY_USE_* */
    cpu_panels *panels; /* [2]: for XRAY_NT, XRAY_NN */
    uint32_t evicted;   /* bit k: panels[k] was evicted */
    uint32_t narrow;    /* 1: panels are bf16 */
};

/* Reports one sentence to the host and returns `status`. */
XRAY_PRINTF(4, 5)
xray_status cpu_fail(const cpu_device *d, xray_status status, const char *where,
                     const char *fmt, ...);

/* Refuses an argument struct that is NULL or too short, and NULL in one of the
 * pointers that the operator requires. */
#define CPU_CHECK(d, op, where, ...)                                       \
    do {                                                                   \
        if (!(op) || (op)->header.size < sizeof(*(op)))                    \
            return cpu_fail(d, (op) ? XRAY_E_ABI : XRAY_E_ARG, where,      \
                            "argument struct is %s",                       \
                            (op) ? "too short" : "NULL");                  \
        const void *const needed_[] = { __VA_ARGS__ };                     \
        for (size_t i_ = 0; i_ < sizeof(needed_) / sizeof(*needed_); i_++) \
            if (!needed_[i_])                                              \
                return cpu_fail(d, XRAY_E_ARG, where,                      \
                                "required pointer %d of %s is NULL",       \
                                (int)i_ + 1, #__VA_ARGS__);                \
    } while (0)

/* The number of items: `bound`, or the value at `live` if that is less. */
size_t cpu_count(const xray_extent *extent);

/* Floats of scratch per thread that a new instance allocates; small models
 * never need more, and products do only if their sums have segments. */
#define CPU_FIRST_SCRATCH ((size_t)0x40000)

/* The number of items whose logits are in scratch at the same time: 16 MiB of
 * them, but 16 to 1024 items. `row` is the vocabulary, a multiple of 16. */
static inline size_t cpu_logits_chunk(size_t row)
{
    size_t chunk = ((size_t)4 << 20) / row;
    return chunk < 16 ? 16 : chunk > 1024 ? 1024 : chunk;
}

/* Aligned and zeroed memory that is counted under a tag; NULL if there is not
 * enough. */
void *cpu_alloc(cpu_device *d, uint32_t tag, uint64_t bytes);
void cpu_free(cpu_device *d, void *ptr);
/* Implement xray_device_ops.evict and restore for blocks of cpu_alloc. */
void cpu_block_evict(cpu_device *d, void *ptr);
void cpu_block_restore(cpu_device *d, void *ptr);

/* Add a block to the count of its tag, or remove it. */
void cpu_count_block(cpu_device *d, uint32_t tag, uint64_t bytes);
void cpu_uncount_block(cpu_device *d, uint32_t tag, uint64_t bytes);

#define CPU_SCRATCH_THREADS 0 /* one part per thread */
#define CPU_SCRATCH_LOGITS 1  /* one part: the logits of a chunk */

/* Gives scratch of at least `floats`, 64-byte aligned. The next call for the
 * same part overwrites its content. The buffer grows only when a call needs
 * more than any call before, and such a call is refused once it is frozen. */
xray_status cpu_scratch(cpu_device *d, uint32_t part, size_t floats,
                        float **out);

/* Gives each thread scratch of `floats`, which the call rounds up to full cache
 * lines. The scratch of a thread starts at `out` + thread * floats. */
xray_status cpu_thread_scratch(cpu_device *d, size_t *floats, float **out);

/* Runs tasks in parallel, or in the calling thread where `cost` (roughly the
 * number of multiplications) is too small to be worth waking other threads. */
void cpu_parallel(cpu_device *d, size_t tasks, double cost, cpu_task *task,
                  void *ctx);

/* Does items first .. last - 1 of an operator. */
typedef void cpu_range(void *ctx, size_t first, size_t last);

/* Cuts n items into ranges whose length is a multiple of `grain`, and runs them
 * in parallel. */
void cpu_ranges(cpu_device *d, size_t n, size_t grain, double cost_each,
                cpu_range *range, void *ctx);

/* dst[k][16] = rows 0 .. rows - 1 (at most 16) of src, transposed and padded
 * with zeros. */
void cpu_transpose16(float *dst, const float *src, size_t stride, size_t rows,
                     size_t depth);

/* ---- products, used by matmul and the LM head --------------------------- */

typedef struct cpu_product {
    const xray_weight *weight;
    const void *x; /* this, y and residual are floats, or bf16 if narrow */
    void *y;
    size_t x_row;
    size_t y_row;
    size_t tokens;
    const float *bias;
    const void *residual;
    size_t residual_row;
    uint32_t kind;
    float alpha;  /* 0: 1 */
    uint32_t act; /* XRAY_ACT_*, or 0 */
    uint32_t plain;
    uint32_t segments; /* 0: 1 */
    size_t piece[3];   /* as in cpu_gemm; read if there are several segments */
    int x_narrow;
    int y_narrow;
    int residual_narrow;
} cpu_product;

/* Floats of a thread's block of outputs that are not stored as they are. */
#define CPU_PRODUCT_STAGE (CPU_GEMM_ROWS * ((size_t)2 * 256 + 32))

/* Floats that a thread needs for copies of x, for sums in segments and, if
 * `staged`, for outputs. */
static inline size_t cpu_product_floats(uint32_t segments, int staged)
{
    return CPU_GEMM_WORK + cpu_gemm_partial(segments) +
           (staged ? CPU_PRODUCT_STAGE : 0);
}

/* Computes y as xray_matmul specifies. */
xray_status cpu_product_run(cpu_device *d, const char *where,
                            const cpu_product *p);

/* Gives the panels of a product of this kind, packed again if the matrix has
 * changed. */
xray_status cpu_weight_panels(cpu_device *d, const char *where,
                              const xray_weight *w, uint32_t kind,
                              const void **out);

/* Refuses segments that are too short for the vocabulary. */
xray_status cpu_check_segment(const cpu_device *d, const char *where,
                              uint64_t vocab, uint64_t segment);

/* Refuses a vocabulary that does not fit the stride of its logits. */
xray_status cpu_check_logits(const cpu_device *d, const char *where,
                             uint64_t vocab, uint64_t stride);

/* dw[n, k] += chain over tokens of dy[t, n] x[t, k]. */
xray_status cpu_fold(cpu_device *d, const xray_matmul_grad *op, size_t tokens);

xray_status cpu_weight_create(void *self, const xray_weight_desc *desc,
                              xray_weight **out);
void cpu_weight_destroy(void *self, xray_weight *weight);
xray_status cpu_weight_changed(void *self, xray_weight *weight);
xray_status cpu_weight_evict(void *self, xray_weight *weight);
uint64_t cpu_kv_block_bytes(void *self, const xray_kv *kv);
uint64_t cpu_plan_weight(const void *config, const xray_weight_desc *desc);
uint64_t cpu_plan_kv_block(const void *config, const xray_kv *kv);
uint64_t cpu_plan_scratch(const void *config, uint32_t threads,
                          const xray_device_work *works, uint64_t count,
                          uint64_t stride);
xray_status cpu_reserve(void *self, const xray_device_work *works,
                        uint64_t count, uint64_t stride);

#define CPU_OP(name, type) \
    xray_status cpu_##name(void *self, xray_stream *stream, const type *op)
CPU_OP(matmul, xray_matmul);
CPU_OP(matmul_grad, xray_matmul_grad);
CPU_OP(embedding, xray_embedding);
CPU_OP(embedding_grad, xray_embedding_grad);
CPU_OP(gather, xray_rows);
CPU_OP(scatter, xray_rows);
CPU_OP(rmsnorm, xray_rmsnorm);
CPU_OP(rmsnorm_grad, xray_rmsnorm_grad);
CPU_OP(layernorm, xray_layernorm);
CPU_OP(layernorm_grad, xray_layernorm_grad);
CPU_OP(rope_table, xray_rope_table);
CPU_OP(rope, xray_rope);
CPU_OP(glu, xray_glu);
CPU_OP(glu_grad, xray_glu_grad);
CPU_OP(attention, xray_attention);
CPU_OP(attention_grad, xray_attention_grad);
CPU_OP(attention_kv, xray_attention_kv);
CPU_OP(lm_head_logp, xray_lm_head_logp);
CPU_OP(lm_head_grad, xray_lm_head_grad);
CPU_OP(lm_head_join, xray_lm_head_join);
CPU_OP(sample, xray_sample);
CPU_OP(edit_logits, xray_edit_logits);
CPU_OP(pick_logp, xray_pick_logp);
CPU_OP(advance, xray_advance);
CPU_OP(axpby, xray_axpby);
CPU_OP(cast, xray_cast);
CPU_OP(sumsq, xray_sumsq);
CPU_OP(adamw, xray_adamw);

/* Conversions to and from bf16 and f16. They round to nearest even, and NaN
 * stays NaN. */
uint16_t cpu_to_bf16(float x);
float cpu_from_bf16(uint16_t x);
uint16_t cpu_to_f16(float x);
float cpu_from_f16(uint16_t x);

#endif
