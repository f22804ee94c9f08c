/* SPDX-License-Identifier: Apache-2.0
 *
 * bench-cuda-rows: device-cuda's rows, norms, activations and elementwise
 * operators on this GPU: the bytes that an operator must move, over the time
 * of the fastest of 20 calls, held against what a copy moves. Before each call
 * the L2 cache is filled with something else.
 */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/device-cuda/device.h"

#include <xray/plugin.h>

extern "C" const xray_plugin *xray_plugin_query_device_cuda(uint32_t host_abi);

#define CALLS 20
#define FLUSH (256ull << 20)

typedef struct bench {
    const xray_device_ops *ops;
    void *self;
    cudaStream_t stream;
    cudaEvent_t from, to;
    void *flush;
    double copy; /* bytes a second, read and written */
} bench;

static xray_status say(const xray_host *host, xray_status code,
                       const char *where, const char *msg)
{
    (void)host;
    (void)fprintf(stderr, "%s: %s\n", where, msg);
    return code;
}

static void need(int fine, const char *what)
{
    if (fine)
        return;
    (void)fprintf(stderr, "bench-cuda-rows: %s failed\n", what);
    exit(1);
}

/* Seconds of the fastest call. */
template <typename Call> static double least(bench *b, Call call)
{
    double best = 1e9;
    for (int i = 0; i < CALLS + 2; i++) {
        float ms = 0;
        need(cudaMemsetAsync(b->flush, i, FLUSH, b->stream) == cudaSuccess,
             "memset");
        need(cudaEventRecord(b->from, b->stream) == cudaSuccess, "event");
        need(call(), "call");
        need(cudaEventRecord(b->to, b->stream) == cudaSuccess, "event");
        need(cudaEventSynchronize(b->to) == cudaSuccess, "sync");
        need(cudaEventElapsedTime(&ms, b->from, b->to) == cudaSuccess, "time");
        if (i >= 2 && ms * 1e-3 < best)
            best = ms * 1e-3;
    }
    return best;
}

template <typename Call>
static void measure(bench *b, const char *name, double bytes, Call call)
{
    double s = least(b, call);
    printf("  %-22s %9.1f us %6.0f GB/s %4.0f%% of copy\n", name, s * 1e6,
           bytes / s * 1e-9, 100 * bytes / s / b->copy);
}

static float *room(bench *b, uint64_t count)
{
    void *p = NULL;
    need(b->ops->alloc(b->self, "bench", XRAY_TAG_WORKSPACE, count * 4, &p) ==
             XRAY_OK,
         "alloc");
    return static_cast<float *>(p);
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

#define ENQUEUED(b, name, op) \
    [&]() { return (b)->ops->name((b)->self, NULL, &(op)) == XRAY_OK; }

static void measure_copy(bench *b)
{
    uint64_t bytes = 1ull << 30;
    float *x = room(b, bytes / 2);
    float *y = x + bytes / 4;
    double s = least(b, [&]() {
        return cudaMemcpyAsync(y, x, bytes, cudaMemcpyDeviceToDevice,
                               b->stream) == cudaSuccess;
    });
    b->copy = 2.0 * static_cast<double>(bytes) / s;
    printf("copy %.0f GB/s read and written\n", b->copy * 1e-9);
    b->ops->free(b->self, x);
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
    op.head = XRAY_HEAD(xray_rmsnorm);
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
    grad.head = XRAY_HEAD(xray_rmsnorm_grad);
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
    op.head = XRAY_HEAD(xray_layernorm);
    op.tokens.bound = s->tokens;
    op.x = m->x;
    op.weight = op.bias = m->weight;
    op.y = m->y;
    op.stat = m->stat;
    op.x_stride = op.y_stride = op.dim = s->dim;
    op.eps = 1e-6f;
    measure(b, "layernorm", 2 * width, ENQUEUED(b, layernorm, op));
    xray_layernorm_grad grad = {};
    grad.head = XRAY_HEAD(xray_layernorm_grad);
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
    op.head = XRAY_HEAD(xray_embedding);
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
    grad.head = XRAY_HEAD(xray_embedding_grad);
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
    op.head = XRAY_HEAD(xray_glu);
    op.tokens.bound = s->tokens;
    op.x = m->x;
    op.y = m->y;
    op.dim = s->ff;
    xray_glu_grad grad = {};
    grad.head = XRAY_HEAD(xray_glu_grad);
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
    op.head = XRAY_HEAD(xray_rope);
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
    sum.head = XRAY_HEAD(xray_axpby);
    sum.count = n;
    sum.x = g;
    sum.y = p;
    sum.alpha = 0.5f;
    sum.beta = 1.0f;
    measure(b, "axpby", 12 * count, ENQUEUED(b, axpby, sum));
    xray_cast cast = {};
    cast.head = XRAY_HEAD(xray_cast);
    cast.count = n;
    cast.x = p;
    cast.y = out;
    cast.x_dtype = XRAY_F32;
    cast.y_dtype = XRAY_BF16;
    measure(b, "cast to bf16", 6 * count, ENQUEUED(b, cast, cast));
    cast.y_dtype = XRAY_F16;
    measure(b, "cast to f16", 6 * count, ENQUEUED(b, cast, cast));
    xray_sumsq square = {};
    square.head = XRAY_HEAD(xray_sumsq);
    square.count = n;
    square.x = g;
    square.result = reinterpret_cast<double *>(room(b, 4));
    measure(b, "sumsq", 4 * count, ENQUEUED(b, sumsq, square));
    xray_adamw step = {};
    step.head = XRAY_HEAD(xray_adamw);
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
    xray_host host = {};
    host.head = XRAY_HEAD(xray_host);
    host.fail = say;
    cuda_config config = {};
    config.precision = CUDA_BFLOAT16;
    bench b = {};
    b.ops = static_cast<const xray_device_ops *>(
        xray_plugin_query_device_cuda(XRAY_ABI)->components[0]->ops);
    need(b.ops->create(&host, &config, 1, &b.self) == XRAY_OK, "create");
    b.stream = cuda_stream(static_cast<cuda_device *>(b.self), NULL);
    need(cudaEventCreate(&b.from) == cudaSuccess, "event");
    need(cudaEventCreate(&b.to) == cudaSuccess, "event");
    b.flush = room(&b, FLUSH / 4);
    xray_device_info info = {};
    info.head = XRAY_HEAD(xray_device_info);
    need(b.ops->info(b.self, &info) == XRAY_OK, "info");
    printf("%s\n", info.name);
    measure_copy(&b);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        of_shape(&b, &shapes[i]);
    elements(&b);
    b.ops->destroy(b.self);
    return 0;
}
