/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses algorithms of cuBLASLt for the shapes of products.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/device-cuda/blas_library.h"

#ifdef BLAS_HEADER

/* Algorithms that are requested at a time. */
#define CHOICES 16

/* ---- candidates ---------------------------------------------------------- */

/* One shape that is probed, and the algorithms that may compute it. */
typedef struct blas_search {
    cuda_device *d;
    product_gemm g; /* of the probe */
    cublasLtMatmulHeuristicResult_t found[2 * CHOICES];
    uint32_t count;
} blas_search;

/* An attribute of an algorithm; -1 if the library does not report it. */
static long read_algorithm(const cuda_blas *b, const cublasLtMatmulAlgo_t *a,
                           cublasLtMatmulAlgoConfigAttributes_t what)
{
    uint32_t wide = 0;
    uint16_t half = 0;
    size_t written = 0;
    if (blas_succeeded(b->cublasLtMatmulAlgoConfigGetAttribute_at(
            a, what, &wide, sizeof(wide), &written)))
        return (long)wide;
    if (blas_succeeded(b->cublasLtMatmulAlgoConfigGetAttribute_at(
            a, what, &half, sizeof(half), &written)))
        return (long)half;
    return -1;
}

/* Whether the algorithm may sum the complete index in one piece. What it does
 * not report, the probe finds out. */
static int sums_undivided(const cuda_blas *b, const cublasLtMatmulAlgo_t *a)
{
    return (int32_t)read_algorithm(b, a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) <=
               1 &&
           read_algorithm(b, a, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) <= 0;
}

static int is_found(const blas_search *s, const cublasLtMatmulAlgo_t *a)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (memcmp(&s->found[i].algo, a, sizeof(*a)) == 0)
            return 1;
    return 0;
}

/* Operands are 16-byte aligned, not 256-byte aligned as is the default. */
static int set_wishes(const cuda_blas *b, cublasLtMatmulPreference_t wish,
                      int undivided)
{
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
    };
    uint64_t workspace = WORKSPACE_BYTES;
    uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE;
    uint32_t bytes = 16;
    int set = blas_succeeded(b->cublasLtMatmulPreferenceSetAttribute_at(
        wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
        sizeof(workspace)));
    for (size_t i = 0; set && i < sizeof(aligned) / sizeof(*aligned); i++)
        set = blas_succeeded(b->cublasLtMatmulPreferenceSetAttribute_at(
            wish, aligned[i], &bytes, sizeof(bytes)));
    if (set && undivided)
        set = blas_succeeded(b->cublasLtMatmulPreferenceSetAttribute_at(
            wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &none,
            sizeof(none)));
    return set;
}

/* Adds the library's proposals, the fastest first. */
static void add_candidates(blas_search *s, int undivided)
{
    const cuda_blas *b = s->d->blas;
    cublasLtMatmulHeuristicResult_t list[CHOICES];
    cublasLtMatmulPreference_t wish = NULL;
    blas_call c = {};
    int count = 0;
    int asked = blas_create_call(b, &s->g, s->g.m, &c) &&
                blas_succeeded(b->cublasLtMatmulPreferenceCreate_at(&wish)) &&
                set_wishes(b, wish, undivided) &&
                blas_succeeded(b->cublasLtMatmulAlgoGetHeuristic_at(
                    b->handle, c.what, c.weight, c.x, c.y, c.y, wish, CHOICES,
                    list, &count));
    for (int i = 0; asked && i < count; i++)
        if (blas_succeeded(list[i].state) &&
            list[i].workspaceSize <= WORKSPACE_BYTES &&
            sums_undivided(b, &list[i].algo) && !is_found(s, &list[i].algo))
            s->found[s->count++] = list[i];
    if (wish)
        (void)b->cublasLtMatmulPreferenceDestroy_at(wish);
    blas_destroy_call(b, &c);
}

