/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests draws from distributions that are known: which tokens may be drawn at
 * all, how often each one is, and that draws with other keys, samples or
 * positions know nothing of each other.
 */
#include "tests/device/bench.h"

#include <xray/numerics.h>

enum { VOCAB = 19, BATCH = 2000 };

/* ---- distributions ------------------------------------------------------- */

/* Likelihoods; the tokens behind the last one are all but impossible. */
typedef struct odds {
    double weights[10];
    uint32_t count;
    float slope; /* each logit is so much below the one before it, which is too
                  * little for another likelihood */
} odds;

static const odds plain = { { 8, 4, 4, 4, 4, 4, 2, 2 }, 8, 0 };
static const odds steep = { { 4, 3, 2, 1, 1, 1, 1, 1, 1, 1 }, 10, 0 };
static const odds equal = { { 3, 3, 3, 2, 2, 1 }, 6, 0 };
static const odds even = { { 1, 1, 1, 1 }, 4, 1e-9f };

/* The id of the i-th likeliest token. */
static uint32_t place_id(uint32_t i)
{
    return (i * 7 + 3) % VOCAB;
}

static float *make_rows(const odds *o)
{
    float *z = alloc_floats((size_t)BATCH * VOCAB);
    for (size_t i = 0; i < (size_t)BATCH * VOCAB; i++)
        z[i] = -200.0f;
    for (uint32_t i = 0; i < o->count; i++)
        for (size_t r = 0; r < BATCH; r++)
            z[r * VOCAB + place_id(i)] =
                (float)log(o->weights[i]) - o->slope * (float)i;
    return z;
}

static void draw_tokens_of(const dev *d, const float *z, uint32_t vocab,
                           const xray_draw *draws, size_t count, int32_t *token)
{
    float raw[BATCH];
    float logp[BATCH];
    /* Entries of a later version, which are longer. */
    static struct {
        xray_draw draw;
        char more[24];
    } longer[BATCH];
    assert_true(count <= BATCH);
    memset(longer, 0x5A, sizeof(longer));
    for (size_t i = 0; i < count; i++)
        longer[i].draw = draws[i];
    xray_sample op = { .header = XRAY_HEADER(xray_sample),
                       .items = { count, NULL },
                       .draws = &longer->draw,
                       .token = token,
                       .raw_logp = raw,
                       .logp = logp,
                       .logits = z,
                       .logits_stride = vocab,
                       .vocab = vocab,
                       .draw_stride = sizeof(*longer) };
    must(d->ops->sample(d->self, NULL, &op));
}

static void draw_tokens(const dev *d, const float *z, const xray_draw *draws,
                        size_t count, int32_t *token)
{
    draw_tokens_of(d, z, VOCAB, draws, count, token);
}

/* Draws of different prompts, samples and positions. */
static void fill_draws(const xray_draw *how, uint32_t first, uint32_t count,
                       xray_draw *out)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t n = first + i;
        out[i] = *how;
        out[i].key = xray_philox_key(7, n / 4096, n / 16 % 256);
        out[i].sample = n % 4;
        out[i].position = n / 4 % 4;
    }
}

/* The device of a million draws, of which the others must have the bits. The
 * kernels of the cuda device are too slow for it on the host. */
static const dev *pick_device(const bench *b)
{
#if defined(BENCH_CUDA) && BENCH_CUDA == 2
    return &b->dev[b->count - 1];
#else
    return &b->dev[1];
#endif
}

/* ---- supports ------------------------------------------------------------ */

/* A way to draw, and how many of the likeliest tokens it leaves. */
typedef struct rule {
    const odds *odds;
    float temperature;
    int32_t top_k; /* 0: off */
    float top_p;   /* 0: off */
    float min_p;
    uint32_t kept;
} rule;

static const rule rules[] = {
    { &plain, 1, 0, 0, 0, 8 },
    { &plain, 0.7f, 0, 0, 0, 8 },
    /* All that are as likely as the last one stay. */
    { &plain, 1, 1, 0, 0, 1 },
    { &plain, 1, 2, 0, 0, 6 },
    { &plain, 1, 6, 0, 0, 6 },
    { &plain, 1, 7, 0, 0, 8 },
    { &plain, 1, VOCAB, 0, 0, 8 },
    { &plain, 1, 0, 0.249f, 0, 1 },
    { &plain, 1, 0, 0.251f, 0, 6 },
    { &plain, 1, 0, 0.874f, 0, 6 },
    { &plain, 1, 0, 0.876f, 0, 8 },
    { &plain, 1, 0, 0, 0.51f, 1 },
    { &plain, 1, 0, 0, 0.49f, 6 },
    { &plain, 1, 0, 0, 0.26f, 6 },
    { &plain, 1, 0, 0, 0.24f, 8 },
    { &equal, 1, 1, 0, 0, 3 },
    { &equal, 1, 0, 1e-6f, 0, 3 },
    { &equal, 1, 0, 0, 1, 3 },
    { &equal, 1, 3, 0.5f, 1, 3 },
    /* Exactly at the border. */
    { &even, 1, 0, 0.25f, 0, 1 },
    { &even, 1, 0, 0.2500001f, 0, 2 },
    { &even, 1, 0, 0.5f, 0, 2 },
    { &even, 1, 0, 0.75f, 0, 3 },
    { &even, 1, 0, 0.7500001f, 0, 4 },
    { &even, 1, 0, 0, 1, 4 },
    { &even, 1, 3, 0, 1, 3 },
    /* The temperature comes first: squares, and roots. */
    { &plain, 0.5f, 0, 0, 0.3f, 1 },
    { &plain, 2, 0, 0, 0.6f, 6 },
    { &plain, 0.5f, 0, 0.42f, 0, 1 },
    { &plain, 2, 0, 0.19f, 0, 6 },
    /* top_p is a part of what min_p and top_k leave. */
    { &steep, 1, 0, 0.7f, 0, 10 },
    { &steep, 1, 3, 0.7f, 0, 2 },
    { &steep, 1, 0, 0.7f, 0.4f, 2 },
    { &steep, 1, 2, 0.9f, 0.2f, 2 },
    { &steep, 1, 9, 0.5f, 0.7f, 1 },
};

