/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the products by groups of warps on a GPU of compute capability 9.0:
 * each has the bits of product_tensor and stores nothing beside its outputs,
 * and so has product_cut, which joins such products. Every case runs, whether
 * others fail or not, and the suite then prints the counts of each kernel and
 * form.
 */
#include "tests/cuda/products.h"

#define GUARD 1024 /* bytes before and after c */
#define POOL ((size_t)24 << 20)
#define SHOWN 3 /* failures that are printed per kernel and form */
#define FORMS 3
/* These are compared with a tile of product_tensor. */
#define TILE 0
#define BULK 1
#define CUT 2
#define KERNELS 3

static const char *const kernel_names[KERNELS] = { "product_tensor, tile 5",
                                                   "product_bulk",
                                                   "product_cut" };

static const char *const form_names[FORMS] = { "NT", "NN", "TN" };

typedef struct shape {
    uint32_t m, n, k;
} shape;

static const shape shapes[] = {
    { 256, 256, 256 }, { 64, 64, 16 },      { 64, 96, 40 },
    { 100, 200, 72 },  { 128, 256, 64 },    { 129, 263, 40 },
    { 128, 128, 192 }, { 300, 264, 896 },   { 300, 1152, 128 },
    { 257, 96, 1000 }, { 100, 200, 4864 },  { 1000, 264, 1000 },
    { 300, 512, 320 }, { 1000, 1152, 72 },  { 4096, 1000, 264 },
    { 4096, 256, 64 }, { 2100, 1152, 896 },
};
#define SHAPES (sizeof(shapes) / sizeof(*shapes))

/* Shapes of more outputs take every fourth epilogue. */
#define MANY_OUTPUTS 300000u

#define FROM_C 1
#define FROM_OTHER 2

typedef struct epilogue {
    const char *name;
    uint8_t from;
    uint8_t bias;
    uint8_t add;
    uint8_t act;
    uint8_t gates;
    uint8_t narrow;
    uint8_t live; /* parts in 4 of the tokens, plus 1: 0: no live */
    uint8_t odd;  /* 1: rows of c are not aligned */
} epilogue;

#define NARROW_BOTH (PRODUCT_NARROW_C | PRODUCT_NARROW_FROM)

static const epilogue epilogues[] = {
    { .name = "plain" },
    { .name = "from is c", .from = FROM_C },
    { .name = "from", .from = FROM_OTHER },
    { .name = "bias", .bias = 1 },
    { .name = "gates", .act = XRAY_ACT_SILU, .gates = 1 },
    { .name = "bf16 c", .narrow = PRODUCT_NARROW_C },
    { .name = "plain, odd rows", .odd = 1 },
    { .name = "from is c, both bf16", .from = FROM_C, .narrow = NARROW_BOTH },
    { .name = "live", .live = 3 },
    { .name = "gates, bias, bf16 c",
      .bias = 1,
      .act = XRAY_ACT_SILU,
      .gates = 1,
      .narrow = PRODUCT_NARROW_C },
    { .name = "activations, bias", .bias = 1, .act = XRAY_ACT_GELU_TANH },
    { .name = "bias, add", .bias = 1, .add = 1 },
    { .name = "from bf16", .from = FROM_OTHER, .narrow = PRODUCT_NARROW_FROM },
    { .name = "from is c, live, odd rows",
      .from = FROM_C,
      .live = 4,
      .odd = 1 },
    { .name = "add bf16, bf16 c, odd rows",
      .add = 1,
      .narrow = NARROW_BOTH,
      .odd = 1 },
    { .name = "activations, add, bf16",
      .add = 1,
      .act = XRAY_ACT_SILU,
      .narrow = NARROW_BOTH },
    { .name = "gates, live", .act = XRAY_ACT_GELU_TANH, .gates = 1, .live = 2 },
    { .name = "live is 0", .live = 1 },
    { .name = "from, bf16 c, live",
      .from = FROM_OTHER,
      .narrow = PRODUCT_NARROW_C,
      .live = 2 },
};
#define EPILOGUES (sizeof(epilogues) / sizeof(*epilogues))

typedef struct count {
    uint32_t same, refused, failed;
} count;

typedef struct suite {
    cuda_device *d;
    uint16_t *host; /* [POOL] random bf16; two of them are a float */
    uint16_t *pool; /* [dev] the same */
    int32_t *live;  /* [dev] */
    char *c;        /* [dev] */
    char *image;    /* c before a product */
    char *want;
    char *got;
    size_t room; /* bytes of each of these */
    int lost;    /* 1: the GPU no longer answers */
    count counts[KERNELS][FORMS];
} suite;

