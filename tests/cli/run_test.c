/* SPDX-License-Identifier: Apache-2.0
 *
 * xray train, sft and eval for a user: streams, exit codes, signals.
 */
#include <signal.h>

#include "core/base/str.h"
#include "tests/cli/program.h"

static char run_ini[300];

/* A run of `steps` steps on the small model. */
static void write_run(const char *steps)
{
    char model[512];
    xr_str ini = { 0 };
    (void)test_data("models/stories260K/hf/tokenizer.json", model,
                    sizeof model);
    *strrchr(model, '/') = '\0';
    (void)scratch_write("rows.jsonl",
                        "{\"prompt\":\"Once upon\",\"answer\":\"a time\"}\n"
                        "{\"prompt\":\"Lily was\",\"answer\":\"happy\"}\n");
    xr_str_printf(&ini,
                  "[run]\nreward = happy\n"
                  "[model]\npath = %s\n"
                  "[data]\ntrain_files = rows.jsonl\nval_files = rows.jsonl\n"
                  "max_prompt_length = 16\nmax_response_length = 8\n"
                  "train_batch_size = 2\n"
                  "[rollout]\nn = 4\n"
                  "[actor]\nppo_max_token_len_per_gpu = 256\n"
                  "[trainer]\ntotal_training_steps = %s\n"
                  "default_local_dir = out\nresume_mode = disable\n"
                  "logger = jsonl\n"
                  "[sft]\ntrain_batch_size = 2\ntotal_steps = 2\n"
                  "max_token_len = 256\n"
                  "[reward.happy]\ngrader = regex\npattern = happy\n"
                  "match_only = true\n",
                  model, steps);
    (void)snprintf(run_ini, sizeof run_ini, "%s",
                   scratch_write("run.ini", xr_str_text(&ini)));
    xr_str_free(&ini);
    (void)xr_dir_remove(scratch_path("out"), NULL);
}

static void report_goes_to_stdout(void **state)
{
    (void)state;
    write_run("3");
    const program_result *r = RUN(NULL, "train", run_ini);
    expect_code(r, 0);
    assert_string_equal(r->err, "");
    expect_text(r->out, "3 steps in ");
    expect_text(r->out, "\nvalidation ");
    expect_text(r->out, "\ncheckpoint ");
    assert_true(xr_path_exists(scratch_path("out/metrics.jsonl")));
    char model[300];
    (void)snprintf(model, sizeof model, "model.path=%s", scratch_path("out"));
    /* The folder of the run means its newest checkpoint. */
    r = RUN(NULL, "eval", run_ini, "--set", model);
    expect_code(r, 0);
    expect_text(r->out, "val-core/");
    write_run("3");
    r = RUN(NULL, "sft", run_ini, "--set=trainer.logger=console");
    expect_code(r, 0);
    expect_text(r->out, "2 steps in ");
    expect_text(r->err, "step 2/2");
    assert_null(strstr(r->out, "step 2/2"));
}

/* The same INI and seed give weights with the same bits. */
static void same_seed_gives_same_bits(void **state)
{
    (void)state;
    char *first = NULL;
    char *second = NULL;
    size_t first_size = 0;
    size_t second_size = 0;
    const char *file = "out/global_step_2/actor/model.safetensors";
    for (int i = 0; i < 2; i++) {
        write_run("2");
        expect_code(RUN(NULL, "train", run_ini,
                        i ? "--set=run.threads=1" : "--set=run.threads=2"),
                    0);
        assert_int_equal(xr_file_read(scratch_path(file), 1u << 30, NULL,
                                      i ? &second : &first,
                                      i ? &second_size : &first_size),
                         XRAY_OK);
    }
    assert_int_equal(first_size, second_size);
    assert_memory_equal(first, second, first_size);
    free(first);
    free(second);
}

/* The step is completed, a checkpoint is written, and the exit code names the
 * signal. */
