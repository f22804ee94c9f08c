/* SPDX-License-Identifier: Apache-2.0
 *
 * bench-cuda-rows: device-cuda's rows, norms, activations and elementwise
 * operators on this GPU: the bytes that an operator must move, over the time
 * of the fastest of 20 calls, held against what a copy moves. Before each call
 * the L2 cache is filled with something else.
 */
#include "bench/cuda_bench.h"

#include <string.h>

#define FLUSH (256ull << 20)

template <typename Call>
static void measure(bench *b, const char *name, double bytes, Call call)
{
    double s = least(b, call);
    printf("  %-22s %9.1f us %6.0f GB/s %4.0f%% of copy\n", name, s * 1e6,
           bytes / s * 1e-9, 100 * bytes / s / b->copy);
}

/* Whole numbers below `below` with no pattern, or values in (0, 1). */
static void *filled(bench *b, uint64_t count, uint64_t below)
{
    uint32_t *host = static_cast<uint32_t *>(malloc(count * 4));
    float *p = room(b, count);
    need(host != NULL, "malloc");
    uint64_t x = 1;
    for (uint64_t i = 0; i < count; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        float f = static_cast<float>((x >> 41) + 1) * 0x1p-24f;
        uint32_t n = below ? static_cast<uint32_t>((x >> 32) % below) : 0;
        memcpy(&host[i], below ? static_cast<void *>(&n) : &f, 4);
    }
    need(cudaMemcpy(p, host, count * 4, cudaMemcpyHostToDevice) == cudaSuccess,
         "copy");
    free(host);
    return p;
}

typedef struct shape {
    const char *name;
    uint64_t tokens;
    uint32_t dim, ff, heads, head_dim, vocab;
} shape;

/* Room that the operators of one shape share. */
typedef struct space {
    float *x, *y, *z;
    float *weight, *stat, *dweight;
    int32_t *ids;
    double n; /* tokens */
} space;

static void norms(bench *b, const shape *s, const space *m, uint32_t groups,
                  uint32_t dim)
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
    measure(b, groups > 1 ? "qk-norm" : "rmsnorm", 2 * width,
            ENQUEUED(b, rmsnorm, op));
    if (groups == 1) {
        op.residual = m->z;
        measure(b, "rmsnorm, residual", 4 * width, ENQUEUED(b, rmsnorm, op));
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
    measure(b, groups > 1 ? "qk-norm, dx" : "rmsnorm, dx", 3 * width,
            ENQUEUED(b, rmsnorm_grad, grad));
    grad.dweight = m->dweight;
    measure(b, groups > 1 ? "qk-norm, dx, dweight" : "rmsnorm, dx, dweight",
            5 * width, ENQUEUED(b, rmsnorm_grad, grad));
}

static void layer_norms(bench *b, const shape *s, const space *m)
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
    measure(b, "layernorm", 2 * width, ENQUEUED(b, layernorm, op));
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
    measure(b, "layernorm, all grads", 5 * width,
            ENQUEUED(b, layernorm_grad, grad));
}

static void table_rows(bench *b, const shape *s, const space *m)
{
    double row = 4.0 * s->dim;
    float *table = room(b, static_cast<uint64_t>(s->vocab) * s->dim);
    xray_embedding op = {};
    op.header = XRAY_HEADER(xray_embedding);
    op.tokens.bound = s->tokens;
    op.ids = m->ids;
    op.table = table;
    op.y = m->y;
    op.vocab = s->vocab;
    op.dim = s->dim;
    op.scale = 1;
    measure(b, "embedding", 2 * row * m->n, ENQUEUED(b, embedding, op));
    op.table_dtype = XRAY_BF16;
    measure(b, "embedding, bf16", 1.5 * row * m->n, ENQUEUED(b, embedding, op));
    xray_embedding_grad grad = {};
    grad.header = XRAY_HEADER(xray_embedding_grad);
    grad.tokens.bound = s->tokens;
    grad.ids = m->ids;
    grad.dy = m->y;
    grad.dtable = table;
    grad.vocab = s->vocab;
    grad.dim = s->dim;
    grad.scale = 1;
    measure(b, "embedding_grad", 3 * row * m->n,
            ENQUEUED(b, embedding_grad, grad));
    b->ops->free(b->self, table);
}

