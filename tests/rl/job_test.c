/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what xray train, sft and eval have in common: restarts, locked
 * folders, what a step leaves on disk, and the report.
 */
#define _GNU_SOURCE /* F_OFD_SETLK */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>

#include "core/base/process.h"
#include "core/plugin/cancel.h"
#include "core/rl/job.h"
#include "tests/rl/fake_roles.h"
#include "tests/scratch.h"

/* ---- standard error ----------------------------------------------------- */

static int kept_stderr = -1;

static void catch_stderr(void)
{
    int fd = open(scratch_path("err"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    (void)fflush(stderr);
    kept_stderr = dup(2);
    assert_true(dup2(fd, 2) == 2);
    (void)close(fd);
}

/* Returns what was printed since, for the caller to free. */
static char *stderr_text(void)
{
    char *text = NULL;
    size_t size = 0;
    (void)fflush(stderr);
    assert_true(dup2(kept_stderr, 2) == 2);
    (void)close(kept_stderr);
    assert_int_equal(
        xr_file_read(scratch_path("err"), 1u << 16, NULL, &text, &size),
        XRAY_OK);
    return text;
}

/* ---- restarts ----------------------------------------------------------- */

static struct {
    xray_status status[8];  /* status of each attempt */
    const char *written[8]; /* checkpoint that it leaves */
    char from[8][64];       /* checkpoint that it was told to resume from */
    uint32_t calls;
    volatile sig_atomic_t stop;
    uint32_t stop_at; /* attempt in which the stop flag is set */
} tries;

static xray_status record_attempt(const xr_run_args *args, xr_err *err,
                                  xr_run_result *out)
{
    uint32_t i = tries.calls++;
    assert_true(i < 8);
    assert_string_equal(err->text, "");
    assert_null(out->report.data);
    (void)snprintf(tries.from[i], sizeof(tries.from[i]), "%s",
                   args->resume_from ? args->resume_from : "-");
    (void)snprintf(out->checkpoint, sizeof(out->checkpoint), "%s",
                   tries.written[i] ? tries.written[i] : "");
    xr_str_puts(&out->report, "report");
    if (tries.stop_at == i + 1)
        tries.stop = 1;
    return tries.status[i] == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, tries.status[i], "lost %u", i);
}

/* Runs attempts under [run] max_restarts; returns the status of the last one.
 */
static xray_status run_attempts(const char *most, const char *resume_from,
                                xr_run_result *out, char **out_said)
{
    xr_errors errors = { 0 };
    xr_err err = { "" };
    xr_config *config = xr_config_new();
    if (most)
        xr_config_set(config, most, &errors);
    const xr_run_args args = { .config = config,
                               .stop = &tries.stop,
                               .resume_from = resume_from };
    *out = (xr_run_result){ .restarts = 99 };
    tries.calls = 0;
    tries.stop = 0;
    catch_stderr();
    xray_status status = xr_job_attempts(&args, record_attempt, &err, out);
    *out_said = stderr_text();
    xr_str_free(&out->report);
    xr_config_free(config);
    return status;
}

static void expect_attempts(const char *most, uint32_t calls,
                            xray_status status, const char *said)
{
    xr_run_result r;
    char *text = NULL;
    assert_int_equal(run_attempts(most, NULL, &r, &text), status);
    assert_int_equal(tries.calls, calls);
    assert_int_equal(r.restarts, calls - 1);
    assert_string_equal(text, said);
    free(text);
}

static void lost_workhorses_are_replaced(void **state)
{
    (void)state;
    memset(&tries, 0, sizeof(tries));
    for (int i = 0; i < 8; i++)
        tries.status[i] = XRAY_E_PEER;
    tries.written[1] = "step_4";
    expect_attempts(NULL, 1, XRAY_E_PEER, "");
    expect_attempts("run.max_restarts=0", 1, XRAY_E_PEER, "");
    expect_attempts("run.max_restarts=2", 3, XRAY_E_PEER,
                    "xray: warning: lost 0; restart 1 of 2 from the "
                    "beginning\n"
                    "xray: warning: lost 1; restart 2 of 2 from step_4\n");
    assert_string_equal(tries.from[0], "-");
    assert_string_equal(tries.from[1], "-");
    assert_string_equal(tries.from[2], "step_4");
    xr_run_result r;
    char *text =
        NULL; /* the caller's checkpoint is used until there is a newer one */
    assert_int_equal(run_attempts("run.max_restarts=2", "given", &r, &text),
                     XRAY_E_PEER);
    assert_string_equal(tries.from[0], "given");
    assert_string_equal(tries.from[1], "given");
    assert_string_equal(tries.from[2], "step_4");
    free(text);
    tries.status[1] = XRAY_OK; /* the second attempt succeeds */
    expect_attempts("run.max_restarts=5", 2, XRAY_OK,
                    "xray: warning: lost 0; restart 1 of 5 from the "
                    "beginning\n");
    tries.status[0] = XRAY_E_BUG; /* another error gives no restart */
    expect_attempts("run.max_restarts=5", 1, XRAY_E_BUG, "");
    tries.status[0] = XRAY_E_PEER;
    tries.stop_at = 1; /* a run that was stopped is not restarted */
    expect_attempts("run.max_restarts=5", 1, XRAY_E_PEER, "");
}

/* Calls of a run that is canceled fail in any order and for any reason. */
static void a_canceled_job_is_no_failed_one(void **state)
{
    (void)state;
    static const xray_status causes[] = { XRAY_E_CANCELED, XRAY_E_PEER,
                                          XRAY_E_BUG };
    memset(&tries, 0, sizeof(tries));
    for (size_t i = 0; i < 3; i++) {
        tries.status[0] = causes[i];
        xr_cancel();
        expect_attempts("run.max_restarts=5", 1, XRAY_E_CANCELED, "");
        xr_cancel_reset();
    }
    tries.status[0] = XRAY_OK; /* it was at its end already */
    xr_cancel();
    expect_attempts("run.max_restarts=5", 1, XRAY_OK, "");
    xr_cancel_reset();
    /* A plugin that ends a call for no reason has failed. */
    tries.status[0] = XRAY_E_CANCELED;
    expect_attempts("run.max_restarts=5", 1, XRAY_E_CANCELED, "");
}

/* ---- folders ------------------------------------------------------------ */

static xr_run run;
static xr_roles roles;

/* Makes a job of the kind, whose folders are `local`, `rollout` and
 * `validation`. */
static xr_job make_job(const char *kind)
{
    static char paths[3][256];
    static const char *const names[] = { "local", "rollout", "validation" };
    for (int i = 0; i < 3; i++)
        (void)snprintf(paths[i], sizeof(paths[i]), "%s",
                       scratch_path(names[i]));
    run.ini.trainer.default_local_dir = paths[0];
    run.ini.trainer.rollout_data_dir = paths[1];
    run.ini.trainer.validation_data_dir = paths[2];
    return (xr_job){ .kind = kind, .run = &run };
}

static void drop_folders(void)
{
    (void)xr_dir_remove(scratch_path("local"), NULL);
    (void)xr_dir_remove(scratch_path("rollout"), NULL);
    (void)xr_dir_remove(scratch_path("validation"), NULL);
}

static void a_job_locks_its_folders(void **state)
{
    (void)state;
    static const struct {
        const char *kind;
        int makes[3];
    } kinds[] = { { "train", { 1, 1, 1 } },
                  { "sft", { 1, 0, 1 } },
                  { "eval", { 0, 0, 1 } } };
    static const char *const names[] = { "local", "rollout", "validation" };
    static const char *const keys[] = { "default_local_dir", "rollout_data_dir",
                                        "validation_data_dir" };
    for (size_t k = 0; k < 3; k++) {
        xr_job job = make_job(kinds[k].kind);
        xr_err err = { "" };
        drop_folders();
        assert_int_equal(xr_job_lock(&job, 0, &err), XRAY_OK);
        for (int i = 0; i < 3; i++)
            assert_false(xr_path_exists(scratch_path(names[i])));
        assert_int_equal(xr_job_lock(&job, 1, &err), XRAY_OK);
        for (int i = 0; i < 3; i++)
            assert_int_equal(xr_path_exists(scratch_path(names[i])),
                             kinds[k].makes[i]);
        assert_int_equal(xr_job_lock(&job, 1, &err),
                         XRAY_OK); /* already locked */
        for (int i = 0; i < 3; i++) {
            xr_job other = make_job("train");
            const char *const paths[3] = {
                i == 0 ? run.ini.trainer.default_local_dir : NULL,
                i == 1 ? run.ini.trainer.rollout_data_dir : "",
                i == 2 ? run.ini.trainer.validation_data_dir : ""
            };
            char want[100];
            run.ini.trainer.default_local_dir = paths[0];
            run.ini.trainer.rollout_data_dir = paths[1];
            run.ini.trainer.validation_data_dir = paths[2];
            err.text[0] = '\0';
            int taken = kinds[k].makes[i];
            assert_int_equal(xr_job_lock(&other, 0, &err),
                             taken ? XRAY_E_STATE : XRAY_OK);
            (void)snprintf(want, sizeof(want),
                           "; wait for it, or give this one another [trainer] "
                           "%s",
                           keys[i]);
            if (taken)
                assert_string_equal(strchr(err.text, ';'), want);
            xr_job_unlock(&other);
        }
        xr_job_unlock(&job);
        xr_job again = make_job("train"); /* the folders are free now */
        assert_int_equal(xr_job_lock(&again, 1, &err), XRAY_OK);
        xr_job_unlock(&again);
    }
    drop_folders();
}

/* Two keys may name the same folder. */
static void one_folder_is_locked_once(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_job job = make_job("train");
    run.ini.trainer.rollout_data_dir = run.ini.trainer.default_local_dir;
    run.ini.trainer.validation_data_dir = run.ini.trainer.default_local_dir;
    assert_int_equal(xr_job_lock(&job, 1, &err), XRAY_OK);
    assert_true(job.locks[0].held && !job.locks[1].held && !job.locks[2].held);
    xr_job_unlock(&job);
    drop_folders();
}

/* The linker leads calls of fcntl through this suite. */
static int no_locks;
int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
    va_list list;
    va_start(list, command);
    void *value = va_arg(list, void *);
    va_end(list);
    if (no_locks && command == F_OFD_SETLK) {
        errno = ENOLCK;
        return -1;
    }
    return __real_fcntl(fd, command, value);
}