static void signal_ends_a_run_with_its_step(void **state)
{
    (void)state;
    static const int signals[] = { SIGTERM, SIGINT };
    for (size_t i = 0; i < 2; i++) {
        write_run("100000");
        const char *const args[] = { "train", run_ini, "--set",
                                     "trainer.project_name=it's", NULL };
        const program_result *r = program_kill(
            args, scratch_path("out/metrics.jsonl"), signals[i], 1);
        expect_code(r, 128 + signals[i]);
        expect_text(r->err, signals[i] == SIGINT ? "SIGINT" : "SIGTERM");
        /* The INI disables resuming; the printed command enables it. */
        expect_text(r->err, " --set 'trainer.project_name=it'\\''s' --set "
                            "trainer.resume_mode=auto\n");
        expect_text(r->out, "\ncheckpoint ");
        assert_true(xr_path_exists(
            scratch_path("out/latest_checkpointed_iteration.txt")));
    }
}

static void second_signal_stops_at_once(void **state)
{
    (void)state;
    write_run("100000");
    const char *const args[] = { "train", run_ini, NULL };
    const program_result *r =
        program_kill(args, scratch_path("out/metrics.jsonl"), SIGINT, 3);
    expect_code(r, 128 + SIGINT);
}

/* A run that began at a checkpoint of its own choice goes on from its newest.
 */
static void resume_command_drops_a_chosen_checkpoint(void **state)
{
    (void)state;
    char from[400];
    char to[400];
    write_run("2");
    expect_code(RUN(NULL, "train", run_ini), 0);
    (void)snprintf(from, sizeof from, "--set=trainer.resume_from_path=%s",
                   scratch_path("out/global_step_2"));
    (void)snprintf(to, sizeof to, "--set=trainer.default_local_dir=%s",
                   scratch_path("further"));
    const char *const args[] = { "train",
                                 run_ini,
                                 "--set=trainer.resume_mode=resume_path",
                                 "--set=trainer.total_training_steps=100000",
                                 from,
                                 to,
                                 NULL };
    const program_result *r =
        program_kill(args, scratch_path("further/metrics.jsonl"), SIGTERM, 1);
    expect_code(r, 128 + SIGTERM);
    expect_text(r->err, " --set trainer.resume_mode=auto --set "
                        "trainer.resume_from_path=\n");
    assert_int_equal(xr_dir_remove(scratch_path("further"), NULL), XRAY_OK);
}

/* An engine that waits in its first step until program_kill releases it; it
 * first writes to the file that is returned. */
static const char *make_waiting_engine(void)
{
    static char flag[300];
    (void)snprintf(flag, sizeof flag, "%s", scratch_path("flag.go"));
    (void)remove(flag);
    (void)snprintf(flag, sizeof flag, "%s", scratch_path("flag"));
    (void)remove(flag);
    assert_int_equal(setenv("SICK", "infer-wait", 1), 0);
    assert_int_equal(setenv("SICK_AT", "1", 1), 0);
    assert_int_equal(setenv("SICK_FLAG", flag, 1), 0);
    return flag;
}

static const char *sick_folder(void)
{
    static char folder[300];
    (void)snprintf(folder, sizeof folder, "%s/tests/sick",
                   getenv("XRAY_BUILD"));
    return folder;
}

