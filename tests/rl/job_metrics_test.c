/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves where the metrics of a job go on, and what a validation adds to the
 * job, with an engine and a reward made for the test.
 */
#include <fcntl.h>
#include <math.h>

#include "core/rl/job.h"
#include "tests/rl/engine_rig.h"

/* ---- standard error ------------------------------------------------------ */

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

static void expect_text(const char *path, const char *want)
{
    char *text = NULL;
    size_t size = 0;
    assert_int_equal(xr_file_read(path, 1u << 16, NULL, &text, &size), XRAY_OK);
    assert_string_equal(text, want);
    free(text);
}

static void expect_stderr(const char *want)
{
    (void)fflush(stderr);
    assert_true(dup2(kept_stderr, 2) == 2);
    (void)close(kept_stderr);
    expect_text(scratch_path("err"), want);
}

/* ---- the folder of a job --------------------------------------------------
 */

#define LINE(step) "{\"step\":" #step ",\"score\":" #step "}\n"

static char folder[256], file[300], model[256], checkpoint[XR_PATH_CAP];
static xr_run run;
static xr_roles roles;
static xr_run_args args;
static const char *const loggers[] = { "console", "jsonl" };
static const char *const watch[] = { "score", NULL };
static const xr_job_plan plan = { .watch = watch };
static xr_err err;

static xray_status save_model(void *self, const char *dir)
{
    (void)self;
    (void)dir;
    return XRAY_OK;
}

static xr_job make_job(void)
{
    xr_job job = { .args = &args,
                   .kind = "train",
                   .run = &run,
                   .roles = &roles,
                   .metrics = xr_metrics_new() };
    job.progress.kind = "train";
    return job;
}

/* A run whose metrics of two steps are in the folder, with a checkpoint of the
 * second step in `where`. */
static int make_folder(void **state)
{
    static const xray_train_ops ops = { .header = XRAY_HEADER(xray_train_ops),
                                        .save = save_model };
    xr_history history = { .has_lines = 0 };
    (void)state;
    args = (xr_run_args){ .resume_from = NULL };
    (void)snprintf(folder, sizeof(folder), "%s", scratch_path("steps"));
    (void)snprintf(model, sizeof(model), "%s", scratch_path("model"));
    (void)snprintf(file, sizeof(file), "%s/metrics.jsonl", folder);
    assert_int_equal(xr_dir_remove(folder, &err), XRAY_OK);
    assert_int_equal(xr_dir_make(folder, &err), XRAY_OK);
    assert_int_equal(xr_dir_make(model, &err), XRAY_OK);
    run = (xr_run){ .config = xr_config_new(),
                    .actor = { .path = model, .model.path = model } };
    run.train = (xr_part){ .ops = &ops, .instance = "train.fake" };
    make_fake_roles(&run, &roles);
    roles.actor.self = &run;
    run.ini.trainer.default_local_dir = folder;
    run.ini.trainer.logger = (xray_list){ .items = loggers + 1, .count = 1 };
    (void)scratch_write("steps/metrics.jsonl", LINE(1) LINE(2));
    const xr_progress progress = {
        .kind = "train", .step = 2, .score_before = 0.25, .score_now = 0.5
    };
    assert_int_equal(xr_history_begin(&err, &history), XRAY_OK);
    assert_int_equal(
        xr_checkpoint_save(&roles, &progress, &history, checkpoint, &err),
        XRAY_OK);
    xr_history_free(&history);
    return 0;
}

static int drop_folder(void **state)
{
    (void)state;
    xr_config_free(run.config);
    return 0;
}

static xray_status open_metrics(xr_job *job)
{
    catch_stderr();
    return xr_job_open_metrics(job, &plan, &err);
}

static void close_job(xr_job *job)
{
    xr_monitor_close(job->monitor);
    xr_trackers_close(&job->trackers);
    xr_metrics_free(job->metrics);
    xr_job_unlock(job);
}