/* A product with its memory. */
typedef struct product {
    product_gemm g;
    const shape *s;
    const epilogue *e;
    size_t bytes; /* with the guards */
} product;

/* ---- memory -------------------------------------------------------------- */

static void *device_bytes(suite *t, size_t bytes)
{
    void *p = NULL;
    must(cuda_ops()->alloc(t->d, "test", XRAY_TAG_WORKSPACE, bytes, &p));
    return p;
}

static xray_status copy_now(suite *t, void *to, const void *from, size_t bytes,
                            uint32_t kind)
{
    xray_status s = cuda_ops()->copy(t->d, NULL, to, from, bytes, kind);
    return s == XRAY_OK ? cuda_ops()->sync(t->d, NULL) : s;
}

static void *host_bytes(size_t bytes)
{
    void *p = calloc(bytes, 1);
    assert_non_null(p);
    return p;
}

/* Values of either sign from 2^-9 to 2, and a few zeros. */
static void fill_pool(suite *t)
{
    uint64_t x = 88172645463325252u;
    for (size_t i = 0; i < POOL; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        uint32_t r = (uint32_t)(x >> 32);
        uint32_t exponent = r % 64 == 0 ? 0 : 118 + (r >> 8) % 10;
        uint32_t fraction = exponent ? r >> 16 & 0x7f : 0;
        t->host[i] = (uint16_t)((r >> 31) << 15 | exponent << 7 | fraction);
    }
}

static void open_suite(suite *t)
{
    cuda_config config = { .precision = CUDA_BFLOAT16 };
    void *self = NULL;
    *t = (suite){ .room = (size_t)24 << 20 };
    if (cuda_ops()->create(&bench_host, &config, 1, &self) != XRAY_OK) {
        (void)printf("skipped: %s\n", last_failure);
        (void)fflush(stdout);
        _exit(77);
    }
    t->d = self;
    t->host = host_bytes(POOL * sizeof(uint16_t));
    t->image = host_bytes(t->room);
    t->want = host_bytes(t->room);
    t->got = host_bytes(t->room);
    t->pool = device_bytes(t, POOL * sizeof(uint16_t));
    t->c = device_bytes(t, t->room);
    t->live = device_bytes(t, sizeof(int32_t));
    fill_pool(t);
    must(copy_now(t, t->pool, t->host, POOL * sizeof(uint16_t),
                  XRAY_COPY_TO_DEVICE));
}

static void close_suite(suite *t)
{
    if (!t->lost) {
        cuda_ops()->free(t->d, t->pool);
        cuda_ops()->free(t->d, t->c);
        cuda_ops()->free(t->d, t->live);
        destroy_cuda(t->d);
    }
    free(t->host);
    free(t->image);
    free(t->want);
    free(t->got);
}

/* ---- a case -------------------------------------------------------------- */

static size_t width_of_c(const product *p)
{
    return p->g.narrow & PRODUCT_NARROW_C ? 2 : 4;
}

static size_t columns_of_c(const product *p)
{
    return p->g.gates ? p->g.n / 2 : p->g.n;
}

/* Rows of operands are longer than their width, and what follows is not 0. */
static void set_operands(suite *t, product *p)
{
    product_gemm *g = &p->g;
    uint32_t a_width = g->form == PRODUCT_TN ? g->m : g->k;
    uint32_t b_width = g->form == PRODUCT_NT ? g->k : g->n;
    size_t a_rows = g->form == PRODUCT_TN ? g->k : g->m;
    size_t b_rows = g->form == PRODUCT_NT ? g->n : g->k;
    g->a_row = product_row(a_width) + 8;
    g->b_row = product_row(b_width) + 16;
    g->a = t->pool;
    g->b = t->pool + POOL / 2;
    assert_true(a_rows * g->a_row <= POOL / 2);
    assert_true(b_rows * g->b_row <= POOL / 2);
}

