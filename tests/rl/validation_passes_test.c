/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves validation with plugins made for the test: what is sampled, the means
 * and bests per source, and the samples that are written.
 */
#include "core/rl/validate.h"

#include <math.h>

#include "tests/rl/engine_rig.h"

#define FIVE                                                     \
    "{\"prompt\":\"a\",\"answer\":\"\",\"data_source\":\"x\"}\n" \
    "{\"prompt\":\"b\",\"answer\":\"\"}\n"                       \
    "{\"prompt\":\"c\",\"answer\":\"\",\"data_source\":\"x\"}\n" \
    "{\"prompt\":\"d\",\"answer\":\"\",\"data_source\":\"x\"}\n" \
    "{\"prompt\":\"a\",\"answer\":\"\"}\n"

/* Resets the engine for every batch. */
static xray_status restart_engine(void *self, const xray_request *r)
{
    if (r->id == 0) {
        engine.requests = 0;
        engine.given = 0;
    }
    return engine_submit(self, r);
}

typedef struct check {
    int64_t val_n;
    const char *metrics; /* name and value, one line each */
    const char *log;
} check;

static void validate(fixture *f, const char *text, const check *want,
                     double score)
{
    static xray_infer_ops ops;
    xr_validation v;
    xr_err err = { "" };
    double got = 0;
    xr_str said = { 0 };
    xr_run_config *ini = &f->run.ini;
    xr_metrics *metrics = xr_metrics_new();
    xr_dataset *set = rig_open_rows(f, text);
    memset(&engine, 0, sizeof(engine));
    ops = engine_ops;
    ops.submit = restart_engine;
    f->run.infer.ops = &ops;
    ini->data.max_response_length = MOST;
    ini->run.seed = 11;
    ini->rollout.val_n = want->val_n;
    ini->rollout.val_temperature = 0.5;
    ini->rollout.val_top_p = 0.75;
    ini->rollout.val_top_k = 6;
    assert_int_equal(xr_validation_init(&v, &f->roles, set, &err), XRAY_OK);
    v.step = 3;
    if (xr_validation_run(&v, metrics, &got, &err) != XRAY_OK)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < xr_metrics_count(metrics); i++)
        xr_str_printf(&said, "%s %.9g\n", xr_metrics_name(metrics, i),
                      xr_metrics_value(metrics, i));
    assert_string_equal(xr_str_text(&said), want->metrics);
    assert_string_equal(engine.log, want->log);
    assert_true(isnan(score) ? isnan(got) : fabs(got - score) < 1e-12);
    xr_str_free(&said);
    xr_validation_free(&v);
    xr_dataset_close(set);
    xr_metrics_free(metrics);
}

/* Scores are twice the sums of ids. Greedy samples are 4 0 | 0 1 2 | 1 | 2 3 |
 * 3 4 0, which gives 8, 6, 2, 10 and 14. Sampled ones are 0 and 12 | 12 and 234
 * | 234 and 3 | 3 and 40 | 40 and 012, which gives 0 6, 6 18, 18 6, 6 8, 8 6.
 * Rows 0, 2 and 3 are of source x. */
#define GREEDY                              \
    "val-core/x/reward/mean@1 6.66666667\n" \
    "val-core/default/reward/mean@1 10\n"
#define LINE(id, p, how) \
    id " of " p ": " how " seed 76616c696461746e step 0 stop 2\n"
#define COLD "1 x 3, T 0 top_p 1 min_p 0 top_k 0"
#define WARM " x 3, T 0.5 top_p 0.75 min_p 0 top_k 6"
#define IN_TWOS(how)    \
    LINE("0", "0", how) \
    LINE("1", "1", how) \
    LINE("0", "2", how) LINE("1", "3", how) LINE("0", "4", how)

static void validation_is_a_mean_by_source(void **state)
{
    static const check greedy = { 0, GREEDY, IN_TWOS(COLD) };
    static const check one = { 1,
                               GREEDY "val-core/x/reward/sampled/mean@1 8\n"
                                      "val-core/default/reward/sampled/mean@1 "
                                      "7\n",
                               IN_TWOS(COLD) IN_TWOS("1" WARM) };
    static const check two = { 2,
                               GREEDY "val-core/x/reward/mean@2 7.33333333\n"
                                      "val-aux/x/reward/best@2 10.6666667\n"
                                      "val-core/default/reward/mean@2 9.5\n"
                                      "val-aux/default/reward/best@2 13\n",
                               IN_TWOS(COLD) IN_TWOS("2" WARM) };
    /* The best of negative scores is negative. */
    static const check below = { 2,
                                 "val-core/x/reward/mean@1 -6.66666667\n"
                                 "val-core/default/reward/mean@1 -10\n"
                                 "val-core/x/reward/mean@2 -7.33333333\n"
                                 "val-aux/x/reward/best@2 -4\n"
                                 "val-core/default/reward/mean@2 -9.5\n"
                                 "val-aux/default/reward/best@2 -6\n",
                                 IN_TWOS(COLD) IN_TWOS("2" WARM) };
    fixture *f = *state;
    f->run.ini.data.val_batch_size = 2;
    validate(f, FIVE, &greedy, 8);
    validate(f, FIVE, &one, 8);
    validate(f, FIVE, &two, 8);
    f->run.rewards[0].weight = -2;
    validate(f, FIVE, &below, -8);
}