/* Writes a line of step `step` and closes the job. */
static void write_line(xr_job *job, uint64_t step)
{
    const xr_shown_sample sample = { "p", 1, "a", 1, "", 1 };
    job->progress.step = step;
    assert_int_equal(xr_job_write_metrics(job, &err), XRAY_OK); /* no line */
    xr_metrics_put(job->metrics, "score", (double)step);
    xr_sample_texts_add(&job->trackers.texts, "train", 0, &sample);
    assert_int_equal(xr_job_write_metrics(job, &err), XRAY_OK);
    assert_int_equal(xr_metrics_count(job->metrics), 0);
    assert_int_equal(job->trackers.texts.count, 0);
    close_job(job);
}

/* A new run begins a file, and what an older one left has another name. */
static void a_new_run_sets_older_metrics_aside(void **state)
{
    char aside[320];
    (void)state;
    for (int i = 1; i <= 3; i++) {
        xr_job job = make_job();
        assert_int_equal(open_metrics(&job), XRAY_OK);
        expect_stderr("");
        assert_true(job.locks[0].held);
        (void)snprintf(aside, sizeof(aside), "%s.%d", file, i);
        expect_text(aside, i == 1   ? LINE(1) LINE(2)
                           : i == 2 ? LINE(1)
                                    : LINE(2));
        expect_text(file, "");
        write_line(&job, (uint64_t)i);
        expect_text(file, i == 1 ? LINE(1) : i == 2 ? LINE(2) : LINE(3));
    }
}

/* Without the logger, and while a run only validates, the file is another's. */
static void metrics_of_others_are_left_alone(void **state)
{
    (void)state;
    for (uint32_t only = 0; only < 2; only++) {
        xr_job job = make_job();
        run.ini.trainer.val_only = only;
        run.ini.trainer.logger.items = only ? loggers + 1 : loggers;
        assert_int_equal(open_metrics(&job), XRAY_OK);
        close_job(&job);
        expect_stderr("");
        expect_text(file, LINE(1) LINE(2));
    }
    /* The console shows a step if the logger has it. */
    for (int console = 0; console < 2; console++) {
        xr_job job = make_job();
        run.ini.trainer.val_only = 1;
        run.ini.trainer.logger.items = console ? loggers : loggers + 1;
        assert_int_equal(open_metrics(&job), XRAY_OK);
        xr_monitor_validation(job.monitor, 3, 7, 0.5);
        close_job(&job);
        expect_stderr(console ? "step 3/7  validation 0.5000\n" : "");
    }
}

/* ---- resuming ------------------------------------------------------------ */

/* Begins from the checkpoint after `text` was in the file. */
static xr_job resume_with(const char *text, int has_lines)
{
    xr_job job = make_job();
    xr_metrics_mark mark = { 0, 0 };
    xr_monitor *monitor = NULL;
    /* The mark of the lines as they were. */
    (void)scratch_write("steps/metrics.jsonl", LINE(1) LINE(2));
    assert_int_equal(xr_monitor_open(file, 2, 0, watch, &err, &monitor),
                     XRAY_OK);
    assert_int_equal(xr_monitor_mark(monitor, &mark, &err), XRAY_OK);
    assert_int_equal(mark.count, 2);
    xr_monitor_close(monitor);
    (void)scratch_write("steps/metrics.jsonl", text);
    (void)snprintf(job.resumed_from, sizeof(job.resumed_from), "%s",
                   checkpoint);
    job.history.has_lines = has_lines;
    job.history.lines = mark;
    return job;
}

