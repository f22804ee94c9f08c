/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that an engine's samples are as frequent as the model and the limits of
 * a request say, and that the samples of a request know nothing of each other.
 */
#include "tests/serve/engine.h"

#include <math.h>

enum { VOCAB = 101, SAMPLES = 6000, PROMPT = 7 };

static const int32_t prompt[PROMPT] = { 1, 8, 3, 8, 41, 6, 7 };

/* The first token of each sample, and the log-probs of all ids. */
typedef struct firsts {
    int32_t token[SAMPLES];
    double logp[VOCAB];
} firsts;

static void take_firsts(const xray_request *q, firsts *out)
{
    const engine_size size = { 16, 16, { .max_num_batched_tokens = 64 } };
    rig *r = rig_open(1);
    model *m = model_open(r, MODEL_LLAMA);
    void *engine = engine_open(r, m, &size);
    xray_sample_out s = { .header = XRAY_HEADER(xray_sample_out) };
    uint32_t count = 0;
    engine_submit(r, engine, q);
    for (xray_status status = XRAY_OK; status != XRAY_END;) {
        status = r->ops->step(engine);
        if (status < 0)
            fail_msg("%s", r->said);
        for (; r->ops->poll(engine, &s) == XRAY_OK; count++) {
            assert_int_equal(s.token_count, 1);
            out->token[s.sample] = s.tokens[0];
            for (uint32_t i = 0; i < s.top_count; i++)
                out->logp[s.top_ids[i]] = (double)s.top_logp[i];
        }
    }
    assert_int_equal(count, q->count);
    r->ops->destroy(engine);
    model_close(m);
    rig_close(r);
}

/* The probabilities of all ids at a temperature, where only the top_k likeliest
 * are left (0: all). */
static void find_odds(const double *logp, double temperature, uint32_t top_k,
                      double *out)
{
    double sum = 0;
    for (int i = 0; i < VOCAB; i++) {
        uint32_t above = 0;
        for (int k = 0; k < VOCAB; k++)
            above += logp[k] > logp[i];
        out[i] = top_k && above >= top_k ? 0 : exp(logp[i] / temperature);
        sum += out[i];
    }
    for (int i = 0; i < VOCAB; i++)
        out[i] /= sum;
}

/* Below this chi-square is with probability 0.9999 (Wilson and Hilferty). */
static double most_chi(double freedom)
{
    double a = 2 / (9 * freedom);
    return freedom * pow(1 - a + 3.719 * sqrt(a), 3);
}

/* Rare ids are counted together. */
static void check_frequencies(const firsts *f, const double *odds)
{
    double seen[VOCAB + 1] = { 0 };
    double want[VOCAB + 1] = { 0 };
    double chi = 0;
    double cells = 0;
    for (uint32_t i = 0; i < SAMPLES; i++) {
        int32_t token = f->token[i];
        assert_true(odds[token] > 0);
        seen[odds[token] * SAMPLES < 8 ? VOCAB : token]++;
    }
    for (int i = 0; i < VOCAB; i++)
        want[odds[i] * SAMPLES < 8 ? VOCAB : i] += odds[i] * SAMPLES;
    for (int i = 0; i <= VOCAB; i++)
        if (want[i] >= 8) {
            chi += (seen[i] - want[i]) * (seen[i] - want[i]) / want[i];
            cells++;
        }
    print_message("chi-square %.1f of %.0f ids\n", chi, cells);
    assert_true(cells > 2 && chi < most_chi(cells - 1));
}

/* How often sample i and the next one have odd and even ids. */
static void check_pairs(const firsts *f, const double *odds)
{
    double odd = 0;
    double seen[2][2] = { { 0 } };
    double chi = 0;
    for (int i = 0; i < VOCAB; i++)
        odd += i % 2 ? odds[i] : 0;
    for (uint32_t i = 0; i + 1 < SAMPLES; i += 2)
        seen[f->token[i] % 2][f->token[i + 1] % 2]++;
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++) {
            double want =
                (i ? odd : 1 - odd) * (k ? odd : 1 - odd) * SAMPLES / 2;
            chi += (seen[i][k] - want) * (seen[i][k] - want) / want;
        }
    print_message("chi-square %.1f of 4 pairs\n", chi);
    assert_true(chi < most_chi(3));
}

static void samples_are_as_frequent_as_they_are_likely(void **state)
{
    (void)state;
    static const struct {
        float temperature;
        int32_t top_k;
    } ways[] = { { 1, 0 }, { 0.7f, 0 }, { 1.4f, 12 } };
    firsts *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        double odds[VOCAB];
        xray_request q = request_make(1, prompt, PROMPT, 1);
        q.count = SAMPLES;
        q.temperature = ways[i].temperature;
        q.top_k = ways[i].top_k;
        q.top_count = VOCAB;
        take_firsts(&q, f);
        find_odds(f->logp, (double)q.temperature, (uint32_t)q.top_k, odds);
        check_frequencies(f, odds);
        check_pairs(f, odds);
    }
    free(f);
}

/* Sample k of a group is the sample that a request for it alone gives. */
static void a_sample_alone_is_that_of_its_group(void **state)
{
    (void)state;
    firsts *group = calloc(2, sizeof(*group));
    assert_non_null(group);
    xray_request q = request_make(1, prompt, PROMPT, 1);
    q.count = SAMPLES;
    take_firsts(&q, &group[0]);
    q.count = 1;
    for (uint32_t i = 0; i < SAMPLES; i += 1009) {
        q.first_sample = i;
        take_firsts(&q, &group[1]);
        assert_int_equal(group[1].token[i], group[0].token[i]);
    }
    free(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_as_frequent_as_they_are_likely),
        cmocka_unit_test(a_sample_alone_is_that_of_its_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