/* The exact messages after signals: a validation cannot be resumed. */
static void signals_are_answered_to_the_word(void **state)
{
    (void)state;
    char want[1400];
    const char *flag = make_waiting_engine();
    write_run("100000");
    const char *args[] = { "eval",
                           run_ini,
                           "--plugin-path",
                           sick_folder(),
                           "--set=run.infer=sick",
                           "--set",
                           "trainer.project_name=",
                           "--set",
                           "trainer.project_name=a b;$c*~",
                           "--set=trainer.experiment_name=@,+%:/._-=Zz09",
                           NULL };
    const program_result *r = program_kill(args, flag, SIGTERM, 1);
    expect_code(r, 128 + SIGTERM);
    assert_string_equal(r->err,
                        "xray: stopping; a second signal stops at once\n"
                        "xray: stopped by SIGTERM\n");
    expect_text(r->out, "val-core/");
    (void)make_waiting_engine();
    r = program_kill(args, flag, SIGINT, 2);
    expect_code(r, 128 + SIGINT);
    assert_string_equal(r->err,
                        "xray: stopping; a second signal stops at once\n"
                        "xray: stopped at once\n");
    args[0] = "train";
    (void)make_waiting_engine();
    r = program_kill(args, flag, SIGTERM, 2);
    expect_code(r, 128 + SIGTERM);
    (void)snprintf(
        want, sizeof want,
        "xray: stopping after this step, with a checkpoint; a second signal "
        "stops at once\nxray: stopped at once; no checkpoint was written; "
        "resume from the last one with: %s train %s --plugin-path %s "
        "--set=run.infer=sick "
        "--set trainer.project_name= --set 'trainer.project_name=a b;$c*~' "
        "--set=trainer.experiment_name=@,+%%:/._-=Zz09 --set "
        "trainer.resume_mode=auto\n",
        getenv("XRAY_BIN"), run_ini, sick_folder());
    assert_string_equal(r->err, want);
    (void)unsetenv("SICK");
    (void)unsetenv("SICK_AT");
    (void)unsetenv("SICK_FLAG");
}

/* A call that takes a minute is left after two seconds, or by a third signal,
 * which the exit code then tells. */
static void calls_that_do_not_end_are_left(void **state)
{
    (void)state;
    static const int codes[] = { 128 + SIGTERM, 128 + SIGINT };
    static const char *const thirds[] = { "kill -TERM $run", "true" };
    write_run("1");
    assert_int_equal(setenv("RUN_INI", run_ini, 1), 0);
    for (size_t i = 0; i < 2; i++) {
        (void)make_waiting_engine();
        assert_int_equal(setenv("THIRD", thirds[i], 1), 0);
        const program_result *r = program_shell(
            "exec 2>\"$XRAY_SCRATCH/said\"\n"
            "said() { until grep -q \"$1\" \"$XRAY_SCRATCH/said\"; do kill -0 "
            "$run || exit 99; done; }\n"
            "env --default-signal=INT \"$XRAY_BIN\" train \"$RUN_INI\" --set "
            "run.infer=sick --plugin-path \"$XRAY_BUILD/tests/sick\" & run=$!\n"
            "until [ -s \"$SICK_FLAG\" ]; do kill -0 $run || exit 99; done\n"
            "kill -INT $run && said 'a second signal stops' && kill -INT $run "
            "&& said 'stopped at once' && eval \"$THIRD\"\n"
            "begin=$(date +%s); wait $run; code=$?\n"
            "[ $(($(date +%s) - begin)) -lt 30 ] || exit 97\n"
            "[ $(grep -c 'stopped at once' $XRAY_SCRATCH/said) = 1 ] || exit "
            "98\n"
            "exit $code\n");
        expect_code(r, codes[i]);
    }
    (void)unsetenv("SICK");
    (void)unsetenv("SICK_AT");
    (void)unsetenv("SICK_FLAG");
}

/* A shell starts background jobs so: an interrupt is for the one in front. */
static void ignored_interrupts_stay_ignored(void **state)
{
    (void)state;
    (void)make_waiting_engine();
    write_run("1");
    assert_int_equal(setenv("RUN_INI", run_ini, 1), 0);
    const program_result *r = program_shell(
        "\"$XRAY_BIN\" train \"$RUN_INI\" --set run.infer=sick "
        "--plugin-path \"$XRAY_BUILD/tests/sick\" & run=$!\n"
        "until [ -s \"$SICK_FLAG\" ]; do kill -0 $run || exit 99; done\n"
        "kill -INT $run && : >\"$SICK_FLAG.go\" && wait $run\n");
    expect_code(r, 0);
    expect_text(r->out, "1 steps in ");
    assert_null(strstr(r->err, "stop"));
    (void)unsetenv("SICK");
    (void)unsetenv("SICK_AT");
    (void)unsetenv("SICK_FLAG");
}

