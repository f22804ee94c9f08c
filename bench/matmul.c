/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures matrix products of the cpu device against the fp32 FMA peak and the
 * memory bandwidth, both measured first with the same number of threads. A
 * single token reads the matrix as floats, and then as bf16. Of a matrix of
 * gates and up projections it measures the product that activates its outputs
 * ("glu"), and the product and the activation one after the other ("apart").
 * "NT16", "grad16" and "glu16" have activations of bf16.
 *
 *     bench-matmul [threads [avx512|avx2|scalar|auto [TOKENSxROWSxCOLS]]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xray/device.h>
#include <xray/plugin.h>

#include "bench/host.h"
#include "bench/probe.h"
#include "plugins/device-cpu/device.h"

const xray_plugin *xray_plugin_query_device_cpu(uint32_t host_abi);

/* ---- products ----------------------------------------------------------- */

typedef struct device {
    const xray_device_ops *ops;
    void *self;
    uint32_t threads;
    int wide; /* AVX-512 */
} device;

typedef struct shape {
    const char *what;
    size_t tokens, rows, cols;
    int narrow; /* bf16 */
    int gates;  /* 1: the first half of the rows are gates */
} shape;

/* One measurement times the operators that are set: a gradient, or a product
 * and an activation of its outputs. */
typedef struct work {
    const xray_matmul *op;
    const xray_glu *glu;
    const xray_matmul_grad *grad;
} work;

static xray_status do_work(const device *d, const work *w)
{
    if (w->grad)
        return d->ops->matmul_grad(d->self, NULL, w->grad);
    xray_status status = d->ops->matmul(d->self, NULL, w->op);
    return status == XRAY_OK && w->glu ? d->ops->glu(d->self, NULL, w->glu)
                                       : status;
}

static float *allocate_floats(const device *d, size_t n)
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

/* Returns the seconds of one call, the best of several batches of about 40 ms.
 * The peak is measured again between batches, because the clock rate of a
 * shared machine varies. */
static double time_work(const device *d, const work *w, probe_rates *peaks)
{
    double best = 1e9;
    size_t calls = 1;
    peaks->flops = 0;
    for (int batch = 0; batch < 8; batch++) {
        double peak = probe_run_once(d->threads, d->wide, NULL);
        peaks->flops = peak > peaks->flops ? peak : peaks->flops;
        double start = probe_seconds(d->threads);
        for (size_t i = 0; i < calls; i++)
            if (do_work(d, w) != XRAY_OK)
                return 1e9;
        double each = (probe_seconds(d->threads) - start) / (double)calls;
        best = each < best ? each : best;
        calls = (size_t)(0.04 / each) + 1;
    }
    return best;
}

static void print_rates(const char *kind, const device *d, const shape *s,
                        const work *w, probe_rates *peaks)
{
    double seconds = time_work(d, w, peaks);
    double n = (double)s->rows * (double)s->cols;
    double flops = 2 * n * (double)s->tokens / seconds * 1e-9;
    double bytes = (s->narrow ? 2 : 4) * n / seconds * 1e-9;
    printf("%-14s %-6s %6zu %6zu %6zu %9.1f %6.0f%%", s->what, kind, s->tokens,
           s->rows, s->cols, flops, 1e11 * flops / peaks->flops);
    if (s->tokens == 1)
        printf(" %9.1f %6.0f%%", bytes, 1e11 * bytes / peaks->bytes);
    printf("\n");
}

/* Measures a product whose input, in bf16, and output are bf16. */
static void run_narrow(const char *kind, const device *d, const shape *s,
                       xray_matmul op, const void *x, probe_rates *peaks)
{
    op.x = x;
    op.x_dtype = XRAY_BF16;
    op.y_dtype = XRAY_BF16;
    print_rates(kind, d, s, &(work){ .op = &op }, peaks);
}

/* Measures the three products of a matrix; for a single token only the forward
 * product. */
static void run_products(const device *d, const shape *s, xray_weight *w,
                         float *const *data, probe_rates *peaks)
{
    xray_matmul op = { .header = XRAY_HEADER(xray_matmul),
                       .weight = w,
                       .tokens = { s->tokens, NULL },
                       .x = data[1],
                       .y = data[2],
                       .x_stride = s->cols,
                       .y_stride = s->rows,
                       .kind = XRAY_NT };
    print_rates(s->narrow ? "bf16" : "NT", d, s, &(work){ .op = &op }, peaks);
    run_narrow("NT16", d, s, op, data[4], peaks);
    if (s->tokens == 1 || s->narrow)
        return;
    op.kind = XRAY_NN;
    op.x = data[2];
    op.y = data[1];
    op.x_stride = s->rows;
    op.y_stride = s->cols;
    print_rates("NN", d, s, &(work){ .op = &op }, peaks);
    xray_matmul_grad grad = { .header = XRAY_HEADER(xray_matmul_grad),
                              .tokens = { s->tokens, NULL },
                              .dy = data[2],
                              .x = data[1],
                              .dy_stride = s->rows,
                              .x_stride = s->cols,
                              .rows = s->rows,
                              .cols = s->cols,
                              .dw = data[0] };
    print_rates("grad", d, s, &(work){ .grad = &grad }, peaks);
    grad.x = data[4];
    grad.x_dtype = XRAY_BF16;
    print_rates("grad16", d, s, &(work){ .grad = &grad }, peaks);
}

/* Measures a product of gates and up projections with its activation, in one
 * call and in two. */
static void run_gates(const device *d, const shape *s, xray_weight *w,
                      float *const *data, probe_rates *peaks)
{
    xray_matmul op = { .header = XRAY_HEADER(xray_matmul),
                       .weight = w,
                       .tokens = { s->tokens, NULL },
                       .x = data[1],
                       .y = data[2],
                       .x_stride = s->cols,
                       .y_stride = s->rows,
                       .kind = XRAY_NT };
    const xray_glu glu = { .header = XRAY_HEADER(xray_glu),
                           .tokens = { s->tokens, NULL },
                           .x = data[2],
                           .y = data[3],
                           .dim = (uint32_t)s->rows / 2,
                           .act = XRAY_ACT_SILU };
    print_rates("apart", d, s, &(work){ .op = &op, .glu = &glu }, peaks);
    op.act = XRAY_ACT_SILU;
    op.y = data[3];
    op.y_stride = s->rows / 2;
    print_rates("glu", d, s, &(work){ .op = &op }, peaks);
    run_narrow("glu16", d, s, op, data[4], peaks);
}

static int run_shape(const device *d, const shape *s, probe_rates *peaks)
{
    float *data[5] = { allocate_floats(d, s->rows * s->cols),
                       allocate_floats(d, s->tokens * s->cols),
                       allocate_floats(d, s->tokens * s->rows),
                       allocate_floats(d, s->tokens * s->rows),
                       allocate_floats(d, s->tokens * s->cols) };
    xray_cast round = { .header = XRAY_HEADER(xray_cast),
                        .count = s->tokens * s->cols,
                        .x = data[1],
                        .y = data[4],
                        .x_dtype = XRAY_F32,
                        .y_dtype = XRAY_BF16 };
    xray_weight_desc desc = { .header = XRAY_HEADER(xray_weight_desc),
                              .data = data[0],
                              .rows = s->rows,
                              .cols = s->cols,
                              .dtype = s->narrow ? XRAY_BF16 : XRAY_F32,
                              .uses = s->tokens > 1 && !s->narrow
                                          ? XRAY_USE_NT | XRAY_USE_NN
                                          : XRAY_USE_NT };
    xray_weight *w = NULL;
    int ok = data[0] && data[1] && data[2] && data[3] && data[4] &&
             d->ops->cast(d->self, NULL, &round) == XRAY_OK &&
             d->ops->weight_create(d->self, &desc, &w) == XRAY_OK;
    if (ok && s->gates)
        run_gates(d, s, w, data, peaks);
    else if (ok)
        run_products(d, s, w, data, peaks);
    d->ops->weight_destroy(d->self, w);
    for (int i = 0; i < 5; i++)
        d->ops->free(d->self, data[i]);
    return ok;
}

static const shape shapes[] = {
    { "quickstart", 7000, 384, 128, 0, 0 },
    { "quickstart", 7000, 128, 384, 0, 0 },
    { "quickstart", 512, 96, 96, 0, 0 },
    { "quickstart", 64, 288, 96, 0, 0 },
    { "stories260K", 512, 344, 64, 0, 0 },
    { "35M", 64, 1024, 512, 0, 0 },
    { "35M", 256, 1024, 512, 0, 0 },
    { "35M", 2048, 1024, 512, 0, 0 },
    { "35M", 2048, 512, 1024, 0, 0 },
    { "35M lm_head", 64, 32000, 512, 0, 0 },
    { "0.5B", 128, 4864, 896, 0, 0 },
    { "square", 1024, 1024, 1024, 0, 0 },
    { "square", 64, 2048, 2048, 0, 0 },
    { "decode", 1, 1024, 512, 0, 0 },
    { "decode", 1, 4864, 896, 0, 0 },
    { "decode", 1, 32000, 512, 0, 0 },
    { "decode", 1, 8192, 8192, 0, 0 },
    { "quickstart", 512, 768, 96, 0, 1 },
    { "35M", 256, 2816, 512, 0, 1 },
    { "0.5B", 128, 9728, 896, 0, 1 },
    { "0.5B", 1, 9728, 896, 0, 1 },
};

static int64_t find_isa(const char *name)
{
    static const char *const names[] = { "auto", "avx512", "avx2", "scalar" };
    for (int64_t i = 0; i < 4; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

/* Tells whether `name` is empty or names this shape. */
static int is_wanted_shape(const shape *s, const char *name)
{
    char own[64];
    (void)snprintf(own, sizeof(own), "%zux%zux%zu", s->tokens, s->rows,
                   s->cols);
    return !*name || strcmp(own, name) == 0;
}

int main(int argc, char **argv)
{
    static const xray_host host = { .header = XRAY_HEADER(xray_host),
                                    .fail = print_failure };
    uint32_t threads = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1;
    cpu_config config = { .isa = find_isa(argc > 2 ? argv[2] : "auto") };
    const char *name = argc > 3 ? argv[3] : "";
    if (threads < 1 || threads > PROBE_MOST_THREADS || config.isa < 0) {
        (void)fprintf(stderr,
                      "usage: bench-matmul [threads [avx512|avx2|scalar|auto "
                      "[TOKENSxROWSxCOLS]]]\n");
        return 2;
    }
    device d = { .ops =
                     xray_plugin_query_device_cpu(XRAY_ABI)->components[0]->ops,
                 .threads = threads };
    if (d.ops->create(&host, &config, threads, &d.self) != XRAY_OK)
        return 1;
    xray_device_info info = { .header = XRAY_HEADER(xray_device_info) };
    if (d.ops->info(d.self, &info) != XRAY_OK)
        return 1;
    d.wide = strstr(info.name, "AVX-512") != NULL;
    probe_rates peaks = probe_machine(threads, d.wide);
    if (peaks.flops <= 0 || peaks.bytes <= 0)
        return 1;
    printf("%s: %.0f GF/s fp32 FMA, %.1f GB/s read\n", info.name,
           peaks.flops * 1e-9, peaks.bytes * 1e-9);
    printf("%-14s %-6s %6s %6s %6s %9s %7s %9s %7s\n", "model", "kind",
           "tokens", "rows", "cols", "GF/s", "peak", "GB/s", "memory");
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        shape s = shapes[i];
        if (!is_wanted_shape(&s, name))
            continue;
        int ok = run_shape(&d, &s, &peaks);
        s.narrow = !s.gates && (s.tokens == 1 || s.rows == 32000);
        if (!ok || (s.narrow && !run_shape(&d, &s, &peaks)))
            return 1;
    }
    d.ops->destroy(d.self);
    return 0;
}