/* Runs a candidate over rows of y that hold what its sums may start from. */
static xray_status run_candidate(void *self, uint32_t candidate,
                                 uint32_t tokens)
{
    blas_search *s = (blas_search *)self;
    const cuda_device *d = s->d;
    product_gemm g = s->g;
    g.m = tokens;
    const blas_values y = { g.c,
                            g.c_row,
                            tokens,
                            g.n,
                            BLAS_PERIOD,
                            3,
                            (uint32_t)blas_is_narrow(&g),
                            BLAS_PLAIN };
    xray_status status = blas_fill(d, d->stream, &y);
    if (status != XRAY_OK)
        return status;
    if (blas_succeeded(blas_call_library(d->blas, d->stream, &g,
                                         &s->found[candidate].algo)))
        return XRAY_OK;
    (void)cudaGetLastError(); /* or the next launch would report it */
    return XRAY_E_UNSUPPORTED;
}

/* ---- trace --------------------------------------------------------------- */

/* Microseconds of a call; 0 if it fails. */
static double time_candidate(blas_search *s, uint32_t i, uint32_t tokens)
{
    product_gemm g = s->g;
    cudaEvent_t at[2] = { NULL, NULL };
    float ms = 0;
    int good = cudaEventCreate(&at[0]) == cudaSuccess &&
               cudaEventCreate(&at[1]) == cudaSuccess;
    g.m = tokens;
    for (int turn = 0; good && turn < 11; turn++) {
        if (turn == 1)
            good = cudaEventRecord(at[0], s->d->stream) == cudaSuccess;
        good = good && blas_succeeded(blas_call_library(
                           s->d->blas, s->d->stream, &g, &s->found[i].algo));
    }
    good = good && cudaEventRecord(at[1], s->d->stream) == cudaSuccess &&
           cudaEventSynchronize(at[1]) == cudaSuccess &&
           cudaEventElapsedTime(&ms, at[0], at[1]) == cudaSuccess;
    for (int e = 0; e < 2; e++)
        if (at[e])
            (void)cudaEventDestroy(at[e]);
    (void)cudaGetLastError();
    return good ? (double)ms * 100.0 : 0.0;
}

/* The library's own check for a number of tokens. */
static int check_candidate(const blas_search *s, uint32_t i, uint32_t tokens)
{
    const cuda_blas *b = s->d->blas;
    cublasLtMatmulHeuristicResult_t r;
    blas_call c = {};
    int status = -1;
    if (blas_create_call(b, &s->g, tokens, &c))
        status = (int)b->cublasLtMatmulAlgoCheck_at(
            b->handle, c.what, c.weight, c.x, c.y, c.y, &s->found[i].algo, &r);
    blas_destroy_call(b, &c);
    return status;
}

/* Whether the own kernels have the bits that are kept. */
static int has_own_bits(blas_search *s, const blas_probe *p)
{
    product_gemm g = s->g;
    int same = 0;
    g.m = BLAS_PERIOD;
    const blas_values y = { g.c,
                            g.c_row,
                            g.m,
                            g.n,
                            BLAS_PERIOD,
                            3,
                            (uint32_t)blas_is_narrow(&g),
                            BLAS_PLAIN };
    return blas_fill(s->d, p->stream, &y) == XRAY_OK &&
           product_tensor(s->d, p->stream, "products", &g, PRODUCT_AUTO) ==
               XRAY_OK &&
           blas_compare(p, BLAS_PERIOD, &same) == XRAY_OK && same;
}

