/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that device-cuda in float32 draws the CPU's tokens with the CPU's
 * log-probabilities from rows that are hard to draw from: with ties, of
 * infinities, so large that noise is rounded away, and flat ones, whose token
 * has much noise. Every row is drawn from in every way.
 */
#include "tests/cuda/pair.h"

#include <xray/numerics.h>

/* ---- rows ---------------------------------------------------------------- */

enum {
    ROW_RANDOM,
    ROW_PEAKED,  /* the likeliest id is far above all others */
    ROW_FLAT,    /* all are equal */
    ROW_BELOW,   /* one is far above very many, of which one is drawn */
    ROW_TIES,    /* two values */
    ROW_LARGE,   /* two values, to which noise adds nothing */
    ROW_ZEROS,   /* -0 and 0 */
    ROW_RISING,  /* towards the last id */
    ROW_FALLING, /* from the first id */
    ROW_ONE,     /* all but one are minus infinity */
    ROW_NONE,    /* all are minus infinity */
    ROW_LOWEST,  /* a division by a temperature makes them minus infinity */
    ROW_KINDS
};

static float make_logit(int kind, size_t n, size_t i)
{
    double u = random_unit();
    size_t place = n * 5 / 7;
    switch (kind) {
    case ROW_RANDOM:
        return (float)(6 * u);
    case ROW_PEAKED:
        return i == place ? 40.0f : (float)(3 * u);
    case ROW_FLAT:
        return 1.25f;
    case ROW_BELOW:
        return i == place ? 9.0f : (float)(0.1 * u);
    case ROW_TIES:
        return random_below(9) ? -1.0f : 2.0f;
    case ROW_LARGE:
        return random_below(9) ? 0x1p60f : 0x1.000002p60f;
    case ROW_ZEROS:
        return i % 3 ? -0.0f : 0.0f;
    case ROW_RISING:
        return (float)i * 0.01f;
    case ROW_FALLING:
        return 5.0f - (float)i * 0.01f;
    case ROW_ONE:
        return i == place ? -3.0f : -INFINITY;
    case ROW_NONE:
        return -INFINITY;
    default:
        return i == place ? -2.9e38f : -3e38f;
    }
}

/* ---- draws --------------------------------------------------------------- */

static const struct {
    float top_p;
    float min_p;
    int32_t top_k;
} cuts[] = {
    { 1.0f, 0.0f, 0 },     { 0.9f, 0.0f, 0 },    { 1.0f, 0.0f, 7 },
    { 1.0f, 0.1f, 0 },     { 0.3f, 0.0f, 4000 }, { 1.0f, 0.02f, 3 },
    { 1.0f, 0.0f, 30000 }, { 0.95f, 0.5f, 50 },
};
#define CUTS (sizeof(cuts) / sizeof(*cuts))

static const float temperatures[] = { 1.0f, 0.0f, 0.6f, 3.0f };
#define TEMPERATURES (sizeof(temperatures) / sizeof(*temperatures))

/* One way to draw from a row of each kind. */
typedef struct way {
    size_t vocab;
    size_t stride;
    size_t segment;
    float softcap;
    float temperature;
    size_t cut;
    int changed; /* draws follow from the kinds in the opposite order */
} way;

static buf make_draws(const pair *p, const way *w)
{
    xray_draw draws[ROW_KINDS];
    for (uint32_t i = 0; i < ROW_KINDS; i++)
        draws[i] = (xray_draw){ .key = xray_philox_key(w->vocab, w->cut, i),
                                .sample = i,
                                .position = (uint32_t)w->stride,
                                .temperature = w->temperature,
                                .top_p = cuts[w->cut].top_p,
                                .min_p = cuts[w->cut].min_p,
                                .top_k = cuts[w->cut].top_k };
    return make_buf(p, draws, sizeof(draws));
}

static void check_way(const pair *p, const way *w, const buf rows[2])
{
    int32_t none[ROW_KINDS] = { 0 };
    buf draws = make_draws(p, w);
    buf token = make_buf(p, none, sizeof(none));
    buf raw = make_buf(p, none, sizeof(none));
    buf logp = make_buf(p, none, sizeof(none));
    char what[200];
    for (int s = 0; s < 2; s++) {
        xray_sample op = { .header = XRAY_HEADER(xray_sample),
                           .items = { ROW_KINDS, NULL },
                           .draws = draws.p[s],
                           .token = token.p[s],
                           .raw_logp = raw.p[s],
                           .logp = logp.p[s],
                           .logits = rows[0].p[s],
                           .changed = w->changed ? rows[1].p[s] : NULL,
                           .logits_stride = w->stride,
                           .vocab = w->vocab,
                           .softcap = w->softcap,
                           .draw_stride = sizeof(xray_draw),
                           .segment = w->segment };
        RUN_ON(p, s, sample, &op);
    }
    (void)snprintf(what, sizeof(what),
                   "vocabulary %zu, segment %zu, softcap %g, temperature %g, "
                   "cut %zu, %s",
                   w->vocab, w->segment, (double)w->softcap,
                   (double)w->temperature, w->cut,
                   w->changed ? "changed" : "unchanged");
    assert_same_buf(p, &token, what);
    assert_same_buf(p, &raw, what);
    assert_same_buf(p, &logp, what);
    free_buf(p, &draws);
    free_buf(p, &token);
    free_buf(p, &raw);
    free_buf(p, &logp);
}

