/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures device-cuda's rows, norms, activations and elementwise operators on
 * this GPU, with activations in fp32 and in bf16: bench-cuda-rows. It prints
 * the bytes that an operator must move over the time of the fastest of 20
 * calls, beside the bandwidth of a copy. Before each call other data fills the
 * L2 cache.
 */
#include "bench/cuda_bench.h"

#include <string.h>

#include <xray/numerics.h>

#define FLUSH (256ull << 20)

template <typename Call>
static void measure_operator(bench *b, const char *name, double bytes,
                             Call call)
{
    double s = least_seconds(b, call);
    printf("  %-22s %9.1f us %6.0f GB/s %4.0f%% of copy\n", name, s * 1e6,
           bytes / s * 1e-9, 100 * bytes / s / b->copy);
}

/* Allocates random integers below `below`, or values in (0, 1) if `below` is 0,
 * which are twice as many as bf16. */
static void *allocate_filled(bench *b, uint64_t count, uint64_t below)
{
    uint32_t *host = static_cast<uint32_t *>(malloc(count * 4));
    float *p = allocate_floats(b, count);
    require(host != NULL, "malloc");
    uint64_t x = 1;
    for (uint64_t i = 0; i < count; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        float f = static_cast<float>((x >> 41) + 1) * 0x1p-24f;
        uint32_t n = below ? static_cast<uint32_t>((x >> 32) % below) : 0;
        memcpy(&host[i], below ? static_cast<void *>(&n) : &f, 4);
        if (!below) /* a value of bf16 in each half */
            host[i] = (host[i] & 0xffff0000u) | host[i] >> 16;
    }
    copy_now(b, p, host, count * 4);
    free(host);
    return p;
}

typedef struct shape {
    const char *name;
    uint64_t tokens;
    uint32_t dim, ff, heads, head_dim, vocab;
} shape;

/* Buffers that the operators of one shape share. */
typedef struct buffers {
    float *x, *y, *z;
    float *weight, *stat, *dweight;
    int32_t *ids;
    double n;       /* tokens */
    uint32_t dtype; /* of activations; gradients are fp32 */
    double part;    /* bytes of an activation for one of fp32 */
} buffers;

static void measure_norms(bench *b, const shape *s, const buffers *m,
                          uint32_t groups, uint32_t dim)
{
    double width = 4.0 * groups * dim * m->n;
    uint64_t stride = static_cast<uint64_t>(groups) * dim;
    xray_rmsnorm op = {};
    op.header = XRAY_HEADER(xray_rmsnorm);
    op.tokens.bound = s->tokens;
    op.x = m->x;
    op.y = m->y;
    op.weight = m->weight;
    op.rstd = m->stat;
    op.x_stride = op.y_stride = stride;
    op.groups = groups;
    op.dim = dim;
    op.eps = 1e-6f;
    op.x_dtype = op.y_dtype = op.residual_dtype = m->dtype;
    measure_operator(b, groups > 1 ? "qk-norm" : "rmsnorm", 2 * width * m->part,
                     ENQUEUED(b, rmsnorm, op));
    if (groups == 1) {
        op.residual = m->z;
        measure_operator(b, "rmsnorm, residual", 4 * width * m->part,
                         ENQUEUED(b, rmsnorm, op));
    }
    xray_rmsnorm_grad grad = {};
    grad.header = XRAY_HEADER(xray_rmsnorm_grad);
    grad.tokens.bound = s->tokens;
    grad.x = m->x;
    grad.weight = m->weight;
    grad.rstd = m->stat;
    grad.dy = m->y;
    grad.dx = m->z;
    grad.x_stride = grad.dy_stride = grad.dx_stride = stride;
    grad.groups = groups;
    grad.dim = dim;
    grad.x_dtype = m->dtype;
    measure_operator(b, groups > 1 ? "qk-norm, dx" : "rmsnorm, dx",
                     (2 + m->part) * width, ENQUEUED(b, rmsnorm_grad, grad));
    grad.dweight = m->dweight;
    measure_operator(
        b, groups > 1 ? "qk-norm, dx, dweight" : "rmsnorm, dx, dweight",
        (3 + 2 * m->part) * width, ENQUEUED(b, rmsnorm_grad, grad));
}

