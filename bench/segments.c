/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures what it costs to cut the summed index into segments, so that tensor
 * parallelism need not change the bits of a sum: products whose sums a layout
 * may cut, and log-sum-exps, as one chain and in segments.
 *
 *     bench-segments [threads [avx512|avx2|scalar|auto [rounds [model]]]]
 *
 * In every round all forms of a shape are timed, one after the other, in
 * another order than in the round before. The cost is the median over the
 * rounds of the ratio to the chain of the same round; its quartiles follow.
 * The chain is measured twice: `again` is the second one's cost, by which the
 * noise of the machine is seen.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xray/plugin.h>

#include "bench/host.h"
#include "bench/probe.h"
#include "plugins/device-cpu/device.h"

const xray_plugin *xray_plugin_query_device_cpu(uint32_t host_abi);

#define DECODE 0
#define FORWARD 1
#define BACKWARD 2
#define FUSED 3
#define LSE 4
#define CLASSES 5

static const char *const class_names[CLASSES] = {
    "o and down, 1 to 64 tokens", "o and down, 128 and 512 tokens",
    "input gradient of the head", "input gradients of qkv and gate/up",
    "log-sum-exp"
};

/* A sum of `depth` terms, `out` of them for each token. Without `parts` it is a
 * forward product, with them a gradient of the input. */
typedef struct shape {
    const char *model;
    const char *what;
    uint32_t segments; /* that its heads, ffn and vocabulary permit */
    size_t out;
    uint32_t parts;
    size_t part[3];
} shape;

static const shape shapes[] = {
    { "stories260K", "o", 4, 64, 0, { 64 } },
    { "stories260K", "down", 4, 64, 0, { 172 } },
    { "stories260K", "qkv dx", 4, 64, 3, { 64, 32, 32 } },
    { "stories260K", "gate/up dx", 4, 64, 2, { 172, 172 } },
    { "stories260K", "head dx", 4, 64, 1, { 512 } },
    { "stories260K", "lse", 4, 0, 0, { 512 } },
    { "35M", "o", 4, 512, 0, { 512 } },
    { "35M", "down", 4, 512, 0, { 1024 } },
    { "35M", "qkv dx", 4, 512, 3, { 512, 256, 256 } },
    { "35M", "gate/up dx", 4, 512, 2, { 1024, 1024 } },
    { "35M", "head dx", 4, 512, 1, { 32000 } },
    { "35M", "lse", 4, 0, 0, { 32000 } },
    { "0.5B", "o", 2, 896, 0, { 896 } },
    { "0.5B", "down", 2, 896, 0, { 4864 } },
    { "0.5B", "qkv dx", 2, 896, 3, { 896, 128, 128 } },
    { "0.5B", "gate/up dx", 2, 896, 2, { 4864, 4864 } },
    { "0.5B", "lse", 2, 0, 0, { 151936 } },
    { "square", "o", 8, 2048, 0, { 2048 } },
    { "square", "qkv dx", 8, 2048, 3, { 2048, 512, 512 } },
    { "8B", "o", 8, 4096, 0, { 4096 } },
    { "8B", "qkv dx", 8, 4096, 3, { 4096, 1024, 1024 } },
};

static const size_t few_tokens[] = { 1, 4, 16, 64, 128, 512 };
static const size_t many_tokens[] = { 128, 512 };

#define MOST_ROUNDS 401
#define FORMS 3                       /* the chain, the chain again, segments */
#define MOST_MATRICES 64              /* that take turns */
#define TURN_BYTES ((size_t)64 << 20) /* more than stays in a cache */
#define SAMPLE_SECONDS 2e-3

typedef struct lab {
    const xray_device_ops *ops;
    void *self;
    uint32_t threads;
    size_t rounds;
    double costs[CLASSES][64]; /* medians of the shapes of a class */
    size_t count[CLASSES];
} lab;

/* One shape with a number of tokens, and its data. */
typedef struct work {
    const shape *s;
    size_t tokens;
    size_t depth;
    xray_weight *matrix[MOST_MATRICES];
    size_t matrices;
    size_t next;
    float *w, *x, *y;
} work;

