/* SPDX-License-Identifier: Apache-2.0
 *
 * How much scratch memory an instance of the CUDA device takes for given works:
 * for each of its parts the most that an operator asks for.
 */
#include <string.h>

#include "core/base/elements.h"
#include "plugins/device-cuda/attention_sizes.h"
#include "plugins/device-cuda/blas_choose.h"
#include "plugins/device-cuda/lm_head.h"

#define ALIGNMENT 256u /* of every part */
#define SPLIT 256u     /* keys per split of attention over a cache */
/* Plans do not know the GPU; few have more multiprocessors. */
#define SMS 160u

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t larger_of(const uint64_t *sizes, size_t count)
{
    uint64_t most = 0;
    for (size_t i = 0; i < count; i++)
        most = larger(most, sizes[i]);
    return (most + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int has_pass(const xray_device_work *work, uint32_t passes)
{
    return (work->passes & passes) != 0;
}

#define HEAD_PASSES (XRAY_PASS_LOGP | XRAY_PASS_SAMPLE)

/* Items of the LM head whose logits are in scratch at the same time. */
static uint64_t count_chunk_items(const xray_device_work *work)
{
    uint64_t row = (work->vocab + 15) / 16 * 16;
    return row && has_pass(work, HEAD_PASSES) ? lm_head_chunk_items(row) : 0;
}

/* Operands in bf16: x of a product, or dy and x of a matrix's gradient. */
static uint64_t count_x_bytes(const xray_device_work *work)
{
    uint64_t narrow = sizeof(uint16_t);
    const uint64_t sizes[] = {
        work->tokens * product_row(work->width) * narrow,
        has_pass(work, XRAY_PASS_GRADS)
            ? work->tokens * (work->sides + 14) * narrow + ALIGNMENT
            : 0,
        count_chunk_items(work) * product_row(work->hidden) * narrow,
    };
    return larger_of(sizes, 3);
}

static uint64_t count_logits_bytes(const xray_device_work *work, int narrow)
{
    uint64_t items = count_chunk_items(work);
    uint64_t bytes = 0;
    if (has_pass(work, XRAY_PASS_SAMPLE) || !has_pass(work, XRAY_PASS_LOGITS))
        bytes = items * ((work->vocab + 15) / 16 * 16) * sizeof(float);
    if (narrow && has_pass(work, XRAY_PASS_GRADS))
        bytes += items * product_row(work->vocab) * sizeof(uint16_t);
    return larger_of(&bytes, 1);
}

/* Copies of heads in bf16, unless they are in bf16 and in pieces of 16 bytes,
 * as a model's are; D of the gradient, the sums of heads that share a key, and
 * partial results of splits. */
static uint64_t count_attention_bytes(const xray_device_work *work, int narrow,
                                      uint64_t sms)
{
    uint64_t dim = product_row(work->head_dim);
    int direct = work->dtype == XRAY_BF16 && work->head_dim % 8 == 0;
    uint64_t keys = direct ? 0 : 2 * work->tokens * work->kv_heads * dim;
    uint64_t items = work->tokens * work->heads;
    uint64_t splits = (work->row_tokens + SPLIT - 1) / SPLIT;
    uint64_t spread = work->kv_heads ? 2 * sms / work->kv_heads + 1 : 0;
    spread = spread < work->tokens ? spread : work->tokens;
    uint64_t grad = items * sizeof(float) + ALIGNMENT;
    if (narrow)
        grad += ((direct ? 1 : 2) * items * dim + keys) * sizeof(uint16_t);
    if (narrow && work->kv_heads)
        grad += attend_grad_bytes(work->tokens, work->kv_heads,
                                  work->heads / work->kv_heads, work->head_dim);
    const uint64_t sizes[] = {
        narrow && has_pass(work, XRAY_PASS_ROWS) ? keys * sizeof(uint16_t) : 0,
        has_pass(work, XRAY_PASS_GRADS) ? grad : 0,
        narrow && has_pass(work, XRAY_PASS_CACHE) && splits > 1
            ? spread * work->heads * splits * (work->head_dim + 2ull) *
                  sizeof(float)
            : 0,
    };
    return larger_of(sizes, 3);
}

/* The order of the tokens of an embedding's gradient, and what cuBLASLt needs
 * aligned. */
static uint64_t count_reduce_bytes(const xray_device_work *work, int blas)
{
    const uint64_t sizes[] = {
        has_pass(work, XRAY_PASS_GRADS) ? 2 * work->tokens * sizeof(int32_t)
                                        : 0,
        blas ? (work->tokens * (work->width + 3) + work->width) * sizeof(float)
             : 0,
    };
    return larger_of(sizes, 2);
}

/* Products whose epilogue is a kernel of its own: cuBLASLt's, and the sums of
 * segments, of which the outputs are those of o and down. */
static uint64_t count_stage_bytes(const xray_device_work *work, int blas,
                                  int cuts)
{
    uint64_t sums = (uint64_t)work->segments * work->hidden * sizeof(float);
    const uint64_t sizes[] = {
        blas ? work->tokens * work->width * sizeof(float) : 0,
        cuts && work->segments > 1 && work->tokens >= PRODUCT_BULK_FEWEST
            ? product_cut_bytes(work->tokens, sums)
            : 0,
    };
    return larger_of(sizes, 2);
}

/* The sizes depend on this besides the works. */
typedef struct scratch_user {
    int narrow; /* 1: precision bfloat16 */
    int blas;   /* 1: its products are cuBLASLt's */
    int cuts;   /* 1: product_cut may be called */
    uint64_t sms;
} scratch_user;

/* Writes what the parts of the scratch memory hold for one work. */
static void count_parts(const scratch_user *user, const xray_device_work *work,
                        uint64_t *out)
{
    int narrow = user->narrow;
    int blas = user->blas;
    out[CUDA_SCRATCH_X] = narrow ? count_x_bytes(work) : 0;
    out[CUDA_SCRATCH_LOGITS] = count_logits_bytes(work, narrow);
    out[CUDA_SCRATCH_ATTEND] = count_attention_bytes(work, narrow, user->sms);
    out[CUDA_SCRATCH_REDUCE] = count_reduce_bytes(work, blas);
    out[CUDA_SCRATCH_STAGE] = count_stage_bytes(work, blas, user->cuts);
}

/* Writes the most of each part over all works. */
static void count_most(const scratch_user *user, const xray_device_work *works,
                       uint64_t count, uint64_t stride, uint64_t *most)
{
    memset(most, 0, CUDA_SCRATCH_COUNT * sizeof(*most));
    for (uint64_t i = 0; i < count; i++) {
        uint64_t parts[CUDA_SCRATCH_COUNT];
        xray_device_work work;
        xr_element_read(works, stride, i, sizeof(work), &work);
        count_parts(user, &work, parts);
        for (size_t p = 0; p < CUDA_SCRATCH_COUNT; p++)
            most[p] = larger(most[p], parts[p]);
    }
}

uint64_t cuda_plan_scratch(const void *config, uint32_t threads,
                           const xray_device_work *works, uint64_t count,
                           uint64_t stride)
{
    const cuda_config c = cuda_copy_config(config);
    const int narrow = c.precision == CUDA_BFLOAT16;
    const scratch_user user = { narrow,
                                narrow && c.products == CUDA_PRODUCTS_CUBLASLT,
                                narrow, SMS };
    uint64_t most[CUDA_SCRATCH_COUNT];
    uint64_t sum = user.blas ? (uint64_t)BLAS_WORKSPACE << 20 : 0;
    (void)threads;
    count_most(&user, works, count, stride, most);
    for (size_t p = 0; p < CUDA_SCRATCH_COUNT; p++)
        sum += most[p];
    return sum;
}

xray_status cuda_reserve(void *self, const xray_device_work *works,
                         uint64_t count, uint64_t stride)
{
    cuda_device *d = (cuda_device *)self;
    const int narrow = d->precision == CUDA_BFLOAT16;
    const scratch_user user = { narrow, d->blas != NULL,
                                narrow && product_bulk_runs(d),
                                (uint64_t)d->sms };
    uint64_t most[CUDA_SCRATCH_COUNT];
    xray_status status = XRAY_OK;
    count_most(&user, works, count, stride, most);
    for (uint32_t p = 0; p < CUDA_SCRATCH_COUNT && status == XRAY_OK; p++) {
        void *data;
        status = cuda_scratch(d, p, most[p], &data);
    }
    d->frozen = d->frozen || status == XRAY_OK;
    return status;
}