/* A run on a file system without locks goes on, and says what it lacks. */
static void a_file_system_without_locks_gives_a_warning(void **state)
{
    (void)state;
    char want[600];
    xr_err err = { "" };
    xr_job job = make_job("train");
    run.ini.trainer.rollout_data_dir = NULL;
    run.ini.trainer.validation_data_dir = NULL;
    no_locks = 1;
    catch_stderr();
    xray_status status = xr_job_lock(&job, 1, &err);
    char *text = stderr_text();
    no_locks = 0;
    assert_int_equal(status, XRAY_OK);
    (void)snprintf(want, sizeof(want),
                   "xray: warning: %s: its file system does not support locks",
                   scratch_path("local"));
    assert_int_equal(strncmp(text, want, strlen(want)), 0);
    free(text);
    xr_job_unlock(&job);
    drop_folders();
}

/* ---- steps -------------------------------------------------------------- */

static xray_status save_model(void *self, const char *dir)
{
    (void)self;
    (void)dir;
    return XRAY_OK;
}

static const char *const watch[] = { "score", NULL };
static char steps_dir[256];
static char steps_model[256];

/* Begins a job of six steps that writes metrics and checkpoints to a fresh
 * folder. */
static xr_job begin_steps(int64_t save_freq, xr_run_result *result)
{
    static const xray_train_ops ops = { .header = XRAY_HEADER(xray_train_ops),
                                        .save = save_model };
    static const char *const loggers[] = { "jsonl" };
    static const xr_run_args args;
    xr_err err = { "" };
    char file[300];
    (void)snprintf(steps_dir, sizeof(steps_dir), "%s", scratch_path("steps"));
    (void)snprintf(steps_model, sizeof(steps_model), "%s",
                   scratch_path("model"));
    (void)snprintf(file, sizeof(file), "%s/metrics.jsonl", steps_dir);
    assert_int_equal(xr_dir_remove(steps_dir, &err), XRAY_OK);
    assert_int_equal(xr_dir_make(steps_dir, &err), XRAY_OK);
    assert_int_equal(xr_dir_make(steps_model, &err), XRAY_OK);
    run =
        (xr_run){ .config = xr_config_new(),
                  .actor = { .path = steps_model, .model.path = steps_model } };
    run.train = (xr_part){ .ops = &ops, .instance = "train.fake" };
    make_fake_roles(&run, &roles);
    roles.actor.self = &run;
    run.ini.trainer.default_local_dir = steps_dir;
    run.ini.trainer.save_freq = save_freq;
    run.ini.trainer.logger = (xray_list){ .items = loggers, .count = 1 };
    xr_job job = { .args = &args,
                   .kind = "train",
                   .run = &run,
                   .roles = &roles,
                   .metrics = xr_metrics_new(),
                   .total_steps = 6,
                   .saved_step = UINT64_MAX,
                   .curve = calloc(7, sizeof(double)),
                   .curve_name = "score",
                   .result = result };
    job.progress.kind = "train";
    assert_int_equal(xr_history_begin(&err, &job.history), XRAY_OK);
    assert_int_equal(xr_monitor_open(file, -1, 0, watch, &err, &job.monitor),
                     XRAY_OK);
    return job;
}