/* A row of each kind, and the same rows in the opposite order. */
static void make_rows(const pair *p, size_t vocab, size_t stride, buf rows[2])
{
    float *z = alloc_floats(ROW_KINDS * stride);
    float *turned = alloc_floats(ROW_KINDS * stride);
    for (int kind = 0; kind < ROW_KINDS; kind++)
        for (size_t i = 0; i < vocab; i++)
            z[(size_t)kind * stride + i] = make_logit(kind, vocab, i);
    for (size_t kind = 0; kind < ROW_KINDS; kind++)
        memcpy(turned + kind * stride, z + (ROW_KINDS - 1 - kind) * stride,
               vocab * sizeof(float));
    rows[0] = make_buf(p, z, ROW_KINDS * stride * sizeof(float));
    rows[1] = make_buf(p, turned, ROW_KINDS * stride * sizeof(float));
    free(z);
    free(turned);
}

/* Vocabularies around the sizes of a thread's, a warp's and a block's part, in
 * rows that are aligned or not. */
static void hard_rows_draw_the_tokens_of_the_cpu(void **state)
{
    (void)state;
    static const size_t sizes[] = { 1,    2,    7,    33,   128,
                                    1919, 2049, 4096, 4099, 13001 };
    pair p = open_pair();
    for (size_t v = 0; v < sizeof(sizes) / sizeof(*sizes); v++) {
        way w = { .vocab = sizes[v], .stride = sizes[v] + v % 3 };
        buf rows[2];
        make_rows(&p, w.vocab, w.stride, rows);
        for (w.cut = 0; w.cut < CUTS; w.cut++)
            for (size_t t = 0; t < TEMPERATURES; t++) {
                size_t turn = v + w.cut + t;
                w.temperature = temperatures[t];
                w.changed = turn % 3 == 1;
                w.softcap = turn % 4 == 2 ? 15.0f : 0.0f;
                w.segment = turn % 2 ? w.vocab / (1 + turn % 8) + 1 : 0;
                check_way(&p, &w, rows);
            }
        free_buf(&p, &rows[0]);
        free_buf(&p, &rows[1]);
    }
    close_pair(&p);
}

/* ---- the largest noise --------------------------------------------------- */

enum { STRIDE = 4096, STRIDES = 3, VOCAB = STRIDE * STRIDES };

/* Gives the position and the id, below STRIDE, of a u as large as any. */
static uint32_t find_largest_noise(uint64_t key, uint32_t *out_position)
{
    for (uint32_t position = 0; position < 100000; position++)
        for (uint32_t i = 0; i < STRIDE / 4; i++) {
            xray_philox_out bits = xray_philox(key, i, position, 0, 0);
            for (uint32_t j = 0; j < 4; j++)
                if (bits.w[j] >> 9 == 0x7fffffu) {
                    *out_position = position;
                    return 4 * i + j;
                }
        }
    fail_msg("no u is the largest one");
    return 0;
}

static float noise_at(const pair *p, const xray_draw *d, uint32_t id)
{
    const cpu_device *cpu = p->d[CPU].self;
    xray_philox_out bits =
        xray_philox(d->key, id / 4, d->position, d->sample, 0);
    float u = xray_unit(bits.w[id % 4]);
    float g;
    cpu->k->map(CPU_MAP_LOG, &g, &u, 1);
    g = -g;
    cpu->k->map(CPU_MAP_LOG, &g, &g, 1);
    return -g;
}

/* The same thread has two ids, of which the one that it looks at later has the
 * largest noise there is. */
static void the_largest_noise_wins_by_a_little(void **state)
{
    (void)state;
    pair p = open_pair();
    xray_draw draw = { .key = 11, .temperature = 1.0f, .top_p = 1.0f };
    const uint32_t id = find_largest_noise(draw.key, &draw.position);
    const uint32_t other = id + (STRIDES - 1) * STRIDE;
    const float most = noise_at(&p, &draw, id);
    assert_true(most > 16.635f && most < 16.636f);
    for (int k = 0; k < 2; k++) {
        float *z = alloc_floats(VOCAB);
        for (size_t i = 0; i < VOCAB; i++)
            z[i] = -INFINITY;
        z[id] = 0.0f;
        z[other] = most - noise_at(&p, &draw, other) + (k ? 1e-4f : -1e-4f);
        buf logits = make_buf(&p, z, VOCAB * sizeof(*z));
        buf draws = make_buf(&p, &draw, sizeof(draw));
        buf out = make_buf(&p, z, 3 * sizeof(*z));
        for (int s = 0; s < 2; s++) {
            xray_sample op = { .header = XRAY_HEADER(xray_sample),
                               .items = { 1, NULL },
                               .draws = draws.p[s],
                               .token = out.p[s],
                               .raw_logp = buf_floats(&out, s, 1),
                               .logp = buf_floats(&out, s, 2),
                               .logits = logits.p[s],
                               .logits_stride = VOCAB,
                               .vocab = VOCAB,
                               .draw_stride = sizeof(draw) };
            RUN_ON(&p, s, sample, &op);
        }
        assert_same_buf(&p, &out, "the largest noise");
        assert_int_equal(*(const int32_t *)out.p[CPU], k ? other : id);
        free_buf(&p, &logits);
        free_buf(&p, &draws);
        free_buf(&p, &out);
        free(z);
    }
    close_pair(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hard_rows_draw_the_tokens_of_the_cpu),
        cmocka_unit_test(the_largest_noise_wins_by_a_little),
    };
    return cmocka_run_group_tests_name("cuda.draws", tests, NULL, NULL);
}
