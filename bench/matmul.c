/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products of the cpu device against the fp32 FMA peak and the memory
 * bandwidth, both measured first with the same number of threads.
 *
 *     bench-matmul [threads [avx512|avx2|scalar]]
 */
#include <immintrin.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <xray/device.h>
#include <xray/plugin.h>

#include "plugins/device-cpu/device.h"

const xray_plugin *xray_plugin_query_device_cpu(uint32_t host_abi);

#define MOST_THREADS 64
#define STREAM_FLOATS ((size_t)32 << 20) /* 128 MiB: beyond any cache */

/* One thread is timed by its own processor time, which neighbours on a shared
 * machine do not stretch; several by the clock on the wall. */
static clockid_t clock_used = CLOCK_THREAD_CPUTIME_ID;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(clock_used, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static xray_status print_failure(const xray_host *host, xray_status code,
                                 const char *where, const char *msg)
{
    (void)host;
    (void)fprintf(stderr, "%s: %s\n", where, msg);
    return code;
}

/* ---- peaks -------------------------------------------------------------- */

typedef struct probe {
    int64_t isa;
    const float *data; /* NULL: arithmetic */
    size_t first, last;
    double work; /* operations or bytes */
    float keep;
} probe;

__attribute__((target("avx512f"))) static float fma_512(size_t rounds)
{
    __m512 c[16];
    __m512 x = _mm512_set1_ps(0.999f);
    for (int i = 0; i < 16; i++)
        c[i] = _mm512_set1_ps((float)i);
    for (size_t r = 0; r < rounds; r++)
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            c[i] = _mm512_fmadd_ps(c[i], x, x);
    for (int i = 1; i < 16; i++)
        c[0] = _mm512_add_ps(c[0], c[i]);
    return _mm512_cvtss_f32(c[0]);
}

__attribute__((target("avx2,fma"))) static float fma_256(size_t rounds)
{
    __m256 c[12];
    __m256 x = _mm256_set1_ps(0.999f);
    for (int i = 0; i < 12; i++)
        c[i] = _mm256_set1_ps((float)i);
    for (size_t r = 0; r < rounds; r++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++)
            c[i] = _mm256_fmadd_ps(c[i], x, x);
    for (int i = 1; i < 12; i++)
        c[0] = _mm256_add_ps(c[0], c[i]);
    return _mm256_cvtss_f32(c[0]);
}

__attribute__((target("avx2"))) static float read_all(const float *p, size_t n)
{
    __m256 c[8];
    for (int i = 0; i < 8; i++)
        c[i] = _mm256_setzero_ps();
    for (size_t i = 0; i + 64 <= n; i += 64)
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++)
            c[j] = _mm256_add_ps(c[j], _mm256_loadu_ps(p + i + 8 * j));
    for (int i = 1; i < 8; i++)
        c[0] = _mm256_add_ps(c[0], c[i]);
    return _mm256_cvtss_f32(c[0]);
}

#define PROBE_ROUNDS ((size_t)4 << 20)

static void *run_probe(void *arg)
{
    probe *p = arg;
    if (p->data) {
        p->keep = read_all(p->data + p->first, p->last - p->first);
        p->work = (double)(p->last - p->first) * sizeof(float);
    } else if (p->isa == CPU_ISA_AVX512) {
        p->keep = fma_512(PROBE_ROUNDS);
        p->work = (double)PROBE_ROUNDS * 16 * 32;
    } else {
        p->keep = fma_256(PROBE_ROUNDS);
        p->work = (double)PROBE_ROUNDS * 12 * 16;
    }
    return NULL;
}

/* The best of some runs on all threads at once, in units of 1e9 a second. */
static double peak(uint32_t threads, int64_t isa, const float *data)
{
    double best = 0;
    for (int again = 0; again < 8; again++) {
        pthread_t id[MOST_THREADS];
        probe p[MOST_THREADS];
        double work = 0;
        double start = now();
        for (uint32_t i = 0; i < threads; i++) {
            p[i] = (probe){ .isa = isa,
                            .data = data,
                            .first = STREAM_FLOATS / threads * i,
                            .last = STREAM_FLOATS / threads * (i + 1) };
            if (i == 0)
                continue;
            if (pthread_create(&id[i], NULL, run_probe, &p[i]) != 0)
                return 0;
        }
        (void)run_probe(&p[0]);
        for (uint32_t i = 0; i < threads; i++) {
            if (i > 0)
                (void)pthread_join(id[i], NULL);
            work += p[i].work;
        }
        double rate = work / (now() - start) * 1e-9;
        best = rate > best ? rate : best;
    }
    return best;
}

/* ---- products ----------------------------------------------------------- */

typedef struct device {
    const xray_device_ops *ops;
    void *self;
} device;

typedef struct shape {
    const char *what;
    size_t tokens, rows, cols;
} shape;

static float *device_floats(const device *d, size_t n)
{
    void *p = NULL;
    if (d->ops->alloc(d->self, "bench", XRAY_TAG_WORKSPACE, n * sizeof(float),
                      &p) != XRAY_OK)
        return NULL;
    float *f = p;
    for (size_t i = 0; i < n; i++)
        f[i] = (float)(i % 17) * 0.01f - 0.08f;
    return f;
}

/* Seconds of one call: the best of several batches of about 40 ms. */
static double time_op(const device *d, const xray_matmul *op,
                      const xray_matmul_grad *grad)
{
    double best = 1e9;
    size_t calls = 1;
    for (int batch = 0; batch < 8; batch++) {
        double start = now();
        for (size_t i = 0; i < calls; i++) {
            xray_status s = grad ? d->ops->matmul_grad(d->self, NULL, grad)
                                 : d->ops->matmul(d->self, NULL, op);
            if (s != XRAY_OK)
                return 1e9;
        }
        double each = (now() - start) / (double)calls;
        best = each < best ? each : best;
        calls = (size_t)(0.04 / each) + 1;
    }
    return best;
}