static void measure_layer_norms(bench *b, const shape *s, const buffers *m)
{
    double width = 4.0 * s->dim * m->n;
    xray_layernorm op = {};
    op.header = XRAY_HEADER(xray_layernorm);
    op.tokens.bound = s->tokens;
    op.x = m->x;
    op.weight = op.bias = m->weight;
    op.y = m->y;
    op.stat = m->stat;
    op.x_stride = op.y_stride = op.dim = s->dim;
    op.eps = 1e-6f;
    op.x_dtype = op.y_dtype = m->dtype;
    measure_operator(b, "layernorm", 2 * width * m->part,
                     ENQUEUED(b, layernorm, op));
    xray_layernorm_grad grad = {};
    grad.header = XRAY_HEADER(xray_layernorm_grad);
    grad.tokens.bound = s->tokens;
    grad.x = m->x;
    grad.weight = m->weight;
    grad.stat = m->stat;
    grad.dy = m->y;
    grad.dx = m->z;
    grad.dweight = m->dweight;
    grad.dbias = m->dweight + s->dim;
    grad.x_stride = grad.dy_stride = grad.dx_stride = grad.dim = s->dim;
    grad.x_dtype = m->dtype;
    measure_operator(b, "layernorm, all grads", (3 + 2 * m->part) * width,
                     ENQUEUED(b, layernorm_grad, grad));
}

static void measure_embeddings(bench *b, const shape *s, const buffers *m)
{
    double row = 4.0 * s->dim;
    float *table = allocate_floats(b, static_cast<uint64_t>(s->vocab) * s->dim);
    xray_embedding op = {};
    op.header = XRAY_HEADER(xray_embedding);
    op.tokens.bound = s->tokens;
    op.ids = m->ids;
    op.table = table;
    op.y = m->y;
    op.vocab = s->vocab;
    op.dim = s->dim;
    op.scale = 1;
    op.y_dtype = m->dtype;
    measure_operator(b, "embedding", (1 + m->part) * row * m->n,
                     ENQUEUED(b, embedding, op));
    op.table_dtype = XRAY_BF16;
    measure_operator(b, "embedding, bf16", (0.5 + m->part) * row * m->n,
                     ENQUEUED(b, embedding, op));
    xray_embedding_grad grad = {};
    grad.header = XRAY_HEADER(xray_embedding_grad);
    grad.tokens.bound = s->tokens;
    grad.ids = m->ids;
    grad.dy = m->y;
    grad.dtable = table;
    grad.vocab = s->vocab;
    grad.dim = s->dim;
    grad.scale = 1;
    measure_operator(b, "embedding_grad", 3 * row * m->n,
                     ENQUEUED(b, embedding_grad, grad));
    b->ops->free(b->self, table);
}

static void measure_activations(bench *b, const shape *s, const buffers *m)
{
    double width = 4.0 * s->ff * m->n;
    xray_glu op = {};
    op.header = XRAY_HEADER(xray_glu);
    op.tokens.bound = s->tokens;
    op.x = m->x;
    op.y = m->y;
    op.dim = s->ff;
    op.x_dtype = op.y_dtype = m->dtype;
    xray_glu_grad grad = {};
    grad.header = XRAY_HEADER(xray_glu_grad);
    grad.tokens.bound = s->tokens;
    grad.x = m->x;
    grad.dy = m->y;
    grad.dx = m->z;
    grad.dim = s->ff;
    grad.x_dtype = m->dtype;
    double forward = 3 * width * m->part;
    double backward = (3 + 2 * m->part) * width;
    op.act = grad.act = XRAY_ACT_SILU;
    measure_operator(b, "glu, silu", forward, ENQUEUED(b, glu, op));
    measure_operator(b, "glu_grad, silu", backward,
                     ENQUEUED(b, glu_grad, grad));
    op.act = grad.act = XRAY_ACT_GELU_TANH;
    measure_operator(b, "glu, gelu", forward, ENQUEUED(b, glu, op));
    measure_operator(b, "glu_grad, gelu", backward,
                     ENQUEUED(b, glu_grad, grad));
}

static void measure_rope(bench *b, const shape *s, const buffers *m)
{
    xray_rope op = {};
    op.header = XRAY_HEADER(xray_rope);
    op.tokens.bound = s->tokens;
    op.x = m->y;
    op.positions = m->ids;
    op.table =
        allocate_floats(b, static_cast<uint64_t>(s->vocab) * s->head_dim);
    op.heads = s->heads;
    op.head_dim = s->head_dim;
    op.half = s->head_dim / 2;
    op.stride = static_cast<uint64_t>(s->heads) * s->head_dim;
    op.dtype = m->dtype;
    measure_operator(b, "rope", 8.0 * s->heads * s->head_dim * m->n * m->part,
                     ENQUEUED(b, rope, op));
    b->ops->free(b->self, const_cast<float *>(op.table));
}