static void end_steps(xr_job *job)
{
    xr_monitor_close(job->monitor);
    xr_metrics_free(job->metrics);
    xr_sample_texts_free(&job->trackers.texts);
    free(job->curve);
    xr_config_free(run.config);
}

/* Expects the content of a saved step, and that ending the step again writes no
 * second line. */
static void expect_saved(xr_job *job, const char *dir, uint64_t step)
{
    xr_err err = { "" };
    xr_progress p = { .kind = "train" };
    xr_history h;
    assert_string_equal(job->result->checkpoint, dir);
    assert_true(job->saved_step == step);
    if (xr_checkpoint_read(dir, &p, &p, &err) != XRAY_OK)
        fail_msg("%s", err.text);
    assert_true(p.sampler_epoch == 40 + step);
    assert_true(p.sampler_position == 50 + step);
    if (xr_history_read(dir, &err, &h) != XRAY_OK)
        fail_msg("%s", err.text);
    assert_int_equal(h.has_lines, 1);
    assert_int_equal(h.lines.count, step + 1);
    xr_history_free(&h);
    const xr_shown_sample sample = { "p", 1, "a", 1, "", 1 };
    xr_metrics_put(job->metrics, "score", 99);
    xr_sample_texts_add(&job->trackers.texts, "train", 0, &sample);
    assert_int_equal(xr_job_step_done(job, 1, &err), XRAY_OK);
    assert_int_equal(xr_metrics_count(job->metrics), 0);
    assert_int_equal(job->trackers.texts.count, 0);
}