static float *allocate_floats(const lab *l, size_t n)
{
    void *p = NULL;
    if (l->ops->alloc(l->self, "bench", XRAY_TAG_WORKSPACE,
                      (n + 1) * sizeof(float), &p) != XRAY_OK)
        return NULL;
    float *f = p;
    for (size_t i = 0; i < n; i++)
        f[i] = (float)(i % 17) * 0.01f - 0.08f;
    return f;
}

static void close_work(const lab *l, work *w)
{
    for (size_t i = 0; i < w->matrices; i++)
        l->ops->weight_destroy(l->self, w->matrix[i]);
    l->ops->free(l->self, w->w);
    l->ops->free(l->self, w->x);
    l->ops->free(l->self, w->y);
}

static int open_work(const lab *l, work *w)
{
    const shape *s = w->s;
    w->depth = s->part[0] + s->part[1] + s->part[2];
    w->w = allocate_floats(l, w->depth * s->out);
    w->x = allocate_floats(l, w->tokens * w->depth);
    w->y = allocate_floats(l, w->tokens * s->out);
    if (!w->w || !w->x || !w->y)
        return 0;
    xray_weight_desc desc = { .header = XRAY_HEADER(xray_weight_desc),
                              .data = w->w,
                              .rows = s->parts ? w->depth : s->out,
                              .cols = s->parts ? s->out : w->depth,
                              .dtype = XRAY_F32,
                              .uses = s->parts ? XRAY_USE_NN : XRAY_USE_NT };
    size_t bytes = w->depth * s->out * sizeof(float);
    for (size_t sum = 0;
         s->out && sum < TURN_BYTES && w->matrices < MOST_MATRICES;
         sum += bytes)
        if (l->ops->weight_create(l->self, &desc, &w->matrix[w->matrices++]) !=
            XRAY_OK)
            return 0;
    return 1;
}

/* Calls the operator `calls` times in segments and returns the seconds of one
 * call; 0 if it fails. */
static double time_calls(const lab *l, work *w, uint32_t segments, size_t calls)
{
    const shape *s = w->s;
    cpu_product op = { .x = w->x,
                       .y = w->y,
                       .x_row = w->depth,
                       .y_row = s->out,
                       .tokens = w->tokens,
                       .residual = s->parts ? NULL : w->y,
                       .residual_row = s->out,
                       .kind = s->parts ? XRAY_NN : XRAY_NT,
                       .segments = segments };
    for (int i = 0; i < 3; i++)
        op.piece[i] = s->part[i] / segments;
    const cpu_device *d = l->self;
    double start = probe_seconds(l->threads);
    for (size_t i = 0; i < calls; i++) {
        cpu_lse lse;
        if (!s->out) {
            d->k->lse(w->x, w->depth, w->depth / segments, NULL, &lse);
            continue;
        }
        op.weight = w->matrix[w->next++ % w->matrices];
        if (cpu_product_run(l->self, "bench", &op) != XRAY_OK)
            return 0;
    }
    return (probe_seconds(l->threads) - start) / (double)calls;
}

/* ---- figures ------------------------------------------------------------ */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value below which `share` of the n values lie, which are sorted here. */
static double quantile_of(double *values, size_t n, double share)
{
    qsort(values, n, sizeof(*values), compare_doubles);
    return values[(size_t)(share * (double)(n - 1) + 0.5)];
}

static int class_of(const shape *s, size_t tokens)
{
    if (!s->out)
        return LSE;
    if (s->parts)
        return s->parts > 1 ? FUSED : BACKWARD;
    return tokens <= 64 ? DECODE : FORWARD;
}

static void print_shape(lab *l, const work *w, double (*seconds)[MOST_ROUNDS])
{
    const shape *s = w->s;
    double cost[FORMS][MOST_ROUNDS];
    for (size_t r = 0; r < l->rounds; r++)
        for (int f = 1; f < FORMS; f++)
            cost[f][r] = 100 * (seconds[f][r] / seconds[0][r] - 1);
    int class = class_of(s, w->tokens);
    double middle = quantile_of(cost[2], l->rounds, 0.5);
    double each = quantile_of(seconds[0], l->rounds, 0.5);
    l->costs[class][l->count[class]++] = middle;
    printf("%-12s %-10s %6zu %6zu %6zu %9.1f %3u %7.1f %7.1f %7.1f %7.1f\n",
           s->model, s->what, w->tokens, s->out, w->depth, each * 1e6,
           s->segments, quantile_of(cost[1], l->rounds, 0.5), middle,
           quantile_of(cost[2], l->rounds, 0.25),
           quantile_of(cost[2], l->rounds, 0.75));
    (void)fflush(stdout);
}