static void measure_shape(bench *b, const shape *s)
{
    uint64_t widest = 2ull * s->ff * s->tokens;
    buffers m = {};
    m.n = static_cast<double>(s->tokens);
    m.x = static_cast<float *>(allocate_filled(b, widest, 0));
    m.y = static_cast<float *>(allocate_filled(b, widest / 2, 0));
    m.z = static_cast<float *>(allocate_filled(b, widest, 0));
    m.weight = static_cast<float *>(allocate_filled(b, s->dim, 0));
    m.stat = allocate_floats(b, s->tokens * s->heads * 2);
    m.dweight = allocate_floats(b, 2ull * s->dim);
    m.ids = static_cast<int32_t *>(allocate_filled(b, s->tokens, s->vocab));
    for (m.dtype = XRAY_F32; m.dtype <= XRAY_BF16; m.dtype++) {
        m.part = m.dtype == XRAY_F32 ? 1 : 0.5;
        printf("%s, %llu tokens, activations in %s\n", s->name,
               static_cast<unsigned long long>(s->tokens),
               m.dtype == XRAY_F32 ? "fp32" : "bf16");
        measure_norms(b, s, &m, 1, s->dim);
        measure_norms(b, s, &m, s->heads, s->head_dim);
        measure_layer_norms(b, s, &m);
        measure_embeddings(b, s, &m);
        measure_rope(b, s, &m);
        measure_activations(b, s, &m);
    }
    void *all[] = { m.x, m.y, m.z, m.weight, m.stat, m.dweight, m.ids };
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        b->ops->free(b->self, all[i]);
}

static void measure_elements(bench *b)
{
    uint64_t n = 500ull << 20;
    double count = static_cast<double>(n);
    float *p = allocate_floats(b, n);
    float *g = allocate_floats(b, n);
    float *m = allocate_floats(b, n);
    float *v = allocate_floats(b, n);
    float *out = allocate_floats(b, n / 2);
    float *scalars = static_cast<float *>(allocate_filled(b, 4, 0));
    printf("%llu elements\n", static_cast<unsigned long long>(n));
    xray_axpby sum = {};
    sum.header = XRAY_HEADER(xray_axpby);
    sum.count = n;
    sum.x = g;
    sum.y = p;
    sum.alpha = 0.5f;
    sum.beta = 1.0f;
    measure_operator(b, "axpby", 12 * count, ENQUEUED(b, axpby, sum));
    xray_cast cast = {};
    cast.header = XRAY_HEADER(xray_cast);
    cast.count = n;
    cast.x = p;
    cast.y = out;
    cast.x_dtype = XRAY_F32;
    cast.y_dtype = XRAY_BF16;
    measure_operator(b, "cast to bf16", 6 * count, ENQUEUED(b, cast, cast));
    cast.y_dtype = XRAY_F16;
    measure_operator(b, "cast to f16", 6 * count, ENQUEUED(b, cast, cast));
    cast.rows = n / 1024;
    cast.count = cast.y_stride = 512;
    cast.x_stride = 1024;
    measure_operator(b, "cast of half of the columns", 3 * count,
                     ENQUEUED(b, cast, cast));
    xray_sumsq square = {};
    square.header = XRAY_HEADER(xray_sumsq);
    square.count = n;
    square.x = g;
    square.result = reinterpret_cast<uint64_t *>(
        allocate_floats(b, 2 * XRAY_SQUARES_WORDS));
    measure_operator(b, "sumsq", 4 * count, ENQUEUED(b, sumsq, square));
    xray_adamw step = {};
    step.header = XRAY_HEADER(xray_adamw);
    step.count = n;
    step.p = p;
    step.g = g;
    step.m = m;
    step.v = v;
    step.out = out;
    step.scalars = scalars;
    step.beta1 = 0.9f;
    step.beta2 = 0.999f;
    step.eps = 1e-8f;
    step.out_dtype = XRAY_BF16;
    measure_operator(b, "adamw, zeros", 30 * count, ENQUEUED(b, adamw, step));
    float *random = static_cast<float *>(allocate_filled(b, 1 << 20, 0));
    for (float *at = g; at < g + n; at += 1 << 20)
        copy_now(b, at, random, 4 << 20);
    measure_operator(b, "adamw", 30 * count, ENQUEUED(b, adamw, step));
}

int main(void)
{
    static const shape shapes[] = {
        { "Qwen2.5-0.5B, decode", 256, 896, 4864, 14, 64, 151936 },
        { "Qwen2.5-0.5B", 4096, 896, 4864, 14, 64, 151936 },
        { "Qwen2.5-0.5B", 65536, 896, 4864, 14, 64, 151936 },
        { "Qwen2.5-7B", 4096, 3584, 18944, 28, 128, 152064 },
        { "Llama-3.1-8B", 16384, 4096, 14336, 32, 128, 128256 },
    };
    bench b;
    bench_open(&b, FLUSH);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        measure_shape(&b, &shapes[i]);
    measure_elements(&b);
    b.ops->destroy(b.self);
    return 0;
}