static void activations(bench *b, const shape *s, const space *m)
{
    double width = 4.0 * s->ff * m->n;
    xray_glu op = {};
    op.header = XRAY_HEADER(xray_glu);
    op.tokens.bound = s->tokens;
    op.x = m->x;
    op.y = m->y;
    op.dim = s->ff;
    xray_glu_grad grad = {};
    grad.header = XRAY_HEADER(xray_glu_grad);
    grad.tokens.bound = s->tokens;
    grad.x = m->x;
    grad.dy = m->y;
    grad.dx = m->z;
    grad.dim = s->ff;
    op.act = grad.act = XRAY_ACT_SILU;
    measure(b, "glu, silu", 3 * width, ENQUEUED(b, glu, op));
    measure(b, "glu_grad, silu", 5 * width, ENQUEUED(b, glu_grad, grad));
    op.act = grad.act = XRAY_ACT_GELU_TANH;
    measure(b, "glu, gelu", 3 * width, ENQUEUED(b, glu, op));
    measure(b, "glu_grad, gelu", 5 * width, ENQUEUED(b, glu_grad, grad));
}

static void positions(bench *b, const shape *s, const space *m)
{
    xray_rope op = {};
    op.header = XRAY_HEADER(xray_rope);
    op.tokens.bound = s->tokens;
    op.x = m->y;
    op.positions = m->ids;
    op.table = room(b, static_cast<uint64_t>(s->vocab) * s->head_dim);
    op.heads = s->heads;
    op.head_dim = s->head_dim;
    op.half = s->head_dim / 2;
    op.stride = static_cast<uint64_t>(s->heads) * s->head_dim;
    measure(b, "rope", 8.0 * s->heads * s->head_dim * m->n,
            ENQUEUED(b, rope, op));
    b->ops->free(b->self, const_cast<float *>(op.table));
}

static void of_shape(bench *b, const shape *s)
{
    uint64_t widest = 2ull * s->ff * s->tokens;
    space m = {};
    m.n = static_cast<double>(s->tokens);
    m.x = static_cast<float *>(filled(b, widest, 0));
    m.y = static_cast<float *>(filled(b, widest / 2, 0));
    m.z = static_cast<float *>(filled(b, widest, 0));
    m.weight = static_cast<float *>(filled(b, s->dim, 0));
    m.stat = room(b, s->tokens * s->heads * 2);
    m.dweight = room(b, 2ull * s->dim);
    m.ids = static_cast<int32_t *>(filled(b, s->tokens, s->vocab));
    printf("%s, %llu tokens\n", s->name,
           static_cast<unsigned long long>(s->tokens));
    norms(b, s, &m, 1, s->dim);
    norms(b, s, &m, s->heads, s->head_dim);
    layer_norms(b, s, &m);
    table_rows(b, s, &m);
    positions(b, s, &m);
    activations(b, s, &m);
    void *all[] = { m.x, m.y, m.z, m.weight, m.stat, m.dweight, m.ids };
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        b->ops->free(b->self, all[i]);
}

static void elements(bench *b)
{
    uint64_t n = 500ull << 20;
    double count = static_cast<double>(n);
    float *p = room(b, n);
    float *g = room(b, n);
    float *m = room(b, n);
    float *v = room(b, n);
    float *out = room(b, n / 2);
    float *scalars = static_cast<float *>(filled(b, 4, 0));
    printf("%llu elements\n", static_cast<unsigned long long>(n));
    xray_axpby sum = {};
    sum.header = XRAY_HEADER(xray_axpby);
    sum.count = n;
    sum.x = g;
    sum.y = p;
    sum.alpha = 0.5f;
    sum.beta = 1.0f;
    measure(b, "axpby", 12 * count, ENQUEUED(b, axpby, sum));
    xray_cast cast = {};
    cast.header = XRAY_HEADER(xray_cast);
    cast.count = n;
    cast.x = p;
    cast.y = out;
    cast.x_dtype = XRAY_F32;
    cast.y_dtype = XRAY_BF16;
    measure(b, "cast to bf16", 6 * count, ENQUEUED(b, cast, cast));
    cast.y_dtype = XRAY_F16;
    measure(b, "cast to f16", 6 * count, ENQUEUED(b, cast, cast));
    xray_sumsq square = {};
    square.header = XRAY_HEADER(xray_sumsq);
    square.count = n;
    square.x = g;
    square.result = reinterpret_cast<double *>(room(b, 4));
    measure(b, "sumsq", 4 * count, ENQUEUED(b, sumsq, square));
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
    measure(b, "adamw, zeros", 30 * count, ENQUEUED(b, adamw, step));
    float *random = static_cast<float *>(filled(b, 1 << 20, 0));
    for (float *at = g; at < g + n; at += 1 << 20)
        need(cudaMemcpy(at, random, 4 << 20, cudaMemcpyDeviceToDevice) ==
                 cudaSuccess,
             "copy");
    measure(b, "adamw", 30 * count, ENQUEUED(b, adamw, step));
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
        of_shape(&b, &shapes[i]);
    elements(&b);
    b.ops->destroy(b.self);
    return 0;
}