/* Without a batch size all rows are one batch; without rows there is no score.
 */
static void validation_accepts_any_number_of_rows(void **state)
{
    static const check all = { 0, GREEDY,
                               LINE("0", "0", COLD) LINE("1", "1", COLD)
                                   LINE("2", "2", COLD) LINE("3", "3", COLD)
                                       LINE("4", "4", COLD) };
    static const check last = { 0, "val-core/default/reward/mean@1 8\n",
                                LINE("0", "0", COLD) };
    fixture *f = *state;
    validate(f, FIVE, &all, 8);
    f->run.ini.data.val_batch_size = 7;
    validate(f, "{\"prompt\":\"d\",\"answer\":\"\"}\n", &last, 8);
}

/* With [rollout] ignore_eos no end id ends a sample, greedy or not. */
static void validation_ignores_ends_if_asked(void **state)
{
    fixture *f = *state;
    static const check deaf = { 1,
                                "val-core/default/reward/mean@1 8\n"
                                "val-core/default/reward/sampled/mean@1 0\n",
                                "0 of 0: " COLD
                                " seed 76616c696461746e step 0 stop 0\n"
                                "0 of 0: 1" WARM
                                " seed 76616c696461746e step 0 stop 0\n" };
    f->run.ini.rollout.ignore_eos = 1;
    validate(f, "{\"prompt\":\"d\",\"answer\":\"\"}\n", &deaf, 8);
}

/* Every sample of the step is in one file, the greedy ones first. */
static void validation_keeps_its_samples(void **state)
{
    static const check one = { 2,
                               "val-core/default/reward/mean@1 8\n"
                               "val-core/y/reward/mean@1 6\n"
                               "val-core/default/reward/mean@2 3\n"
                               "val-aux/default/reward/best@2 6\n"
                               "val-core/y/reward/mean@2 12\n"
                               "val-aux/y/reward/best@2 18\n",
                               LINE("0", "0", COLD) LINE("1", "1", COLD)
                                   LINE("0", "0", "2" WARM)
                                       LINE("1", "1", "2" WARM) };
    fixture *f = *state;
    xr_err err = { "" };
    char *text = NULL;
    size_t size = 0;
    f->run.ini.trainer.validation_data_dir = scratch_path("val");
    validate(f,
             "{\"prompt\":\"d\",\"answer\":\"7\"}\n"
             "{\"prompt\":\"c\",\"answer\":\"\",\"data_source\":\"y\"}\n",
             &one, 7);
    assert_int_equal(
        xr_file_read(scratch_path("val/3.jsonl"), 4096, &err, &text, &size),
        XRAY_OK);
#define D "{\"step\":3,\"prompt\":\"d\",\"response\":"
#define C "{\"step\":3,\"prompt\":\"c\",\"response\":"
#define OF_D ",\"data_source\":\"\",\"sample\":"
#define OF_C ",\"data_source\":\"y\",\"sample\":"
    assert_string_equal(text,
                        D "\"a\",\"ground_truth\":\"7\",\"score\":8" OF_D
                          "0,\"temperature\":0}\n" C
                          "\"a b c\",\"ground_truth\":\"\",\"score\":6" OF_C
                          "0,\"temperature\":0}\n" D
                          "\"a\",\"ground_truth\":\"7\",\"score\":0" OF_D
                          "0,\"temperature\":0.5}\n" D
                          "\"b c\",\"ground_truth\":\"7\",\"score\":6" OF_D
                          "1,\"temperature\":0.5}\n" C
                          "\"b c\",\"ground_truth\":\"\",\"score\":6" OF_C
                          "0,\"temperature\":0.5}\n" C
                          "\"c d\",\"ground_truth\":\"\",\"score\":18" OF_C
                          "1,\"temperature\":0.5}\n");
    free(text);
}

