/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves how the rewards and trackers that an INI lists are found, and what is
 * said of those that are not.
 */
#include "tests/scratch.h"

#include "core/run/reward_model.h"
#include "core/run/run_setup.h"

static xr_run run;
static xr_errors errors;
static const char *names[17];

/* Begins with an INI and no plugin but those beside this program. */
static void read_ini(const char *ini, uint32_t with)
{
    xr_err err = { "" };
    xr_errors_free(&errors);
    if (run.config) {
        xr_run_drop_parts(&run);
        xr_config_free(run.config);
        xr_plugins_close(run.plugins);
    }
    run = (xr_run){ .config = xr_config_new(), .with = with };
    assert_int_equal(xr_plugins_open(NULL, &err, &run.plugins), XRAY_OK);
    xr_config_read(run.config, scratch_write("run.ini", ini), &errors);
    assert_int_equal(errors.count, 0);
}

static int end_test(void **state)
{
    (void)state;
    xr_errors_free(&errors);
    xr_run_drop_parts(&run);
    xr_config_free(run.config);
    xr_plugins_close(run.plugins);
    run = (xr_run){ .config = NULL };
    return 0;
}

/* Expects one error with both texts, the second at its end. */
static void expect_error(const char *text, const char *end)
{
    if (errors.count != 1 || !strstr(errors.items[0], text))
        fail_msg("%zu errors: %s", errors.count,
                 errors.count ? errors.items[0] : "");
    const size_t size = strlen(errors.items[0]);
    assert_true(size >= strlen(end));
    assert_string_equal(errors.items[0] + size - strlen(end), end);
}

/* ---- trackers -------------------------------------------------------------
 */