#define FIRST_TOKEN "\"timing_s/first_token\":"

/* Expects a line per step with its score, and the time of the first token in
 * one of them. */
static void expect_lines(void)
{
    char *text = NULL;
    size_t size = 0;
    assert_int_equal(xr_file_read(scratch_path("steps/metrics.jsonl"), 4096,
                                  NULL, &text, &size),
                     XRAY_OK);
    char *line = text;
    for (int step = 0; step <= 6; step++) {
        char begin[32];
        char score[32];
        char *end = strchr(line, '\n');
        assert_non_null(end);
        *end = '\0';
        (void)snprintf(begin, sizeof(begin), "{\"step\":%d,", step);
        (void)snprintf(score, sizeof(score), "\"score\":%d", step);
        assert_int_equal(strncmp(line, begin, strlen(begin)), 0);
        if (!strstr(line, score))
            fail_msg("%s", line);
        const char *first = strstr(line, FIRST_TOKEN);
        assert_int_equal(first != NULL, step == 0);
        if (first) {
            double seconds = strtod(first + strlen(FIRST_TOKEN), NULL);
            assert_true(seconds > 990 && seconds < 1010);
        }
        line = end + 1;
    }
    assert_string_equal(line, "");
    free(text);
}

/* Runs six steps; expects which ones are saved and what is reported. */
static void expect_steps(int64_t save_freq, int forced, const char *saved)
{
    xr_run_result result = { .steps = 0 };
    xr_err err = { "" };
    char got[64] = "";
    xr_job job = begin_steps(save_freq, &result);
    /* A token that is sampled a thousand seconds after this process began. A
     * time before it would be negative on a machine that booted just now, which
     * means that there was no token. */
    roles.first_token = xr_now() - xr_process_age() + 1000;
    for (uint64_t step = 0; step <= 6; step++) {
        char name[300];
        job.progress.step = step;
        job.sampler.epoch = 40 + step;
        job.sampler.position = 50 + step;
        xr_metrics_put(job.metrics, "score", (double)step);
        assert_int_equal(xr_job_step_done(&job, forced && step == 6, &err),
                         XRAY_OK);
        assert_true(isnan(xr_metrics_get(job.metrics, "score")));
        (void)snprintf(name, sizeof(name), "%s/global_step_%d", steps_dir,
                       (int)step);
        if (!xr_path_exists(name))
            continue;
        expect_saved(&job, name, step);
        (void)snprintf(got + strlen(got), sizeof(got) - strlen(got), "%d ",
                       (int)step);
    }
    assert_string_equal(got, saved);
    expect_lines();
    assert_int_equal(job.curve_count, 6); /* one point per step */
    job.curve_count = 5;
    xr_metrics_put(job.metrics, "other", 1);
    assert_int_equal(xr_job_step_done(&job, 0, &err), XRAY_OK);
    assert_int_equal(job.curve_count, 5); /* a step without a score has none */
    assert_true(job.curve[0] == 0 && job.curve[5] == 5);
    end_steps(&job);
}