static void report(const char *kind, const shape *s, double seconds,
                   const double *peaks)
{
    double n = (double)s->rows * (double)s->cols;
    double flops = 2 * n * (double)s->tokens / seconds * 1e-9;
    double bytes = 4 * n / seconds * 1e-9;
    printf("%-14s %-5s %6zu %6zu %6zu %9.1f %6.0f%%", s->what, kind, s->tokens,
           s->rows, s->cols, flops, 100 * flops / peaks[0]);
    if (s->tokens == 1)
        printf(" %9.1f %6.0f%%", bytes, 100 * bytes / peaks[1]);
    printf("\n");
}

/* The three products of a matrix; only the forward one for a single token. */
static void run_products(const device *d, const shape *s, xray_weight *w,
                         float *const *data, const double *peaks)
{
    xray_matmul op = { .head = XRAY_HEAD(xray_matmul),
                       .weight = w,
                       .tokens = { s->tokens, NULL },
                       .x = data[1],
                       .y = data[2],
                       .x_stride = s->cols,
                       .y_stride = s->rows,
                       .kind = XRAY_NT };
    report("NT", s, time_op(d, &op, NULL), peaks);
    if (s->tokens == 1)
        return;
    op.kind = XRAY_NN;
    op.x = data[2];
    op.y = data[1];
    op.x_stride = s->rows;
    op.y_stride = s->cols;
    report("NN", s, time_op(d, &op, NULL), peaks);
    xray_matmul_grad grad = { .head = XRAY_HEAD(xray_matmul_grad),
                              .tokens = { s->tokens, NULL },
                              .dy = data[2],
                              .x = data[1],
                              .dy_stride = s->rows,
                              .x_stride = s->cols,
                              .rows = s->rows,
                              .cols = s->cols,
                              .dw = data[0] };
    report("grad", s, time_op(d, NULL, &grad), peaks);
}

static int run_shape(const device *d, const shape *s, const double *peaks)
{
    float *data[3] = { device_floats(d, s->rows * s->cols),
                       device_floats(d, s->tokens * s->cols),
                       device_floats(d, s->tokens * s->rows) };
    xray_weight_desc desc = { .head = XRAY_HEAD(xray_weight_desc),
                              .data = data[0],
                              .rows = s->rows,
                              .cols = s->cols,
                              .dtype = XRAY_F32,
                              .trainable = s->tokens > 1 };
    xray_weight *w = NULL;
    int ok = data[0] && data[1] && data[2] &&
             d->ops->weight_create(d->self, &desc, &w) == XRAY_OK;
    if (ok)
        run_products(d, s, w, data, peaks);
    d->ops->weight_destroy(d->self, w);
    for (int i = 0; i < 3; i++)
        d->ops->free(d->self, data[i]);
    return ok;
}

static const shape shapes[] = {
    { "quickstart", 7000, 384, 128 }, { "quickstart", 7000, 128, 384 },
    { "quickstart", 512, 96, 96 },    { "quickstart", 64, 288, 96 },
    { "stories260K", 512, 344, 64 },  { "35M", 64, 1024, 512 },
    { "35M", 256, 1024, 512 },        { "35M", 2048, 1024, 512 },
    { "35M", 2048, 512, 1024 },       { "35M head", 64, 32000, 512 },
    { "0.5B", 128, 4864, 896 },       { "square", 1024, 1024, 1024 },
    { "square", 64, 2048, 2048 },     { "decode", 1, 1024, 512 },
    { "decode", 1, 4864, 896 },       { "decode", 1, 32000, 512 },
    { "decode", 1, 8192, 8192 },
};

static int64_t isa_named(const char *name)
{
    static const char *const names[] = { "auto", "avx512", "avx2", "scalar" };
    for (int64_t i = 0; i < 4; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

int main(int argc, char **argv)
{
    static const xray_host host = { .head = XRAY_HEAD(xray_host),
                                    .fail = print_failure };
    uint32_t threads = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1;
    cpu_config config = { .isa = isa_named(argc > 2 ? argv[2] : "auto") };
    if (threads < 1 || threads > MOST_THREADS || config.isa < 0) {
        (void)fprintf(stderr,
                      "usage: bench-matmul [threads [avx512|avx2|scalar]]\n");
        return 2;
    }
    if (threads > 1)
        clock_used = CLOCK_MONOTONIC;
    device d = {
        .ops = xray_plugin_query_device_cpu(XRAY_ABI)->components[0]->ops
    };
    if (d.ops->create(&host, &config, threads, &d.self) != XRAY_OK)
        return 1;
    xray_device_info info = { .head = XRAY_HEAD(xray_device_info) };
    if (d.ops->info(d.self, &info) != XRAY_OK)
        return 1;
    int wide = strstr(info.name, "AVX-512") != NULL;
    float *stream = device_floats(&d, STREAM_FLOATS);
    if (!stream)
        return 1;
    double peaks[2] = { peak(threads, wide ? CPU_ISA_AVX512 : CPU_ISA_AVX2,
                             NULL),
                        peak(threads, 0, stream) };
    d.ops->free(d.self, stream);
    printf("%s: %.0f GF/s fp32 FMA, %.1f GB/s read\n", info.name, peaks[0],
           peaks[1]);
    printf("%-14s %-5s %6s %6s %6s %9s %7s %9s %7s\n", "model", "kind",
           "tokens", "rows", "cols", "GF/s", "peak", "GB/s", "memory");
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        if (!run_shape(&d, &shapes[i], peaks))
            return 1;
    d.ops->destroy(d.self);
    return 0;
}