/* Prints what each candidate is and does, whether it is chosen or not. */
static void trace_candidates(blas_search *s, const blas_probe *p)
{
    const cuda_blas *b = s->d->blas;
    static const uint32_t far[] = { BLAS_TOKENS, 16384 };
    (void)fprintf(stderr,
                  "cublaslt %s n %u k %u start %u narrow %d: %u candidates, %u "
                  "tokens\n",
                  s->g.form == PRODUCT_NT ? "NT" : "NN", s->g.n, s->g.k,
                  s->g.from   ? FROM_C
                  : s->g.bias ? FROM_BIAS
                              : FROM_ZERO,
                  blas_is_narrow(&s->g), s->count, p->tokens);
    for (uint32_t i = 0; i < s->count; i++) {
        const cublasLtMatmulHeuristicResult_t *f = &s->found[i];
        (void)fprintf(stderr, "  %2u:", i);
        for (int a = CUBLASLT_ALGO_CONFIG_ID;
             a <= CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID; a++) {
            static const char *const names[] = {
                "id",     "tile",   "split", "scheme",  "swizzle",
                "custom", "stages", "inner", "cluster",
            };
            (void)fprintf(
                stderr, " %s %ld", names[a],
                read_algorithm(b, &f->algo,
                               (cublasLtMatmulAlgoConfigAttributes_t)a));
        }
        (void)fprintf(stderr, " workspace %zu waves %.2f", f->workspaceSize,
                      (double)f->wavesCount);
        for (uint32_t t = 0; t < BLAS_TRIALS + 2; t++) {
            uint32_t m = t < BLAS_TRIALS ? blas_trial_tokens(p, t)
                                         : far[t - BLAS_TRIALS];
            int status = m ? check_candidate(s, i, m) : 0;
            blas_verdict v = { 1, 0, m };
            if (m && t < BLAS_TRIALS &&
                blas_try(p, i, m, t == 0 && !p->given, &v) != XRAY_OK)
                v.refused = 1;
            if (status)
                (void)fprintf(stderr, " [M %u: check %d]", m, status);
            if (!v.holds)
                (void)fprintf(stderr, " [M %u: %s]", m,
                              v.refused ? "fails" : "differs");
            if (t == 0)
                (void)fprintf(stderr, " own bits %s",
                              has_own_bits(s, p) ? "same" : "differ");
        }
        (void)fprintf(stderr, " us: M 1 %.1f, 64 %.1f, %u %.1f\n",
                      time_candidate(s, i, 1), time_candidate(s, i, 64),
                      p->tokens, time_candidate(s, i, p->tokens));
    }
}

/* ---- the probe ----------------------------------------------------------- */

/* Memory of the probes of one weight in one form. */
typedef struct blas_room {
    uint16_t *w; /* rows as products read them */
    uint16_t *x;
    void *y;
    uint16_t *kept;
    float *bias;
    uint32_t *differ;
    char *own;
    uint32_t tokens;
} blas_room;