static void steps_are_reported_and_saved(void **state)
{
    (void)state;
    expect_steps(-1, 1, "6 ");
    expect_steps(-1, 0, "");
    expect_steps(2, 0, "0 2 4 6 ");
    expect_steps(4, 1, "0 4 6 ");
}

/* A checkpoint follows the line of its step, and tells how many there are. */
static void a_step_whose_line_is_lost_is_not_saved(void **state)
{
    (void)state;
    xr_run_result result = { .steps = 0 };
    xr_err err = { "" };
    xr_job job = begin_steps(1, &result);
    xr_monitor_close(job.monitor);
    assert_int_equal(
        xr_monitor_open("/dev/full", -1, 0, watch, &err, &job.monitor),
        XRAY_OK);
    job.progress.step = 1;
    xr_metrics_put(job.metrics, "score", 1);
    assert_int_equal(xr_job_step_done(&job, 1, &err), XRAY_E_IO);
    assert_non_null(strstr(err.text, "/dev/full"));
    assert_false(xr_path_exists(scratch_path("steps/global_step_1")));
    assert_true(job.saved_step == UINT64_MAX);
    assert_string_equal(result.checkpoint, "");
    end_steps(&job);
}

static void the_stop_flag_is_read(void **state)
{
    (void)state;
    volatile sig_atomic_t flag = 0;
    xr_run_args args = { .stop = NULL };
    const xr_job job = { .args = &args };
    assert_false(xr_job_stopped(&job));
    args.stop = &flag;
    assert_false(xr_job_stopped(&job));
    flag = 1;
    assert_true(xr_job_stopped(&job));
    flag = 2;
    assert_true(xr_job_stopped(&job));
}