static void faults_of_a_run_are_reported(void **state)
{
    (void)state;
    write_run("2");
    const program_result *r =
        RUN(NULL, "train", run_ini, "--set", "actor.optim.lr=quick", "--set",
            "rollout.m=3");
    expect_code(r, 2);
    assert_string_equal(r->out, "");
    expect_text(r->err, "[actor.optim] lr");
    expect_text(r->err, "[rollout] m");
    (void)scratch_write("rows.jsonl", "{\"prompt\":\n");
    r = RUN(NULL, "train", run_ini);
    expect_code(r, 2);
    expect_text(r->err, "rows.jsonl:1");
}

/* Reads the gradient norms of a run of three steps from its metrics. */
static void read_gradient_norms(const char *rewards, const char *more,
                                const char *preset, char *out, size_t cap)
{
    char reward[64];
    char algo[64];
    char *text = NULL;
    size_t size = 0;
    write_run("3");
    (void)snprintf(reward, sizeof reward, "run.reward=%s", rewards);
    (void)snprintf(algo, sizeof algo, "algo.grpo.preset=%s", preset);
    expect_code(RUN(NULL, "train", run_ini, "--set", algo, "--set",
                    "actor.optim.lr=1e-3", "--set", "rollout.n=2", "--set",
                    "reward.happy.pattern=s", "--set", "reward.any.plugin=rule",
                    "--set", "reward.any.grader=regex", "--set",
                    "reward.any.pattern=.", "--set",
                    "reward.any.match_only=true", "--set", reward, "--set",
                    more),
                0);
    assert_int_equal(xr_file_read(scratch_path("out/metrics.jsonl"), 1u << 20,
                                  NULL, &text, &size),
                     XRAY_OK);
    out[0] = '\0';
    static const char key[] = "\"actor/grad_norm\":";
    for (char *at = text; (at = strstr(at, key)); at++) {
        size_t used = strlen(out);
        const char *value = at + sizeof key - 1;
        (void)snprintf(out + used, cap - used, "%.*s ",
                       (int)strcspn(value, ","), value);
    }
    free(text);
}

/* gdpo uses the score of every reward: one that is equal for all samples
 * changes no bit, whatever its position, and the sum of the scores is not used.
 */
static void rewards_are_scored_separately(void **state)
{
    (void)state;
    static const char *const picks[] = { "algo.grpo.filter_groups=false",
                                         "algo.grpo.filter_groups=true" };
    char alone[400];
    char both[400];
    for (int i = 0; i < 2; i++) {
        read_gradient_norms("happy", picks[i], "gdpo", alone, sizeof alone);
        read_gradient_norms("any, happy", picks[i], "gdpo", both, sizeof both);
        assert_true(strlen(alone) > 5);
        assert_string_equal(both, alone);
    }
    /* All groups that are kept have one score of 0 and one of 1, so that gdpo
     * divides every row by the same: whitened, that is the plain baseline. */
    read_gradient_norms("happy", picks[1], "reinforce_plus_plus_baseline", both,
                        sizeof both);
    const char *a = alone;
    const char *b = both;
    while (*a && *b) {
        char *end = NULL;
        double x = strtod(a, &end);
        a = end + 1;
        double y = strtod(b, &end);
        b = end + 1;
        assert_true(x > 0 && x < y * 1.001 && y < x * 1.001);
    }
    assert_true(!*a && !*b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(report_goes_to_stdout),
        cmocka_unit_test(same_seed_gives_same_bits),
        cmocka_unit_test(signal_ends_a_run_with_its_step),
        cmocka_unit_test(second_signal_stops_at_once),
        cmocka_unit_test(resume_command_drops_a_chosen_checkpoint),
        cmocka_unit_test(signals_are_answered_to_the_word),
        cmocka_unit_test(calls_that_do_not_end_are_left),
        cmocka_unit_test(ignored_interrupts_stay_ignored),
        cmocka_unit_test(faults_of_a_run_are_reported),
        cmocka_unit_test(rewards_are_scored_separately),
    };
    return cmocka_run_group_tests_name("cli.run", tests, scratch_make,
                                       program_done);
}