static void a_resumed_run_goes_on_after_its_checkpoint(void **state)
{
    (void)state;
    xr_job job = resume_with(LINE(1) LINE(2) LINE(3) LINE(4), 1);
    assert_int_equal(open_metrics(&job), XRAY_OK);
    assert_int_equal(job.progress.step, 2);
    assert_true(job.progress.score_before == 0.25);
    assert_true(job.progress.score_now == 0.5);
    write_line(&job, 3);
    expect_stderr("");
    expect_text(file, LINE(1) LINE(2) LINE(3));
    /* Lines of whatever step that the checkpoint marks are kept. */
    job = resume_with(LINE(1) LINE(2), 1);
    job.scores_changed = 1;
    assert_int_equal(open_metrics(&job), XRAY_OK);
    assert_true(isnan(job.progress.score_before));
    assert_true(isnan(job.progress.score_now));
    write_line(&job, 9);
    expect_stderr("");
    expect_text(file, LINE(1) LINE(2) LINE(9));
}

static void changed_metrics_are_not_cut(void **state)
{
    char aside[320];
    xr_job job = resume_with(LINE(1) LINE(3), 1);
    (void)state;
    assert_int_equal(open_metrics(&job), XRAY_E_IO);
    close_job(&job);
    expect_stderr("");
    assert_non_null(strstr(err.text, "resume from "));
    assert_non_null(strstr(err.text, checkpoint));
    assert_non_null(strstr(err.text, "--accept-changes"));
    expect_text(file, LINE(1) LINE(3));
    job = resume_with(LINE(1) LINE(3), 1);
    args.accept_changes = 1;
    assert_int_equal(open_metrics(&job), XRAY_OK);
    write_line(&job, 3);
    (void)fflush(stderr);
    assert_true(dup2(kept_stderr, 2) == 2);
    (void)close(kept_stderr);
    expect_text(file, LINE(3));
    (void)snprintf(aside, sizeof(aside), "%s.1", file);
    expect_text(aside, LINE(1) LINE(3));
    char *text = NULL;
    size_t size = 0;
    assert_int_equal(
        xr_file_read(scratch_path("err"), 4096, NULL, &text, &size), XRAY_OK);
    assert_int_equal(strncmp(text, "xray: warning: ", 15), 0);
    assert_non_null(strstr(text, "a new file is started\n"));
    free(text);
}

/* A checkpoint that says nothing about the file, and one from another folder:
 * lines of later steps are cut off. */
static void without_a_mark_lines_are_kept_up_to_the_step(void **state)
{
    char want[2 * XR_PATH_CAP];
    (void)state;
    xr_job job = resume_with(LINE(1) LINE(3), 0);
    assert_int_equal(open_metrics(&job), XRAY_OK);
    write_line(&job, 3);
    (void)snprintf(want, sizeof(want),
                   "xray: warning: %s does not say what %s held; its lines are "
                   "kept as they are\n",
                   checkpoint, file);
    expect_stderr(want);
    expect_text(file, LINE(1) LINE(3));
    job = resume_with("", 0);
    (void)remove(file);
    assert_int_equal(open_metrics(&job), XRAY_OK);
    write_line(&job, 3);
    expect_stderr("");
    /* Another folder has no line of this mark. */
    char other[256];
    (void)snprintf(other, sizeof(other), "%s", scratch_path("other"));
    assert_int_equal(xr_dir_make(other, &err), XRAY_OK);
    job = resume_with(LINE(1) LINE(2), 1);
    (void)scratch_write("other/metrics.jsonl", LINE(2) LINE(5));
    run.ini.trainer.default_local_dir = other;
    assert_int_equal(open_metrics(&job), XRAY_OK);
    write_line(&job, 3);
    expect_stderr("");
    expect_text(file, LINE(1) LINE(2));
    expect_text(scratch_path("other/metrics.jsonl"), LINE(2) LINE(3));
}

static void a_checkpoint_that_cannot_be_read_is_named(void **state)
{
    xr_job job = resume_with(LINE(1), 1);
    (void)state;
    (void)scratch_write("steps/global_step_2/state.json", "{");
    assert_int_equal(open_metrics(&job) < 0, 1);
    close_job(&job);
    expect_stderr("");
    assert_int_equal(strncmp(err.text, "resume from ", 12), 0);
    assert_non_null(strstr(err.text, checkpoint));
    expect_text(file, LINE(1));
}

