/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the kernels of device-cuda for matrix products in bfloat16 beside
 * each other on this GPU: the best tile of those of warps, those of groups of
 * warps with the bulk copy engine, and the kernel that device-cuda chooses.
 * Prints TFLOP/s of the fastest of 20 calls, with other data in the L2 cache
 * before each. Of products whose sums have segments, one product for each
 * segment is in the place of bulk copies, and the microseconds of each tile
 * follow.
 *
 *     bench-cuda-tiles [TOKENS]
 */
#include "bench/cuda_bench.h"

#include "plugins/device-cuda/product.h"

#define FLUSH (256ull << 20)

typedef struct shape {
    const char *name;
    uint32_t rows, cols;
    uint32_t segments; /* of x W^T in runs; 0: none */
} shape;

static const shape shapes[] = {
    { "0.5b qkv", 1152, 896, 0 },       { "0.5b o", 896, 896, 2 },
    { "0.5b gate_up", 9728, 896, 0 },   { "0.5b down", 896, 4864, 2 },
    { "1.5b gate_up", 17920, 1536, 0 }, { "1.5b down", 1536, 8960, 2 },
    { "7b qkv", 4608, 3584, 0 },        { "7b o", 3584, 3584, 4 },
    { "7b gate_up", 37888, 3584, 0 },   { "7b down", 3584, 18944, 4 },
    { "square", 8192, 8192, 0 },
};

/* Random bf16 values around 0, two in each float. */
static void *allocate_halves(bench *b, uint64_t count)
{
    uint32_t *host = static_cast<uint32_t *>(malloc(count / 2 * 4));
    float *p = allocate_floats(b, count / 2);
    require(host != NULL, "malloc");
    uint64_t x = 1;
    for (uint64_t i = 0; i < count / 2; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        uint32_t low = static_cast<uint32_t>(x >> 32) & 0xbfffu;
        uint32_t high = static_cast<uint32_t>(x >> 48) & 0xbfffu;
        /* Exponents from 2^-7 to 1. */
        low = (low & 0x83ffu) | 0x3c00u;
        high = (high & 0x83ffu) | 0x3c00u;
        host[i] = high << 16 | low;
    }
    copy_now(b, p, host, count / 2 * 4);
    free(host);
    return p;
}

/* The product of a form with the shape's matrix: x W^T, dy W, dy^T x. */
static product_gemm make_gemm(const shape *s, uint32_t form, uint32_t tokens,
                              const void *x, const void *w, float *y)
{
    product_gemm g = {};
    g.form = static_cast<uint8_t>(form);
    g.m = form == PRODUCT_TN ? s->rows : tokens;
    g.n = form == PRODUCT_NT ? s->rows : s->cols;
    g.k = form == PRODUCT_NT ? s->cols : form == PRODUCT_NN ? s->rows : tokens;
    g.a = x;
    g.b = w;
    g.a_row = form == PRODUCT_NT ? s->cols : s->rows;
    g.b_row = s->cols;
    g.c = y;
    g.c_row = g.n;
    if (form == PRODUCT_TN) {
        g.from = y;
        g.from_row = g.n;
    }
    return g;
}

/* Lowers *seconds to the time of a product, unless the kernel has none. */
template <typename Call>
static void keep_least(bench *b, double *seconds, Call call)
{
    if (call() != XRAY_OK)
        return;
    double s = least_seconds(b, [&]() { return call() == XRAY_OK; });
    *seconds = s < *seconds ? s : *seconds;
}

/* Whether product_tensor has a tile for the product: those for few tokens are
 * for NT, and in groups of warps for sums with segments; some have four. */
static int has_tile(const product_gemm *g, int tile)
{
    if (tile >= 3 && tile < 6)
        return 1;
    if (g->form != PRODUCT_NT || (tile < 3) != (g->segments == 0))
        return 0;
    return g->segments != 2 || (tile != 6 && tile != 8 && tile != 10);
}

/* Prints TFLOP/s of warps, bulk copies (or product_cut) and what is chosen, and
 * the time of each tile of warps if the sums have segments. */
static void measure_product(bench *b, const product_gemm *g)
{
    cuda_device *d = static_cast<cuda_device *>(b->self);
    double seconds[3] = { 1e9, 1e9, 1e9 };
    double each[PRODUCT_TENSOR_TILES];
    for (int t = 0; t < PRODUCT_TENSOR_TILES; t++) {
        each[t] = 1e9;
        if (!has_tile(g, t))
            continue;
        keep_least(b, &each[t], [&]() {
            return product_tensor(d, b->stream, "bench", g, t);
        });
        seconds[0] = each[t] < seconds[0] ? each[t] : seconds[0];
    }
    keep_least(b, &seconds[1], [&]() {
        return g->segments ? product_cut(d, b->stream, "bench", g)
                           : product_bulk(d, b->stream, "bench", g);
    });
    keep_least(b, &seconds[2],
               [&]() { return product_narrow(d, b->stream, "bench", g); });
    for (int i = 0; i < 3; i++)
        printf(" %8.1f", 2e-12 * g->m * g->n * g->k / seconds[i]);
    printf(" TFLOP/s%s", g->segments ? "; tile, us:" : "");
    for (int t = 0; g->segments && t < PRODUCT_TENSOR_TILES; t++)
        if (each[t] < 1e9)
            printf(" %d %.1f", t, 1e6 * each[t]);
    printf("\n");
    (void)fflush(stdout);
}

static void measure_shape(bench *b, const shape *s, uint32_t tokens)
{
    static const char *const forms[] = { "NT", "NN", "TN" };
    uint64_t wide = s->rows > s->cols ? s->rows : s->cols;
    uint64_t matrix = static_cast<uint64_t>(s->rows) * s->cols;
    uint64_t rows = static_cast<uint64_t>(tokens) * wide;
    void *x = allocate_halves(b, rows);
    void *w = allocate_halves(b, matrix > rows ? matrix : rows);
    float *y = allocate_floats(b, matrix > rows ? matrix : rows);
    for (uint32_t form = PRODUCT_NT; form <= PRODUCT_TN; form++) {
        product_gemm g = make_gemm(s, form, tokens, x, w, y);
        printf("%-13s %s   %5u", s->name, forms[form], tokens);
        measure_product(b, &g);
    }
    if (s->segments) {
        product_gemm g = make_gemm(s, PRODUCT_NT, tokens, x, w, y);
        g.segments = static_cast<uint8_t>(s->segments);
        g.piece[0] = g.k / s->segments;
        printf("%-13s NT/%u %5u", s->name, s->segments, tokens);
        measure_product(b, &g);
    }
    b->ops->free(b->self, x);
    b->ops->free(b->self, w);
    b->ops->free(b->self, y);
}

int main(int argc, char **argv)
{
    bench b;
    uint32_t tokens =
        argc > 1 ? static_cast<uint32_t>(strtoul(argv[1], NULL, 10)) : 4096;
    bench_open(&b, FLUSH);
    printf("shape, form, tokens: warps, bulk copies, as chosen\n");
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        measure_shape(&b, &shapes[i], tokens);
    b.ops->destroy(b.self);
    return 0;
}