static void set_epilogue(suite *t, product *p)
{
    const epilogue *e = p->e;
    product_gemm *g = &p->g;
    g->act = e->act;
    g->gates = e->gates;
    g->narrow = e->narrow | PRODUCT_NARROW_A;
    g->c = t->c + GUARD;
    g->c_row = columns_of_c(p) + (e->odd ? 5 - g->n % 2 : 8 + g->n % 2);
    g->from_row = e->from == FROM_C ? g->c_row : g->n + 3;
    const void *other = t->pool + POOL / 4;
    if (e->from)
        g->from = e->from == FROM_C ? g->c : other;
    if (e->bias)
        g->bias = (const float *)(const void *)(t->pool + POOL / 8);
    if (e->add)
        g->add = other;
    assert_true(g->m * g->from_row * 2 <= POOL * 3 / 4);
    p->bytes = 2 * GUARD + g->m * g->c_row * width_of_c(p);
    assert_true(p->bytes <= t->room);
    memset(t->image, 0xff, p->bytes); /* NaN in both types */
    if (e->from == FROM_C)
        memcpy(t->image + GUARD, t->host + POOL / 3, p->bytes - 2 * GUARD);
}

static void set_live(suite *t, product *p)
{
    uint32_t tokens = p->g.form == PRODUCT_TN ? p->g.k : p->g.m;
    int32_t live = 3 + (int32_t)(tokens * (p->e->live - 1u) / 4);
    if (!p->e->live)
        return;
    p->g.live = t->live;
    p->g.live_from = 3;
    must(copy_now(t, t->live, &live, sizeof(live), XRAY_COPY_TO_DEVICE));
}

/* Runs a product on fresh outputs and returns them in `to`. */
static xray_status run_product(suite *t, const product *p, int kernel,
                               uint32_t tile, char *to)
{
    must(copy_now(t, t->c, t->image, p->bytes, XRAY_COPY_TO_DEVICE));
    cudaStream_t stream = cuda_stream(t->d, NULL);
    xray_status s =
        kernel == TILE
            ? product_tensor(t->d, stream, "product_tensor", &p->g, (int)tile)
        : kernel == BULK ? product_bulk(t->d, stream, "product_bulk", &p->g)
                         : product_cut(t->d, stream, "product_cut", &p->g);
    if (s != XRAY_OK)
        return s;
    s = cuda_ops()->sync(t->d, NULL);
    t->lost = s != XRAY_OK;
    if (s == XRAY_OK)
        s = copy_now(t, to, t->c, p->bytes, XRAY_COPY_TO_HOST);
    return s;
}

static double value_at(const product *p, const char *c, size_t at)
{
    uint16_t h;
    float f;
    if (width_of_c(p) == 2) {
        memcpy(&h, c + GUARD + at * 2, sizeof(h));
        return (double)from_bf16(h);
    }
    memcpy(&f, c + GUARD + at * 4, sizeof(f));
    return (double)f;
}

/* Prints where t->got differs from t->want. */
static void print_difference(const suite *t, const product *p)
{
    size_t width = width_of_c(p);
    size_t all = p->g.m * p->g.c_row;
    size_t first = all;
    size_t last = 0;
    size_t wrong = 0;
    for (size_t i = 0; i < all; i++)
        if (memcmp(t->got + GUARD + i * width, t->want + GUARD + i * width,
                   width) != 0) {
            first = first < i ? first : i;
            last = i;
            wrong++;
        }
    if (wrong == 0) {
        (void)printf("bytes outside c\n");
        return;
    }
    (void)printf("%zu of %zu outputs, first row %zu col %zu: %a, not %a; last "
                 "row %zu col %zu\n",
                 wrong, p->g.m * columns_of_c(p), first / p->g.c_row,
                 first % p->g.c_row, value_at(p, t->got, first),
                 value_at(p, t->want, first), last / p->g.c_row,
                 last % p->g.c_row);
}

static int guards_hold(const suite *t, const product *p, const char *c)
{
    return memcmp(c, t->image, GUARD) == 0 &&
           memcmp(c + p->bytes - GUARD, t->image + p->bytes - GUARD, GUARD) ==
               0;
}

/* Compares the outputs of one kernel with those of product_tensor's tile 3. */
static void check_kernel(suite *t, const product *p, int kernel)
{
    count *n = &t->counts[kernel][p->g.form];
    xray_status s = run_product(t, p, kernel, 5, t->got);
    if (s == XRAY_E_UNSUPPORTED) {
        n->refused++;
        return;
    }
    if (s == XRAY_OK && memcmp(t->got, t->want, p->bytes) == 0 &&
        guards_hold(t, p, t->got)) {
        n->same++;
        return;
    }
    if (n->failed++ >= SHOWN && !t->lost)
        return;
    (void)printf("FAILED %s, %s, %u x %u x %u, %s: ", kernel_names[kernel],
                 form_names[p->g.form], p->g.m, p->g.n, p->g.k, p->e->name);
    if (s == XRAY_OK)
        print_difference(t, p);
    else
        (void)printf("status %d: %s\n", (int)s, last_failure);
    (void)fflush(stdout);
}