/* ---- the report --------------------------------------------------------- */

static void expect_report(const xr_job *from, const char *want)
{
    xr_run_result r = { .steps = 0 };
    xr_job job = *from;
    double curve[8] = { 0.5 };
    (void)snprintf(r.checkpoint, sizeof(r.checkpoint), "%s",
                   from->first_step == 3 ? "out/global_step_9" : "");
    job.result = &r;
    job.curve = curve;
    job.started = xr_now() - 10;
    xr_job_finish(&job);
    assert_true(r.seconds >= 10 && r.seconds < 12);
    assert_int_equal(r.steps, from->progress.step);
    assert_true(r.tokens_per_second <= 50 && r.tokens_per_second > 40);
    const char *text = xr_str_text(&r.report);
    const char *at = strstr(text, "tokens/s");
    assert_non_null(at);
    assert_string_equal(at + strlen("tokens/s"), want);
    char begin[32];
    (void)snprintf(
        begin, sizeof(begin), "%llu steps in 1",
        (unsigned long long)(from->progress.step - from->first_step));
    assert_int_equal(strncmp(text, begin, strlen(begin)), 0);
    xr_str_free(&r.report);
}

static void the_report_tells_the_results(void **state)
{
    (void)state;
    xr_job job = { .curve_name = "score",
                   .tokens_done = 500,
                   .progress = {
                       .step = 9, .score_before = NAN, .score_now = NAN } };
    expect_report(&job, "\n");
    job.progress.score_before = 0.25;
    job.progress.score_now = 0.5;
    expect_report(&job, "\nvalidation 0.2500 -> 0.5000\n");
    job.first_step = 3;
    expect_report(&job, "; 9 including those before the resume\nvalidation "
                        "0.2500 -> 0.5000\ncheckpoint out/global_step_9\n");
    /* A curve needs at least two points. */
    double curve[] = { 0.5, 0.25 };
    for (uint64_t points = 1; points <= 2; points++) {
        xr_run_result plotted = { .steps = 0 };
        job.curve = curve;
        job.curve_count = points;
        job.result = &plotted;
        xr_job_finish(&job);
        assert_int_equal(
            strncmp(xr_str_text(&plotted.report), "6 steps in ", 11) == 0,
            points == 1);
        xr_str_free(&plotted.report);
    }
    job.curve = NULL;
    xr_run_result r = { .steps = 0 };
    job.result = &r;
    xr_job_finish(&job); /* xray eval has no curve and no such report */
    assert_null(r.report.data);
    assert_true(r.score_before == 0.25 && r.score_after == 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lost_workhorses_are_replaced),
        cmocka_unit_test(a_canceled_job_is_no_failed_one),
        cmocka_unit_test(a_job_locks_its_folders),
        cmocka_unit_test(one_folder_is_locked_once),
        cmocka_unit_test(a_file_system_without_locks_gives_a_warning),
        cmocka_unit_test(steps_are_reported_and_saved),
        cmocka_unit_test(a_step_whose_line_is_lost_is_not_saved),
        cmocka_unit_test(the_stop_flag_is_read),
        cmocka_unit_test(the_report_tells_the_results),
    };
    return cmocka_run_group_tests_name("rl.job", tests, scratch_make,
                                       scratch_drop);
}