/* ---- validation ---------------------------------------------------------- */

#define ROWS                               \
    "{\"prompt\":\"d\",\"answer\":\"\"}\n" \
    "{\"prompt\":\"c\",\"answer\":\"\"}\n"

/* The greedy samples of both rows have the scores 8 and 6. */
static xr_job begin_validation(fixture *f)
{
    xr_job job = { .args = &args,
                   .kind = "train",
                   .run = &f->run,
                   .roles = &f->roles,
                   .total_steps = 9,
                   .metrics = xr_metrics_new() };
    f->run.ini.data.max_response_length = MOST;
    f->run.ini.trainer.logger = (xray_list){ .items = loggers, .count = 1 };
    f->run.ini.rollout.val_n = 1;
    f->run.ini.rollout.val_temperature = 1;
    f->run.ini.rollout.val_top_p = 1;
    job.val = rig_open_rows(f, ROWS);
    assert_int_equal(
        xr_validation_init(&job.validation, &f->roles, job.val, &err), XRAY_OK);
    job.progress = (xr_progress){
        .kind = "train", .step = 4, .score_before = NAN, .score_now = NAN
    };
    return job;
}

static xray_status restart_and_submit(void *self, const xray_request *r)
{
    if (r->id == 0) {
        engine.requests = 0;
        engine.given = 0;
    }
    return engine_submit(self, r);
}

static int set_up_engine(void **state)
{
    static xray_infer_ops ops;
    const int bad = set_up(state);
    fixture *f = *state;
    ops = engine_ops;
    ops.submit = restart_and_submit;
    f->run.infer.ops = &ops;
    return bad;
}

static xray_status validate(xr_job *job)
{
    catch_stderr();
    return xr_job_validate(job, &err);
}

static void end_validation(xr_job *job)
{
    xr_monitor_close(job->monitor);
    xr_metrics_free(job->metrics);
    xr_validation_free(&job->validation);
    xr_dataset_close(job->val);
    xr_sample_texts_free(&job->trackers.texts);
}

/* The first score is kept to be compared with. */
static void a_validation_gives_the_job_its_score(void **state)
{
    fixture *f = *state;
    xr_job job = begin_validation(f);
    assert_int_equal(validate(&job), XRAY_OK);
    expect_stderr(""); /* xray eval has no monitor */
    assert_true(job.progress.score_before == 7);
    assert_true(job.progress.score_now == 7);
    const double seconds = xr_metrics_get(job.metrics, "timing_s/testing");
    assert_true(seconds >= 0 && seconds < 600);
    assert_true(
        isnan(xr_metrics_get(job.metrics, "training/skipped_validations")));
    f->run.rewards[0].weight = 4;
    assert_int_equal(xr_monitor_open(NULL, -1, 1, watch, &err, &job.monitor),
                     XRAY_OK);
    assert_int_equal(validate(&job), XRAY_OK);
    expect_stderr("step 4/9  validation 14.0000\n");
    assert_true(job.progress.score_before == 7);
    assert_true(job.progress.score_now == 14);
    end_validation(&job);
    /* Without a validation set there is none. */
    xr_job none = { .progress = { .score_now = 3 } };
    assert_int_equal(xr_job_validate(&none, &err), XRAY_OK);
    assert_true(none.progress.score_now == 3);
}

/* Greedy samples alone, as many as asked for: on the console if that is a
 * logger, and to trackers if there are any. */