static xray_draw make_draw(const rule *r)
{
    return (xray_draw){ .temperature = r->temperature,
                        .top_k = r->top_k,
                        .top_p = r->top_p > 0 ? r->top_p : 1,
                        .min_p = r->min_p };
}

/* Every token that may be drawn is, and no other. */
static void the_likeliest_tokens_are_left(void **state)
{
    (void)state;
    enum { DRAWS = 400 };
    bench b;
    open_devices(&b);
    for (size_t k = 0; k < sizeof(rules) / sizeof(rules[0]); k++) {
        const rule *r = &rules[k];
        const xray_draw how = make_draw(r);
        float *z = make_rows(r->odds);
        uint32_t want = 0;
        for (uint32_t i = 0; i < r->kept; i++)
            want |= 1u << place_id(i);
        for (int d = 0; d < b.count; d++) {
            xray_draw draws[DRAWS];
            int32_t token[DRAWS];
            uint32_t got = 0;
            if ((k + (size_t)d) % TEST_STEP)
                continue;
            fill_draws(&how, 0, DRAWS, draws);
            draw_tokens(&b.dev[d], z, draws, DRAWS, token);
            for (uint32_t i = 0; i < DRAWS; i++)
                got |= 1u << token[i];
            if (got != want)
                fail_msg("%s: rule %zu leaves the tokens %#x, not %#x",
                         b.dev[d].name, k, got, want);
        }
        free(z);
    }
    close_devices(&b);
}

/* More equal tokens than a device sorts at a time have half of the weight, so a
 * top_p of a half leaves them, and none of the others. */
static void top_p_ends_behind_many_equal_tokens(void **state)
{
    (void)state;
    enum { TOP = 4160, ALL = 3 * TOP, DRAWS = 8 };
    const xray_draw how = { .temperature = 1, .top_p = 0.5f };
    float *z = alloc_floats((size_t)DRAWS * ALL);
    for (size_t i = 0; i < (size_t)DRAWS * ALL; i++)
        z[i] = i % 3 == 1 ? 0.0f : -0.693147182f; /* exp gives 0.5 */
    bench b;
    open_devices(&b);
    for (int d = 0; d < b.count; d++) {
        xray_draw draws[DRAWS];
        int32_t token[DRAWS];
        fill_draws(&how, 0, DRAWS, draws);
        draw_tokens_of(&b.dev[d], z, ALL, draws, DRAWS, token);
        for (uint32_t i = 0; i < DRAWS; i++)
            if (token[i] % 3 != 1)
                fail_msg("%s: token %d was drawn", b.dev[d].name, token[i]);
    }
    close_devices(&b);
    free(z);
}

/* ---- frequencies --------------------------------------------------------- */

/* The value that chi-square is below with probability 0.9999 (Wilson and
 * Hilferty's approximation). */
static double most_chi(double freedom)
{
    double a = 2 / (9 * freedom);
    return freedom * pow(1 - a + 3.719 * sqrt(a), 3);
}

static void check_frequencies(const dev *d, const rule *r, uint32_t draws)
{
    const xray_draw how = make_draw(r);
    float *z = make_rows(r->odds);
    double seen[VOCAB] = { 0 };
    double sum = 0;
    double chi = 0;
    for (uint32_t first = 0; first < draws; first += BATCH) {
        xray_draw batch[BATCH];
        int32_t token[BATCH];
        fill_draws(&how, first, BATCH, batch);
        draw_tokens(d, z, batch, BATCH, token);
        for (uint32_t i = 0; i < BATCH; i++)
            seen[token[i]]++;
    }
    for (uint32_t i = 0; i < r->kept; i++)
        sum += pow(r->odds->weights[i], 1 / (double)r->temperature);
    for (uint32_t i = 0; i < r->kept; i++) {
        double p = pow(r->odds->weights[i], 1 / (double)r->temperature) / sum;
        double off = seen[place_id(i)] - p * draws;
        chi += off * off / (p * draws);
    }
    print_message("chi-square %.1f of %u tokens\n", chi, r->kept);
    assert_true(chi < most_chi(r->kept - 1));
    free(z);
}

