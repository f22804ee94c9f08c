/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures matrix products of device-cuda in bfloat16, with its own kernels and
 * with cuBLASLt, for the shapes of Qwen2.5 and Llama-3.1-8B: TFLOP/s, and GB/s
 * of the matrix. Calls are captured as one graph over enough matrices to exceed
 * the cache. For each shape it also prints whether the first row has the same
 * bits for every number of tokens, which batch invariance requires. It needs a
 * GPU.
 *
 *     bench-cuda_products plugins/device-cuda.so [0.5b|1.5b|7b|8b [bf16]]
 *
 * With bf16, activations are bf16, as in a model of that type.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <xray/device.h>
#include <xray/option.h>
#include <xray/plugin.h>

#include "bench/host.h"

#define CACHE_BYTES ((size_t)256 << 20)
#define MOST_MATRICES 64
#define MOST_TOKENS 4096

static void print_line(const xray_host *host, uint32_t level, const char *msg)
{
    (void)host;
    (void)level;
    (void)fprintf(stderr, "%s\n", msg);
}

static const xray_host bench_host = { .header = XRAY_HEADER(xray_host),
                                      .log = print_line,
                                      .fail = print_failure };

static double read_clock(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct device {
    const xray_device_ops *ops;
    void *self;
} device;

/* Options are set by name, because the config struct is private to the plugin.
 */
static int set_choice(const xray_component *c, char *config, const char *name,
                      const char *value)
{
    for (uint32_t i = 0; i < c->option_count; i++) {
        const xray_option *o = &c->options[i];
        if (strcmp(o->name, name) != 0)
            continue;
        for (const xray_choice *k = o->choices; k && k->name; k++)
            if (strcmp(k->name, value) == 0) {
                memcpy(config + o->offset, &k->value, sizeof(k->value));
                return 1;
            }
    }
    (void)fprintf(stderr, "no option %s = %s\n", name, value);
    return 0;
}

static int open_device(const xray_plugin *p, const char *products, device *d)
{
    const xray_component *c = p->components[0];
    uint64_t config[32] = { 0 };
    d->ops = c->ops;
    return c->config_size <= sizeof(config) &&
           set_choice(c, (char *)config, "precision", "bfloat16") &&
           set_choice(c, (char *)config, "products", products) &&
           d->ops->create(&bench_host, config, 1, &d->self) == XRAY_OK;
}

typedef struct shape {
    const char *model, *what;
    size_t rows, cols;
} shape;

static const shape shapes[] = {
    { "0.5b", "qkv", 1152, 896 },       { "0.5b", "o", 896, 896 },
    { "0.5b", "gate_up", 9728, 896 },   { "0.5b", "down", 896, 4864 },
    { "0.5b", "lm_head", 151936, 896 }, { "1.5b", "qkv", 2048, 1536 },
    { "1.5b", "o", 1536, 1536 },        { "1.5b", "gate_up", 17920, 1536 },
    { "1.5b", "down", 1536, 8960 },     { "7b", "qkv", 4608, 3584 },
    { "7b", "o", 3584, 3584 },          { "7b", "gate_up", 37888, 3584 },
    { "7b", "down", 3584, 18944 },      { "7b", "lm_head", 152064, 3584 },
    { "8b", "qkv", 6144, 4096 },        { "8b", "o", 4096, 4096 },
    { "8b", "gate_up", 28672, 4096 },   { "8b", "down", 4096, 14336 },
    { "8b", "lm_head", 128256, 4096 },
};

/* Matrices of one shape and workspace for the tokens. */
typedef struct workspace {
    device d;
    const shape *s;
    xray_weight *w[MOST_MATRICES];
    void *data[MOST_MATRICES];
    size_t count;
    float *x, *y, *dw;
    uint32_t dtype; /* of activations; gradients are fp32 */
} workspace;

static void *allocate_filled(const device *d, size_t bytes, int wide)
{
    void *p = NULL;
    char *host = malloc(bytes);
    xray_status s =
        host ? d->ops->alloc(d->self, "bench", XRAY_TAG_WORKSPACE, bytes, &p)
             : XRAY_E_NOMEM;
    uint32_t r = 1;
    for (size_t i = 0; s == XRAY_OK && i < bytes / (wide ? 4 : 2); i++) {
        r = r * 1664525u + 1013904223u;
        float f = ((float)(r >> 8) - 8388608.0f) * 0x1p-24f;
        uint32_t bits;
        memcpy(&bits, &f, sizeof(bits));
        uint16_t half = (uint16_t)(bits >> 16);
        memcpy(host + i * (wide ? 4 : 2), wide ? (void *)&f : (void *)&half,
               wide ? 4 : 2);
    }
    if (s == XRAY_OK)
        s = d->ops->copy(d->self, NULL, p, host, bytes, XRAY_COPY_TO_DEVICE);
    if (s == XRAY_OK)
        s = d->ops->sync(d->self, NULL);
    free(host);
    return s == XRAY_OK ? p : NULL;
}

static int open_workspace(workspace *r)
{
    size_t bytes = r->s->rows * r->s->cols * 2;
    size_t wide = r->s->rows > r->s->cols ? r->s->rows : r->s->cols;
    size_t tokens = r->s->rows > 100000 ? 512 : MOST_TOKENS;
    r->count = CACHE_BYTES / bytes + 1;
    r->count = r->count > MOST_MATRICES ? MOST_MATRICES : r->count;
    for (size_t i = 0; i < r->count; i++) {
        r->data[i] = allocate_filled(&r->d, bytes, 0);
        xray_weight_desc desc = { .header = XRAY_HEADER(xray_weight_desc),
                                  .data = r->data[i],
                                  .rows = r->s->rows,
                                  .cols = r->s->cols,
                                  .dtype = XRAY_BF16,
                                  .uses = XRAY_USE_NT | XRAY_USE_NN };
        if (!r->data[i] ||
            r->d.ops->weight_create(r->d.self, &desc, &r->w[i]) != XRAY_OK)
            return 0;
    }
    r->x = allocate_filled(&r->d, tokens * wide * 4, r->dtype == XRAY_F32);
    r->y = allocate_filled(&r->d, tokens * wide * 4, 1);
    r->dw = allocate_filled(&r->d, r->s->rows * r->s->cols * 4, 1);
    return r->x && r->y && r->dw;
}

static void close_workspace(workspace *r)
{
    for (size_t i = 0; i < r->count; i++) {
        r->d.ops->weight_destroy(r->d.self, r->w[i]);
        r->d.ops->free(r->d.self, r->data[i]);
    }
    r->d.ops->free(r->d.self, r->x);
    r->d.ops->free(r->d.self, r->y);
    r->d.ops->free(r->d.self, r->dw);
}

#define WEIGHT_GRAD 3u /* a kind besides XRAY_NT and XRAY_NN */

static xray_status enqueue_product(const workspace *r, uint32_t kind,
                                   size_t tokens, size_t i)
{
    int nt = kind == XRAY_NT;
    if (kind == WEIGHT_GRAD) {
        xray_matmul_grad op = { .header = XRAY_HEADER(xray_matmul_grad),
                                .tokens = { tokens, NULL },
                                .dy = r->y,
                                .x = r->x,
                                .dy_stride = r->s->rows,
                                .x_stride = r->s->cols,
                                .rows = r->s->rows,
                                .cols = r->s->cols,
                                .dw = r->dw,
                                .x_dtype = r->dtype };
        return r->d.ops->matmul_grad(r->d.self, NULL, &op);
    }
    xray_matmul op = { .header = XRAY_HEADER(xray_matmul),
                       .weight = r->w[i % r->count],
                       .tokens = { tokens, NULL },
                       .x = r->x,
                       .y = r->y,
                       .x_stride = nt ? r->s->cols : r->s->rows,
                       .y_stride = nt ? r->s->rows : r->s->cols,
                       .kind = kind,
                       .x_dtype = nt ? r->dtype : XRAY_F32,
                       .y_dtype = nt ? r->dtype : XRAY_F32 };
    return r->d.ops->matmul(r->d.self, NULL, &op);
}

/* Returns the seconds of one call, the best of five launches of a graph of many
 * calls; 0 on an error. */
static double time_calls(const workspace *r, uint32_t kind, size_t tokens)
{
    size_t calls = tokens >= 1024 ? 8 : MOST_MATRICES;
    xray_graph *graph = NULL;
    double best = 0;
    const xray_device_ops *ops = r->d.ops;
    xray_status s = enqueue_product(r, kind, tokens, 0);
    if (s == XRAY_OK)
        s = ops->graph_begin(r->d.self, NULL);
    for (size_t i = 0; s == XRAY_OK && i < calls; i++)
        s = enqueue_product(r, kind, tokens, i);
    if (s == XRAY_OK)
        s = ops->graph_end(r->d.self, NULL, &graph);
    for (int turn = 0; s == XRAY_OK && turn < 6; turn++) {
        s = ops->sync(r->d.self, NULL);
        double start = read_clock();
        if (s == XRAY_OK)
            s = ops->graph_launch(r->d.self, NULL, graph);
        if (s == XRAY_OK)
            s = ops->sync(r->d.self, NULL);
        double time = (read_clock() - start) / (double)calls;
        if (turn > 0 && (best == 0 || time < best))
            best = time;
    }
    if (graph)
        ops->graph_destroy(r->d.self, graph);
    return s == XRAY_OK ? best : 0;
}

static size_t count_row_bytes(const workspace *r, uint32_t kind)
{
    if (kind == XRAY_NT)
        return r->s->rows * (r->dtype == XRAY_BF16 ? 2 : 4);
    return r->s->cols * 4;
}

/* Copies the first row of a product with `tokens` tokens to the host; NULL on
 * an error. */
static void *read_first_row(const workspace *r, uint32_t kind, size_t tokens)
{
    size_t bytes = count_row_bytes(r, kind);
    void *row = malloc(bytes);
    if (row && enqueue_product(r, kind, tokens, 0) == XRAY_OK &&
        r->d.ops->copy(r->d.self, NULL, row, r->y, bytes, XRAY_COPY_TO_HOST) ==
            XRAY_OK &&
        r->d.ops->sync(r->d.self, NULL) == XRAY_OK)
        return row;
    free(row);
    return NULL;
}

static const char *compare_first_rows(const workspace *r, uint32_t kind,
                                      size_t most)
{
    size_t bytes = count_row_bytes(r, kind);
    void *alone = read_first_row(r, kind, 1);
    const char *answer = alone ? "same" : "error";
    for (size_t tokens = 2; alone && tokens <= most; tokens += tokens / 2 + 1) {
        void *row = read_first_row(r, kind, tokens);
        if (!row || memcmp(row, alone, bytes) != 0)
            answer = row ? "DIFFER" : "error";
        free(row);
    }
    free(alone);
    return answer;
}

static void measure_products(workspace *own, workspace *lt, uint32_t kind,
                             size_t tokens)
{
    static const char *const kinds[] = { "", "NT", "NN", "dW" };
    const shape *s = own->s;
    workspace *rooms[2] = { own, lt };
    double work = 2.0 * (double)tokens * (double)s->rows * (double)s->cols;
    double bytes = 2.0 * (double)s->rows * (double)s->cols;
    printf("%-5s %-8s %s %5zu", s->model, s->what, kinds[kind], tokens);
    for (int i = 0; i < 2; i++) {
        double t = time_calls(rooms[i], kind, tokens);
        printf("  %9.1f us %7.1f TFLOP/s %7.0f GB/s", t * 1e6,
               t > 0 ? work / t * 1e-12 : 0, t > 0 ? bytes / t * 1e-9 : 0);
    }
    printf("\n");
    (void)fflush(stdout);
}

static int measure_shape(const device d[2], const shape *s, uint32_t dtype)
{
    static const size_t tokens[] = { 1, 16, 64, 256, 4096 };
    workspace rooms[2] = { { .d = d[0], .s = s, .dtype = dtype },
                           { .d = d[1], .s = s, .dtype = dtype } };
    int good = open_workspace(&rooms[0]) && open_workspace(&rooms[1]);
    size_t most = s->rows > 100000 ? 512 : MOST_TOKENS;
    for (size_t i = 0; good && i < sizeof(tokens) / sizeof(*tokens); i++)
        measure_products(&rooms[0], &rooms[1], XRAY_NT,
                         tokens[i] < most ? tokens[i] : most);
    for (uint32_t kind = XRAY_NN; good && kind <= WEIGHT_GRAD; kind++)
        measure_products(&rooms[0], &rooms[1], kind, most);
    if (good)
        printf("%-5s %-8s rows: own NT %s, NN %s; cublaslt NT %s, NN %s\n",
               s->model, s->what, compare_first_rows(&rooms[0], XRAY_NT, most),
               compare_first_rows(&rooms[0], XRAY_NN, most),
               compare_first_rows(&rooms[1], XRAY_NT, most),
               compare_first_rows(&rooms[1], XRAY_NN, most));
    close_workspace(&rooms[0]);
    close_workspace(&rooms[1]);
    return good;
}

int main(int argc, char **argv)
{
    void *module = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    const xray_plugin *(*query)(uint32_t) = NULL;
    if (module)
        *(void **)&query = dlsym(module, "xray_plugin_query");
    if (!query) {
        (void)fprintf(stderr,
                      "usage: %s plugins/device-cuda.so [model [bf16]]\n%s\n",
                      argv[0], module || argc < 2 ? "" : dlerror());
        return 1;
    }
    device d[2];
    const xray_plugin *p = query(XRAY_ABI);
    if (!p || !open_device(p, "own", &d[0]) ||
        !open_device(p, "cublaslt", &d[1]))
        return 1;
    printf("model what    kind tokens: own kernels, then cublaslt\n");
    int good = 1;
    uint32_t dtype =
        argc > 3 && strcmp(argv[3], "bf16") == 0 ? XRAY_BF16 : XRAY_F32;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        if (argc < 3 || strcmp(argv[2], shapes[i].model) == 0)
            good = measure_shape(d, &shapes[i], dtype) && good;
    d[0].ops->destroy(d[0].self);
    d[1].ops->destroy(d[1].self);
    return good ? 0 : 1;
}