static uint64_t align_bytes(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Shapes with long rows are probed with less tokens, and calls are cut. */
static uint32_t count_probe_tokens(uint32_t n, uint32_t k)
{
    uint64_t x = product_row(k) * sizeof(uint16_t);
    uint64_t y = product_row(n) * sizeof(float);
    uint64_t most = (BLAS_PROBE_MIB << 20) / (x > y ? x : y) / 256 * 256;
    return most > BLAS_TOKENS ? BLAS_TOKENS : most < 256 ? 256 : (uint32_t)most;
}

/* `w`: memory for the matrix, or NULL. */
static xray_status open_room(cuda_device *d, const blas_shape *s, uint16_t *w,
                             blas_room *r)
{
    int nt = s->form == PRODUCT_NT;
    uint64_t w_row = product_row(nt ? s->k : s->n);
    uint32_t w_rows = nt ? s->n : s->k;
    uint64_t y_row = product_row(s->n) * sizeof(float);
    r->tokens = count_probe_tokens(s->n, s->k);
    const uint64_t sizes[] = {
        w ? 0 : align_bytes(w_rows * w_row * sizeof(uint16_t)),
        align_bytes(r->tokens * product_row(s->k) * sizeof(uint16_t)),
        align_bytes(r->tokens * y_row),
        align_bytes(BLAS_PERIOD * y_row),
        align_bytes(s->n * sizeof(float)),
        align_bytes(sizeof(*r->differ)),
    };
    char *at[6];
    uint64_t bytes = 0;
    for (int i = 0; i < 6; i++)
        bytes += sizes[i];
    r->own = (char *)cuda_alloc(d, XRAY_TAG_WORKSPACE, bytes);
    if (!r->own)
        return cuda_fail(d, XRAY_E_NOMEM, "products",
                         "products = cublaslt: no memory of %llu bytes for the "
                         "probe of a matrix of %u x %u",
                         (unsigned long long)bytes, w_rows, nt ? s->k : s->n);
    at[0] = r->own;
    for (int i = 1; i < 6; i++)
        at[i] = at[i - 1] + sizes[i - 1];
    r->w = w ? w : (uint16_t *)(void *)at[0];
    r->x = (uint16_t *)(void *)at[1];
    r->y = at[2];
    r->kept = (uint16_t *)(void *)at[3];
    r->bias = (float *)(void *)at[4];
    r->differ = (uint32_t *)(void *)at[5];
    const blas_values values[] = {
        { r->w, w_row, w_rows, nt ? s->k : s->n, UINT32_MAX, 0, 1,
          nt ? BLAS_W_NT : BLAS_W_NN },
        { r->x, product_row(s->k), r->tokens, s->k, BLAS_PERIOD, 1, 1, BLAS_X },
        { r->bias, s->n, 1, s->n, 1, 2, 0, BLAS_PLAIN },
    };
    xray_status status = XRAY_OK;
    for (int i = 0; i < 3 && status == XRAY_OK; i++)
        status = blas_fill(d, d->stream, &values[i]);
    return status;
}

static product_gemm make_gemm(const blas_room *r, const blas_shape *s)
{
    product_gemm g = {};
    g.a = r->x;
    g.b = r->w;
    g.c = r->y;
    g.bias = s->start == FROM_BIAS ? r->bias : NULL;
    g.from = s->start == FROM_C ? r->y : NULL;
    g.form = (uint8_t)s->form;
    g.m = r->tokens;
    g.n = s->n;
    g.k = s->k;
    g.b_dtype = XRAY_BF16;
    g.narrow = (uint8_t)(PRODUCT_NARROW_A | s->narrow);
    g.a_row = product_row(s->k);
    g.b_row = product_row(s->form == PRODUCT_NT ? s->k : s->n);
    g.c_row = blas_dense_row(&g);
    g.from_row = g.c_row;
    return g;
}

static void log_choice(const cuda_device *d, const blas_shape *s,
                       const char *result)
{
    static const char *const starts[] = { "", ", added to y", ", with a bias" };
    char text[256];
    (void)snprintf(text, sizeof(text),
                   "products = cublaslt: %s, n %u, k %u, y in %s%s: %s",
                   s->form == PRODUCT_NT ? "NT" : "NN", s->n, s->k,
                   s->narrow ? "bf16" : "fp32", starts[s->start], result);
    blas_log(d, XRAY_LOG_INFO, text);
}

static void log_verdict(const cuda_device *d, const blas_shape *s, uint32_t at,
                        uint32_t count, const blas_verdict *why)
{
    char text[160];
    if (at < count)
        (void)snprintf(
            text, sizeof(text),
            "bits hold for all numbers of tokens, algorithm %u of %u", at + 1,
            count);
    else if (count == 0)
        (void)snprintf(text, sizeof(text),
                       "it has no algorithm, the own kernels compute it");
    else
        (void)snprintf(text, sizeof(text),
                       "%s %u tokens in the first of %u algorithms and none "
                       "holds, the own kernels compute it",
                       why->refused ? "it refuses" : "bits differ at",
                       why->tokens, count);
    log_choice(d, s, text);
}

/* Makes the rows to be kept those of `plain`, rounded once. Products with other
 * epilogues sum in fp32, so y in bf16 has to have the same sums. */
static xray_status keep_rounded(cuda_device *d, const blas_room *r,
                                const blas_shape *plain)
{
    product_gemm g = make_gemm(r, plain);
    product_gemm low = g;
    low.narrow |= PRODUCT_NARROW_C;
    g.m = BLAS_PERIOD;
    cublasStatus_t s =
        blas_call_library(d->blas, d->stream, &g, &plain->algorithm);
    if (!blas_succeeded(s))
        return cuda_fail(d, XRAY_E_DEVICE, "products",
                         "cuBLASLt failed with status %d in a probe", (int)s);
    return blas_round(d, d->stream, (const float *)g.c, g.c_row, r->kept,
                      blas_dense_row(&low), BLAS_PERIOD, g.n);
}

/* Chooses the algorithm of a shape. `plain`: the same shape with sums in fp32
 * that start from 0, for y in bf16. */
static xray_status probe_shape(cuda_device *d, const blas_room *r,
                               const blas_shape *plain, blas_shape *shape)
{
    blas_search *s = (blas_search *)calloc(1, sizeof(*s));
    blas_verdict why = {};
    uint32_t at = 0;
    xray_status status = XRAY_OK;
    if (!s)
        return cuda_fail(d, XRAY_E_NOMEM, "products", "no memory");
    s->d = d;
    s->g = make_gemm(r, shape);
    add_candidates(s, 1);
    add_candidates(s, 0);
    uint64_t wide = blas_is_narrow(&s->g) ? 1 : 2;
    const blas_probe p = {
        d,
        d->stream,
        s,
        run_candidate,
        (uint16_t *)r->y,
        r->kept,
        r->differ,
        s->g.c_row * wide,
        s->g.n * wide,
        r->tokens,
        s->count,
        shape->narrow != 0,
    };
    if (p.given)
        status = keep_rounded(d, r, plain);
    if (status == XRAY_OK && getenv("XRAY_CUBLASLT_TRACE"))
        trace_candidates(s, &p);
    if (status == XRAY_OK)
        status = blas_choose(&p, &at, &why);
    if (status == XRAY_OK) {
        shape->known = at < s->count;
        if (shape->known)
            shape->algorithm = s->found[at].algo;
        log_verdict(d, shape, at, s->count, &why);
    }
    free(s);
    return status;
}

/* How sums start and what y is, where the library computes a product without
 * help. The first comes before the last, which needs it. */
static const struct {
    uint32_t start;
    uint32_t narrow;
} variants[] = {
    { FROM_ZERO, 0 },
    { FROM_C, 0 },
    { FROM_BIAS, 0 },
    { FROM_ZERO, PRODUCT_NARROW_C },
};

xray_status blas_probe_form(cuda_device *d, uint32_t form, uint32_t n,
                            uint32_t k, uint16_t *lent)
{
    blas_shape shape = {};
    blas_shape plain = {};
    blas_room r = {};
    if (blas_find_shape(d->blas, form, n, k, FROM_ZERO, PRODUCT_NARROW_C))
        return XRAY_OK;
    shape.form = form;
    shape.n = n;
    shape.k = k;
    xray_status status = open_room(d, &shape, lent, &r);
    for (size_t i = 0;
         status == XRAY_OK && i < sizeof(variants) / sizeof(*variants); i++) {
        shape.start = variants[i].start;
        shape.narrow = variants[i].narrow;
        shape.tokens = r.tokens;
        shape.known = 0;
        if (blas_find_shape(d->blas, form, n, k, shape.start, shape.narrow))
            continue;
        if (shape.narrow && !plain.known)
            log_choice(d, &shape, "the own kernels compute it as in fp32");
        else
            status = probe_shape(d, &r, &plain, &shape);
        if (i == 0)
            plain = shape;
        if (status == XRAY_OK)
            status = blas_add_shape(d, &shape);
    }
    cuda_free(d, r.own);
    return status;
}

#endif