/* A million draws: without a limit at three temperatures, and with each. */
static void tokens_are_as_frequent_as_they_are_likely(void **state)
{
    (void)state;
    static const rule some[] = {
        { &steep, 1, 0, 0, 0, 10 },         { &steep, 0.7f, 0, 0, 0, 10 },
        { &plain, 2, 0, 0, 0, 8 },          { &steep, 1, 3, 0, 0, 3 },
        { &plain, 0.7f, 2, 0, 0, 6 },       { &steep, 1, 0, 0.5f, 0, 3 },
        { &plain, 1, 0, 0.6f, 0, 6 },       { &steep, 1.3f, 0, 0, 0.45f, 3 },
        { &plain, 0.7f, 7, 0.9f, 0.2f, 6 }, { &even, 1, 0, 0.75f, 0, 3 },
    };
    const uint32_t count = sizeof(some) / sizeof(some[0]);
    bench b;
    open_devices(&b);
    for (uint32_t k = 0; k < count; k++)
        check_frequencies(pick_device(&b), &some[k], 1000000 / count);
    close_devices(&b);
}

/* ---- random numbers ------------------------------------------------------ */

/* A token depends on its own draw, and on no other of the call. */
static void the_order_of_draws_changes_no_token(void **state)
{
    (void)state;
    enum { DRAWS = 500 };
    const xray_draw how = { .temperature = 1, .top_p = 0.9f };
    bench b;
    open_devices(&b);
    float *z = make_rows(&steep);
    for (int d = 0; d < b.count; d++) {
        xray_draw draws[DRAWS];
        xray_draw turned[DRAWS];
        int32_t want[DRAWS];
        int32_t got[DRAWS];
        fill_draws(&how, 0, DRAWS, draws);
        for (uint32_t i = 0; i < DRAWS; i++)
            turned[i] = draws[DRAWS - 1 - i];
        draw_tokens(&b.dev[d], z, draws, DRAWS, want);
        for (uint32_t at = 0, n = 1; at < DRAWS; at += n, n = n % 131 + 1)
            draw_tokens(&b.dev[d], z, turned + at,
                        n < DRAWS - at ? n : DRAWS - at, got + at);
        for (uint32_t i = 0; i < DRAWS; i++)
            assert_int_equal(got[i], want[DRAWS - 1 - i]);
    }
    free(z);
    close_devices(&b);
}

enum { PAIR_SAMPLE, PAIR_POSITION, PAIR_PROMPT, PAIR_STEP, PAIR_SEED, PAIRS };

/* Two draws that differ in one thing. */
static void fill_pair(int kind, uint32_t n, xray_draw pair[2])
{
    for (uint32_t side = 0; side < 2; side++) {
        uint32_t at[PAIRS] = { 0, 5, n % 977, n / 977, 3 };
        at[kind] = 2 * at[kind] + side;
        pair[side] = (xray_draw){
            .key =
                xray_philox_key(at[PAIR_SEED], at[PAIR_STEP], at[PAIR_PROMPT]),
            .sample = at[PAIR_SAMPLE],
            .position = at[PAIR_POSITION],
            .temperature = 1,
            .top_p = 1,
        };
    }
}

/* The tokens of two draws are as frequent together as they are apart. */
static void draws_are_independent(void **state)
{
    (void)state;
    enum { DRAWS = 40000 };
    static const odds four = { { 4, 3, 2, 1 }, 4, 0 };
    bench b;
    open_devices(&b);
    float *z = make_rows(&four);
    for (int kind = 0; kind < PAIRS; kind++) {
        double seen[VOCAB][VOCAB] = { { 0 } };
        double chi = 0;
        for (uint32_t first = 0; first < DRAWS; first += BATCH) {
            xray_draw draws[BATCH];
            int32_t token[BATCH];
            for (uint32_t i = 0; i < BATCH; i += 2)
                fill_pair(kind, (first + i) / 2, &draws[i]);
            draw_tokens(pick_device(&b), z, draws, BATCH, token);
            for (uint32_t i = 0; i < BATCH; i += 2)
                seen[token[i]][token[i + 1]]++;
        }
        for (uint32_t i = 0; i < 4; i++)
            for (uint32_t k = 0; k < 4; k++) {
                double want =
                    four.weights[i] * four.weights[k] / 100 * DRAWS / 2;
                double off = seen[place_id(i)][place_id(k)] - want;
                chi += off * off / want;
            }
        print_message("chi-square %.1f of 16 pairs\n", chi);
        assert_true(chi < most_chi(15));
    }
    free(z);
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_likeliest_tokens_are_left),
        cmocka_unit_test(top_p_ends_behind_many_equal_tokens),
        cmocka_unit_test(tokens_are_as_frequent_as_they_are_likely),
        cmocka_unit_test(the_order_of_draws_changes_no_token),
        cmocka_unit_test(draws_are_independent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