/* Sets up a product and computes it by product_tensor's tile 3. Returns 0 if
 * that is not possible any more. */
static int compute_wanted(suite *t, product *p)
{
    set_operands(t, p);
    set_epilogue(t, p);
    set_live(t, p);
    xray_status s = run_product(t, p, TILE, 3, t->want);
    if (s != XRAY_OK) {
        (void)printf("product_tensor gave %d: %s\n", (int)s, last_failure);
        t->lost = 1;
    }
    return !t->lost;
}

static void check_case(suite *t, uint32_t form, size_t i, size_t j)
{
    product p = { .g = { .form = (uint8_t)form,
                         .m = shapes[i].m,
                         .n = shapes[i].n,
                         .k = shapes[i].k,
                         .b_dtype = XRAY_BF16 },
                  .s = &shapes[i],
                  .e = &epilogues[j] };
    int many = shapes[i].m * shapes[i].n > MANY_OUTPUTS;
    if (p.e->gates && (form != PRODUCT_NT || p.g.n % 2))
        return;
    if (many && (i + j + form) % 4 != 0)
        return;
    if (compute_wanted(t, &p) && (i + j) % 5 == 0)
        check_kernel(t, &p, TILE);
    if (!t->lost)
        check_kernel(t, &p, BULK);
}

/* Compares sums of the same terms in `segments` pieces. */
static void check_segments(suite *t, uint32_t form, size_t i, size_t j,
                           uint32_t segments)
{
    product p = { .g = { .form = (uint8_t)form,
                         .m = shapes[i].m,
                         .n = shapes[i].n,
                         .k = shapes[i].k,
                         .b_dtype = XRAY_BF16,
                         .segments = (uint8_t)segments,
                         .piece = { shapes[i].k / segments } },
                  .s = &shapes[i],
                  .e = &epilogues[j] };
    if (p.e->from || p.e->act || p.g.k % (8 * segments))
        return;
    if (compute_wanted(t, &p))
        check_kernel(t, &p, CUT);
}

/* Skips the suite if the device has no product_bulk for the first shape. */
static void require_bulk(suite *t)
{
    product p = { .g = { .form = PRODUCT_NT,
                         .m = shapes[0].m,
                         .n = shapes[0].n,
                         .k = shapes[0].k,
                         .b_dtype = XRAY_BF16 },
                  .s = &shapes[0],
                  .e = &epilogues[0] };
    set_operands(t, &p);
    set_epilogue(t, &p);
    if (run_product(t, &p, BULK, 0, t->got) != XRAY_E_UNSUPPORTED)
        return;
    (void)printf("skipped: this device has no product_bulk\n");
    (void)fflush(stdout);
    _exit(77);
}

static uint32_t print_counts(const suite *t)
{
    uint32_t failed = 0;
    for (int v = 0; v < KERNELS; v++)
        for (int f = 0; f < FORMS; f++) {
            const count *n = &t->counts[v][f];
            failed += n->failed;
            if (n->same + n->refused + n->failed > 0)
                (void)printf("%s, %s: %u same, %u refused, %u failed\n",
                             kernel_names[v], form_names[f], n->same,
                             n->refused, n->failed);
        }
    (void)fflush(stdout);
    return failed;
}

static void product_bulk_has_the_bits_of_product_tensor(void **state)
{
    suite t;
    (void)state;
    open_suite(&t);
    require_bulk(&t);
    for (uint32_t form = 0; form < FORMS && !t.lost; form++)
        for (size_t i = 0; i < SHAPES && !t.lost; i++)
            for (size_t j = 0; j < EPILOGUES && !t.lost; j++)
                check_case(&t, form, i, j);
    for (uint32_t form = 0; form < PRODUCT_TN && !t.lost; form++)
        for (size_t i = 0; i < SHAPES && !t.lost; i++)
            for (size_t j = 0; j < EPILOGUES && !t.lost; j++)
                check_segments(&t, form, i, j, 2u << (i + j) % 3);
    uint32_t failed = print_counts(&t);
    int lost = t.lost;
    close_suite(&t);
    assert_int_equal(lost, 0);
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(product_bulk_has_the_bits_of_product_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
