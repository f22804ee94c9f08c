/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures device-cuda's attention in bfloat16 on this GPU, with activations in
 * fp32 and in bf16: bench-cuda-attention. Decoding is given in GB/s of keys and
 * values read, beside the bandwidth of a copy; forward and backward in TFLOP/s
 * of the pairs in a causal row (backward counts as 2.5 forwards). Times are the
 * least of 20 calls between events.
 */
#include "bench/cuda_bench.h"

#include <string.h>

#define BLOCK_TOKENS 16u

/* Element i of an array of activations. */
static void *element_at(void *x, uint32_t dtype, uint64_t i)
{
    return static_cast<char *>(x) + i * (dtype == XRAY_BF16 ? 2 : 4);
}

static const char *name_type(uint32_t dtype)
{
    return dtype == XRAY_BF16 ? "bf16" : "fp32";
}

/* Copies random values around 0, so that scores are neither all equal nor
 * one-hot; as bf16 twice as many. */
static float *copy_random_values(bench *b, uint64_t count)
{
    float *host = static_cast<float *>(malloc(count * 4));
    require(host != NULL, "malloc");
    uint64_t x = 1;
    for (uint64_t i = 0; i < count; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        float f = static_cast<float>(static_cast<int32_t>(x >> 32)) * 0x1p-31f;
        uint32_t u;
        memcpy(&u, &f, 4);
        u = (u & 0xffff0000u) | u >> 16; /* a value of bf16 in each half */
        memcpy(&host[i], &u, 4);
    }
    float *p = allocate_floats(b, count);
    copy_now(b, p, host, count * 4);
    free(host);
    return p;
}

static int32_t *copy_numbers(bench *b, const int32_t *host, uint64_t count)
{
    float *p = allocate_floats(b, count);
    copy_now(b, p, host, count * 4);
    return reinterpret_cast<int32_t *>(p);
}

typedef struct shape {
    const char *name;
    uint32_t heads, kv_heads, dim;
    uint32_t rows, tokens; /* sequences, and the length of each */
} shape;

/* Measures one token for each of s->rows sequences with s->tokens positions in
 * a paged cache or, if slot is not 0, in contiguous slots of so many positions,
 * at least s->tokens. */