static void samples_of_a_validation_are_shown(void **state)
{
    fixture *f = *state;
    for (int way = 0; way < 4; way++) {
        xr_job job = begin_validation(f);
        char *text = NULL;
        size_t size = 0;
        int lines = 0;
        f->run.ini.trainer.log_val_generations = way == 3 ? 0 : 2;
        f->run.ini.trainer.logger.items = way == 1 ? loggers + 1 : loggers;
        job.trackers.live = way == 2;
        if (way == 2)
            assert_int_equal(
                xr_monitor_open(NULL, -1, 0, watch, &err, &job.monitor),
                XRAY_OK);
        assert_int_equal(validate(&job), XRAY_OK);
        (void)fflush(stderr);
        assert_true(dup2(kept_stderr, 2) == 2);
        (void)close(kept_stderr);
        assert_int_equal(
            xr_file_read(scratch_path("err"), 1u << 16, NULL, &text, &size),
            XRAY_OK);
        for (const char *at = text; (at = strchr(at, '\n')); at++)
            lines++;
        assert_int_equal(lines, way == 0 || way == 2 ? 3 : 0);
        free(text);
        assert_int_equal(job.trackers.texts.count, way == 2 ? 2 : 0);
        if (way == 2)
            assert_string_equal(job.trackers.texts.list[1].name,
                                "samples/validation/1");
        end_validation(&job);
    }
    f->run.ini.trainer.log_val_generations = 0;
}

static int poisoned;

static xray_status poison_submit(void *self, const xray_sample_in *samples,
                                 uint64_t count, uint64_t stride)
{
    (void)self;
    (void)samples;
    (void)stride;
    poisoned = (int)count;
    return XRAY_OK;
}

static xray_status poison_poll(void *self, uint64_t wait_ns, xray_score *out)
{
    (void)self;
    (void)wait_ns;
    if (!poisoned)
        return XRAY_END;
    out->id = (uint64_t)--poisoned;
    out->score = (double)NAN;
    return XRAY_OK;
}

/* A score that is not finite ends the run, or the validation alone. */
static void a_bad_score_skips_a_validation_if_asked(void **state)
{
    static const xray_reward_ops ops = { .header = XRAY_HEADER(xray_reward_ops),
                                         .submit = poison_submit,
                                         .poll = poison_poll };
    fixture *f = *state;
    f->run.rewards[0].ops = &ops;
    for (int skips = 0; skips < 2; skips++) {
        xr_job job = begin_validation(f);
        f->run.ini.trainer.on_nonfinite =
            skips ? XR_NONFINITE_SKIP : XR_NONFINITE_STOP;
        assert_int_equal(validate(&job), skips ? XRAY_OK : XRAY_E_NUMERIC);
        expect_stderr("");
        const double skipped =
            xr_metrics_get(job.metrics, "training/skipped_validations");
        assert_true(skips ? skipped == 1 : isnan(skipped));
        assert_true(isnan(job.progress.score_now));
        assert_true(isnan(job.progress.score_before));
        if (skips)
            assert_string_equal(err.text, "");
        else
            assert_int_equal(
                strncmp(err.text,
                        "validation at step 4: reward.sum gave the "
                        "score nan",
                        51),
                0);
        end_validation(&job);
    }
    /* Any other failure is no such value. */
    xr_job job = begin_validation(f);
    engine.fault = FAULT_SUBMIT;
    engine.when = 0;
    assert_int_equal(validate(&job), XRAY_E_RANGE);
    expect_stderr("");
    assert_null(strstr(err.text, "validation at step"));
    end_validation(&job);
}

#define FOLDER(test) \
    cmocka_unit_test_setup_teardown(test, make_folder, drop_folder)
#define ENGINE(test) \
    cmocka_unit_test_setup_teardown(test, set_up_engine, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER(a_new_run_sets_older_metrics_aside),
        FOLDER(metrics_of_others_are_left_alone),
        FOLDER(a_resumed_run_goes_on_after_its_checkpoint),
        FOLDER(changed_metrics_are_not_cut),
        FOLDER(without_a_mark_lines_are_kept_up_to_the_step),
        FOLDER(a_checkpoint_that_cannot_be_read_is_named),
        ENGINE(a_validation_gives_the_job_its_score),
        ENGINE(samples_of_a_validation_are_shown),
        ENGINE(a_bad_score_skips_a_validation_if_asked),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