static void unknown_loggers_get_advice(void **state)
{
    static const struct {
        const char *name;
        const char *advice; /* NULL: none */
    } cases[] = {
        { "consol", "; did you mean console?" },
        { "cnsle", "; did you mean console?" },
        { "cnsl", NULL },
        { "jsonlines", NULL },
        { "jsnl", "; did you mean jsonl?" },
        { "jso", "; did you mean jsonl?" },
        { "js", NULL },
        { "json", "; did you mean jsonl?" },
        { "file", "; did you mean jsonl?" },
        { "stdout", "; did you mean console?" },
        { "tb", "; did you mean tensorboard?" },
        { "csv", "; jsonl writes a file, one line for each step" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char want[80];
        read_ini("[trainer]\nlogger = x\n", XR_WITH_TRACKER);
        names[0] = "console";
        names[1] = cases[i].name;
        names[2] = "jsonl";
        run.ini.trainer.logger = (xray_list){ .items = names, .count = 3 };
        xr_run_find_trackers(&run, &errors);
        (void)snprintf(want, sizeof(want),
                       "run.ini:2: [trainer] logger: '%s' is neither",
                       cases[i].name);
        expect_error(want, cases[i].advice ? cases[i].advice : "");
        if (!cases[i].advice)
            assert_null(strstr(errors.items[0], "did you mean"));
        (void)snprintf(want, sizeof(want),
                       "no plugin provides xray.tracker/0:%s", cases[i].name);
        assert_non_null(strstr(errors.items[0], want));
        assert_int_equal(run.tracker_count, 0);
    }
}

/* ---- rewards --------------------------------------------------------------
 */

static void list_rewards(uint64_t count)
{
    run.ini.run.reward = (xray_list){ .items = names, .count = count };
    xr_run_find_rewards(&run, &errors);
}

static void the_list_of_rewards_is_checked(void **state)
{
    (void)state;
    for (size_t i = 0; i < 17; i++)
        names[i] = "none";
    read_ini("[run]\nreward = none\n", XR_WITH_REWARD);
    list_rewards(17);
    expect_error("[run] reward lists 17 instances, at most 16 are allowed", "");
    assert_int_equal(run.reward_count, 0);
    read_ini("[run]\nreward = none\n", XR_WITH_REWARD);
    list_rewards(16);
    assert_int_equal(errors.count, 16); /* each of them is unknown */
    assert_int_equal(run.reward_count, 16);
    read_ini("[run]\nreward =\n", XR_WITH_REWARD);
    list_rewards(0);
    expect_error("run.ini:2: [run] reward is not set; it lists instances", "");
    /* A section that nothing lists, beside the default. */
    read_ini("[reward.other]\nweight = 2\n[reward.more]\nweight = 2\n",
             XR_WITH_REWARD);
    list_rewards(0);
    assert_int_equal(errors.count, 2);
    assert_non_null(strstr(errors.items[0],
                           "nothing would read [reward.other]; expected "
                           "reward = other, or a list of others"));
    read_ini("[reward.other]\nweight = 2\n[reward.rule]\nweight = 2\n",
             XR_WITH_REWARD);
    list_rewards(0);
    assert_int_equal(errors.count, 1);
}

static void unknown_rewards_get_advice(void **state)
{
    static const struct {
        const char *ini, *name, *says, *end;
    } cases[] = {
        { "[run]\nreward = answer\n[reward.anwser]\nweight = 1\n", "answer",
          "there is no section [reward.answer], and",
          "; did you mean [reward.anwser]?" },
        { "[run]\nreward = answer\n[reward.grades]\nweight = 1\n", "answer",
          "there is no section [reward.answer], and", "" },
        { "[run]\nreward = ab\n[reward.ax]\nweight = 1\n", "ab",
          "there is no section [reward.ab], and",
          "; did you mean [reward.ax]?" },
        { "[run]\nreward = ab\n[reward.xy]\nweight = 1\n", "ab",
          "there is no section [reward.ab], and", "" },
        /* Two letters may differ from five on. */
        { "[run]\nreward = abcd\n[reward.abxy]\nweight = 1\n", "abcd",
          "there is no section [reward.abcd], and", "" },
        { "[run]\nreward = abcde\n[reward.abcxy]\nweight = 1\n", "abcde",
          "there is no section [reward.abcde], and",
          "; did you mean [reward.abcxy]?" },
        { "[run]\nreward = answer\n[reward.answer]\nweight = 1\n", "answer",
          "[reward.answer] plugin is not set, and",
          "; a section that sets grader belongs to rule" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        read_ini(cases[i].ini, XR_WITH_REWARD);
        names[0] = cases[i].name;
        list_rewards(1);
        char want[80];
        expect_error(cases[i].says, cases[i].end);
        (void)snprintf(want, sizeof(want),
                       "no plugin provides xray.reward/0:%s", cases[i].name);
        assert_non_null(strstr(errors.items[0], want));
        if (!*cases[i].end)
            assert_null(strstr(errors.items[0], "did you mean"));
    }
}

#define TRAIN (XR_WITH_REWARD | XR_WITH_TRAIN | XR_WITH_ALGO)

/* A run has at most one reward model, and only if it trains. */
static void a_reward_model_belongs_to_a_training_run(void **state)
{
    static const char ini[] = "[run]\nreward = judge, again\n"
                              "[reward.judge]\nplugin = model\npath = a/b\n"
                              "weight = 0.5\n"
                              "[reward.again]\nplugin = model\npath = c\n";
    (void)state;
    names[0] = "judge";
    names[1] = "again";
    read_ini(ini, TRAIN);
    list_rewards(1);
    assert_int_equal(errors.count, 0);
    assert_int_equal(run.reward_count, 1);
    const xr_part *part = &run.rewards[0];
    assert_ptr_equal(part->component, &xr_reward_model_component);
    assert_string_equal(part->instance, "reward.judge");
    assert_true(part->weight == 0.5);
    assert_string_equal(run.reward_model_config->path, "a/b");
    assert_string_equal(((const xr_reward_model_config *)part->config)->path,
                        "a/b");
    assert_true((const void *)part->config !=
                (const void *)run.reward_model_config);
    read_ini(ini, TRAIN);
    list_rewards(2);
    expect_error("run.ini:8: [reward.again] plugin: model: the run has one "
                 "already",
                 "");
    for (int i = 0; i < 2; i++) {
        read_ini(ini, TRAIN & ~(i ? XR_WITH_TRAIN : XR_WITH_ALGO));
        list_rewards(1);
        expect_error("run.ini:4: [reward.judge] plugin: model: only xray train "
                     "has one",
                     "");
        assert_null(run.reward_model_config);
    }
    /* A Workhorse has the model, and no reward. */
    read_ini(ini, XR_WITH_TRAIN | XR_WITH_ALGO);
    run.ini.run.reward = (xray_list){ .items = names, .count = 1 };
    xr_run_find_reward_model(&run, &errors);
    assert_int_equal(errors.count, 0);
    assert_int_equal(run.reward_count, 0);
    assert_string_equal(run.reward_model_config->path, "a/b");
    names[0] = "other"; /* not a model */
    read_ini("[run]\nreward = other\n[reward.other]\ngrader = x\n",
             XR_WITH_TRAIN | XR_WITH_ALGO);
    run.ini.run.reward = (xray_list){ .items = names, .count = 1 };
    xr_run_find_reward_model(&run, &errors);
    assert_null(run.reward_model_config);
}

#define CASE(test) cmocka_unit_test_teardown(test, end_test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(unknown_loggers_get_advice),
        CASE(the_list_of_rewards_is_checked),
        CASE(unknown_rewards_get_advice),
        CASE(a_reward_model_belongs_to_a_training_run),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