static void measure_decode(bench *b, const shape *s, uint32_t dtype,
                           uint32_t slot)
{
    uint32_t per =
        ((slot ? slot : s->tokens) + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    char layout[32] = "paged";
    uint64_t q = static_cast<uint64_t>(s->heads) * s->dim;
    uint64_t kv = static_cast<uint64_t>(s->kv_heads) * s->dim;
    uint64_t blocks = static_cast<uint64_t>(per) * s->rows;
    int32_t *ids = static_cast<int32_t *>(
        malloc((blocks + 2ull * s->rows) * sizeof(*ids)));
    require(ids != NULL, "malloc");
    for (uint64_t i = 0; i < blocks; i++) /* no two blocks of a row adjoin */
        ids[i] = static_cast<int32_t>(i % per * s->rows + i / per);
    for (uint32_t i = 0; i < s->rows; i++) {
        ids[blocks + i] = static_cast<int32_t>(i);
        ids[blocks + s->rows + i] = static_cast<int32_t>(s->tokens - 1);
    }
    int32_t *table = copy_numbers(b, ids, blocks + 2ull * s->rows);
    xray_kv cache = {};
    cache.header = XRAY_HEADER(xray_kv);
    cache.table = slot ? NULL : table;
    cache.table_stride = per;
    cache.block_tokens = BLOCK_TOKENS;
    cache.kv_heads = s->kv_heads;
    cache.head_dim = s->dim;
    cache.dtype = XRAY_BF16;
    uint64_t bytes = b->ops->kv_block_bytes(b->self, &cache) * blocks;
    cache.blocks = allocate_floats(b, bytes / 4);
    float *x = copy_random_values(b, s->rows * (q + 2 * kv));
    float *o = allocate_floats(b, s->rows * q);
    xray_attention_kv op = {};
    op.header = XRAY_HEADER(xray_attention_kv);
    op.tokens.bound = s->rows;
    op.kv = &cache;
    op.seq = table + blocks;
    op.positions = op.seq + s->rows;
    op.q = x;
    op.k = element_at(x, dtype, q);
    op.v = element_at(x, dtype, q + kv);
    op.dtype = dtype;
    op.o = o;
    op.q_stride = op.k_stride = op.v_stride = q + 2 * kv;
    op.o_stride = q;
    op.position_bound = s->tokens;
    op.heads = s->heads;
    op.scale = 0.125f;
    double t = least_seconds(b, ENQUEUED(b, attention_kv, op));
    double moved = 4.0 * static_cast<double>(kv) * s->rows * s->tokens;
    if (slot)
        snprintf(layout, sizeof(layout), "slots of %u", slot);
    printf(
        "decode   %-14s %s %4u x %5u  %-13s %8.1f us  %6.0f GB/s  %3.0f%% of "
        "copy\n",
        s->name, name_type(dtype), s->rows, s->tokens, layout, t * 1e6,
        moved / t * 1e-9, 100 * moved / t / b->copy);
    b->ops->free(b->self, cache.blocks);
    b->ops->free(b->self, table);
    b->ops->free(b->self, x);
    b->ops->free(b->self, o);
    free(ids);
}

static void measure_training(bench *b, const shape *s, uint32_t dtype)
{
    uint64_t q = static_cast<uint64_t>(s->heads) * s->dim;
    uint64_t kv = static_cast<uint64_t>(s->kv_heads) * s->dim;
    uint64_t tokens = static_cast<uint64_t>(s->rows) * s->tokens;
    int32_t *start =
        static_cast<int32_t *>(malloc((s->rows + 1ull) * sizeof(*start)));
    require(start != NULL, "malloc");
    for (uint32_t i = 0; i <= s->rows; i++)
        start[i] = static_cast<int32_t>(i * s->tokens);
    float *x = copy_random_values(b, tokens * (q + 2 * kv));
    float *grad = allocate_floats(b, tokens * (q + 2 * kv));
    float *o = allocate_floats(b, tokens * q);
    float *d_o = copy_random_values(b, tokens * q);
    float *lse = allocate_floats(b, tokens * s->heads);
    xray_attention op = {};
    op.header = XRAY_HEADER(xray_attention);
    op.tokens.bound = tokens;
    op.row_start = copy_numbers(b, start, s->rows + 1ull);
    op.rows = s->rows;
    op.row_bound = s->tokens;
    op.q = x;
    op.k = element_at(x, dtype, q);
    op.v = element_at(x, dtype, q + kv);
    op.dtype = dtype;
    op.o = o;
    op.lse = lse;
    op.q_stride = op.k_stride = op.v_stride = q + 2 * kv;
    op.o_stride = q;
    op.heads = s->heads;
    op.kv_heads = s->kv_heads;
    op.head_dim = s->dim;
    op.scale = 0.125f;
    xray_attention_grad back = {};
    back.header = XRAY_HEADER(xray_attention_grad);
    back.forward = &op;
    back.d_o = d_o;
    back.dq = grad;
    back.dk = grad + q;
    back.dv = back.dk + kv;
    back.dq_stride = back.dk_stride = back.dv_stride = q + 2 * kv;
    double n = s->tokens;
    double flop = 2.0 * n * n * static_cast<double>(q) * s->rows;
    double f = least_seconds(b, ENQUEUED(b, attention, op));
    double g = least_seconds(b, ENQUEUED(b, attention_grad, back));
    printf(
        "training %-14s %s %4u x %5u  forward %8.1f us %5.0f TFLOP/s  backward "
        "%8.1f us %5.0f TFLOP/s\n",
        s->name, name_type(dtype), s->rows, s->tokens, f * 1e6,
        flop / f * 1e-12, g * 1e6, 2.5 * flop / g * 1e-12);
    float *all[] = { x, grad, o, d_o, lse };
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        b->ops->free(b->self, all[i]);
    b->ops->free(b->self, const_cast<int32_t *>(op.row_start));
    free(start);
}

int main(void)
{
    static const shape decodes[] = {
        { "Qwen2.5-0.5B", 14, 2, 64, 256, 1024 },
        { "Qwen2.5-0.5B", 14, 2, 64, 8, 4096 },
        { "Qwen2.5-1.5B", 12, 2, 128, 256, 1024 },
        { "Qwen2.5-7B", 28, 4, 128, 64, 1024 },
        { "Qwen2.5-7B", 28, 4, 128, 256, 2048 },
        { "Llama-3.1-8B", 32, 8, 128, 64, 1024 },
        { "Llama-3.1-8B", 32, 8, 128, 256, 2048 },
        { "Llama-3.1-8B", 32, 8, 128, 1, 32768 },
    };
    static const shape trainings[] = {
        { "Qwen2.5-0.5B", 14, 2, 64, 1, 4096 },
        { "Qwen2.5-0.5B", 14, 2, 64, 8, 512 },
        { "Qwen2.5-1.5B", 12, 2, 128, 1, 4096 },
        { "Qwen2.5-1.5B", 12, 2, 128, 8, 512 },
        { "Llama-3.1-8B", 32, 8, 128, 1, 8192 },
        { "Phi, 80", 32, 32, 80, 1, 4096 },
        { "Gemma, 256", 8, 4, 256, 1, 4096 },
    };
    bench b;
    bench_open(&b, 0);
    for (uint32_t dtype = XRAY_F32; dtype <= XRAY_BF16; dtype++) {
        for (size_t i = 0; i < sizeof(decodes) / sizeof(*decodes); i++)
            measure_decode(&b, &decodes[i], dtype, 0);
        /* Slots that are a power of two of bytes apart, and that are not. */
        measure_decode(&b, &decodes[0], dtype, 2048);
        measure_decode(&b, &decodes[0], dtype, 2064);
        for (size_t i = 0; i < sizeof(trainings) / sizeof(*trainings); i++)
            measure_training(&b, &trainings[i], dtype);
    }
    b.ops->destroy(b.self);
    return 0;
}