static int run_shape(lab *l, const shape *s, size_t tokens)
{
    static double seconds[FORMS][MOST_ROUNDS];
    work w = { .s = s, .tokens = tokens };
    int ok = open_work(l, &w);
    double each = ok ? time_calls(l, &w, s->segments, w.matrices + 1) : 0;
    each = each > 0 ? time_calls(l, &w, 1, w.matrices + 1) : 0;
    size_t calls = (size_t)(SAMPLE_SECONDS / (each + 1e-9)) + 1;
    for (size_t r = 0; each > 0 && r < l->rounds; r++)
        for (size_t i = 0; i < FORMS; i++) {
            size_t f = r % 2 ? FORMS - 1 - i : i;
            each = time_calls(l, &w, f == 2 ? s->segments : 1, calls);
            seconds[f][r] = each;
        }
    if (each > 0)
        print_shape(l, &w, seconds);
    close_work(l, &w);
    return each > 0;
}

/* Runs the shapes of a model, or all. */
static int run_shapes(lab *l, const char *model)
{
    int ok = 1;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        const shape *s = &shapes[i];
        if (model && strcmp(s->model, model) != 0)
            continue;
        const size_t *tokens = s->parts ? many_tokens : few_tokens;
        size_t n = s->parts ? sizeof(many_tokens) / sizeof(*tokens)
                            : sizeof(few_tokens) / sizeof(*tokens);
        for (size_t t = 0; ok && t < (s->out ? n : 1); t++)
            ok = run_shape(l, s, tokens[t]);
    }
    return ok;
}

static void print_classes(lab *l)
{
    printf("\n%-36s %6s %7s %7s %7s\n", "class", "shapes", "least", "median",
           "most");
    for (int c = 0; c < CLASSES; c++) {
        if (l->count[c] == 0)
            continue;
        printf("%-36s %6zu %7.1f %7.1f %7.1f\n", class_names[c], l->count[c],
               quantile_of(l->costs[c], l->count[c], 0),
               quantile_of(l->costs[c], l->count[c], 0.5),
               quantile_of(l->costs[c], l->count[c], 1));
    }
}

static int64_t find_isa(const char *name)
{
    static const char *const names[] = { "auto", "avx512", "avx2", "scalar" };
    for (int64_t i = 0; i < 4; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

int main(int argc, char **argv)
{
    static const xray_host host = { .header = XRAY_HEADER(xray_host),
                                    .fail = print_failure };
    static lab l;
    cpu_config config = { .isa = find_isa(argc > 2 ? argv[2] : "auto") };
    l.threads = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1;
    l.rounds = argc > 3 ? (size_t)strtoul(argv[3], NULL, 10) : 101;
    if (l.threads < 1 || config.isa < 0 || l.rounds < 1 ||
        l.rounds > MOST_ROUNDS) {
        (void)fprintf(stderr, "usage: bench-segments [threads "
                              "[avx512|avx2|scalar|auto [rounds [model]]]]\n");
        return 2;
    }
    l.ops = xray_plugin_query_device_cpu(XRAY_ABI)->components[0]->ops;
    if (l.ops->create(&host, &config, l.threads, &l.self) != XRAY_OK)
        return 1;
    printf("%-12s %-10s %6s %6s %6s %9s %3s %7s %7s %7s %7s\n", "model", "sum",
           "tokens", "out", "depth", "us", "G", "again %", "cost %", "25 %",
           "75 %");
    int ok = run_shapes(&l, argc > 4 ? argv[4] : NULL);
    if (ok)
        print_classes(&l);
    l.ops->destroy(l.self);
    return !ok;
}