/* Validates and returns the lines of the table. */
static int show_samples(fixture *f, const xr_dataset *set, uint64_t shown,
                        int prints, xr_sample_texts *texts)
{
    static xray_infer_ops ops;
    xr_validation v;
    xr_metrics *metrics = xr_metrics_new();
    xr_err err = { "" };
    double score = 0;
    int lines = 0;
    memset(&engine, 0, sizeof(engine));
    grader.log[0] = '\0';
    ops = engine_ops;
    ops.submit = restart_engine;
    f->run.infer.ops = &ops;
    f->run.ini.data.max_response_length = MOST;
    f->run.ini.data.val_batch_size = 2;
    f->run.ini.rollout.val_top_p = f->run.ini.rollout.val_temperature = 1;
    assert_int_equal(xr_validation_init(&v, &f->roles, set, &err), XRAY_OK);
    v.shown = shown;
    v.prints = prints;
    v.texts = texts;
    if (xr_validation_run(&v, metrics, &score, &err) != XRAY_OK)
        fail_msg("%s", err.text);
    for (const char *at = xr_str_text(&v.table); (at = strchr(at, '\n')); at++)
        lines++;
    xr_validation_free(&v);
    xr_metrics_free(metrics);
    return lines;
}

/* Of the greedy samples as many as asked for, at even distances in the set. */
static void shown_samples_are_spread_over_the_set(void **state)
{
    static const struct {
        uint64_t shown;
        const char *prompts; /* those of FIVE are a b c d a */
        int64_t val_n;
    } cases[] = {
        { 0, "", 1 },    { 1, "a", 0 },     { 2, "ad", 2 },
        { 3, "aca", 1 }, { 5, "abcda", 2 }, { 9, "abcda", 0 },
    };
    fixture *f = *state;
    xr_dataset *set = rig_open_rows(f, FIVE);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (int prints = 0; prints < 2; prints++) {
            const char *want = cases[i].prompts;
            xr_sample_texts texts = { .count = 0 };
            char got[8] = "";
            f->run.ini.rollout.val_n = cases[i].val_n;
            assert_int_equal(
                show_samples(f, set, cases[i].shown, prints, &texts),
                prints && *want ? 1 + (int)strlen(want) : 0);
            for (size_t k = 0; k < texts.count; k++) {
                const char *at = strstr(texts.list[k].text, "prompt:\n\n    ");
                char name[40];
                got[k] = at[13];
                (void)snprintf(name, sizeof(name), "samples/validation/%zu", k);
                assert_string_equal(texts.list[k].name, name);
            }
            assert_string_equal(got, want);
            xr_sample_texts_free(&texts);
        }
    xr_dataset_close(set);
}

/* Trackers get a hundred of them at most, the console all. */
static void trackers_get_a_hundred_samples_at_most(void **state)
{
    fixture *f = *state;
    xr_str text = { 0 };
    xr_sample_texts texts = { .count = 0 };
    for (int i = 0; i < 103; i++)
        xr_str_puts(&text, "{\"prompt\":\"a\",\"answer\":\"\"}\n");
    xr_dataset *set = rig_open_rows(f, xr_str_text(&text));
    assert_int_equal(show_samples(f, set, 103, 1, &texts), 104);
    assert_int_equal(texts.count, 100);
    assert_int_equal(show_samples(f, set, 103, 1, NULL), 104);
    xr_sample_texts_free(&texts);
    xr_dataset_close(set);
    xr_str_free(&text);
}

/* A batch has a bound, and so has its memory, however many rows there are. */
static void a_batch_without_a_size_has_a_thousand_rows_at_most(void **state)
{
    static const struct {
        int rows;
        int64_t size;
        uint32_t batch;
    } cases[] = { { 1023, 0, 1023 },
                  { 1024, 0, 1024 },
                  { 1030, 0, 1024 },
                  { 1030, 1029, 1029 },
                  { 1030, 2048, 1030 } };
    fixture *f = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        xr_str text = { 0 };
        xr_validation v;
        xr_err err = { "" };
        for (int k = 0; k < cases[i].rows; k++)
            xr_str_puts(&text, "{\"prompt\":\"a\",\"answer\":\"\"}\n");
        xr_dataset *set = rig_open_rows(f, xr_str_text(&text));
        f->run.ini.data.max_response_length = MOST;
        f->run.ini.data.val_batch_size = cases[i].size;
        assert_int_equal(xr_validation_init(&v, &f->roles, set, &err), XRAY_OK);
        assert_int_equal(v.batch, cases[i].batch);
        xr_validation_free(&v);
        xr_dataset_close(set);
        xr_str_free(&text);
    }
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(validation_is_a_mean_by_source),
        CASE(validation_accepts_any_number_of_rows),
        CASE(a_batch_without_a_size_has_a_thousand_rows_at_most),
        CASE(validation_ignores_ends_if_asked),
        CASE(validation_keeps_its_samples),
        CASE(shown_samples_are_spread_over_the_set),
        CASE(trackers_get_a_hundred_samples_at_most),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
