/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what trackers are told of a run and its steps, and that their failures
 * end with them, with trackers made for the test.
 */
#include <fcntl.h>
#include <math.h>
#include <time.h>

#include "core/plugin/guard.h"
#include "core/rl/trackers.h"
#include "tests/scratch.h"

/* ---- trackers ------------------------------------------------------------ */

enum { TRACKERS = 3 };

typedef struct tracker {
    xray_status create, submit, flush, probe;
    int gives_nothing; /* create: no instance, and no error */
    const char *says;  /* of a failure, through the host */
    const char *key;   /* that the failure is about, or NULL */
    long pause_ms;     /* of a submission */
    uint32_t creates, submits, flushes, probes, destroys;
    const xray_host *host;
} tracker;

static tracker all[TRACKERS];

/* The last call was given these. */
static char setup_text[1024];
static char step_text[2048];

static void note_setup(const xray_track_setup *s)
{
    assert_int_equal(s->header.size, sizeof(*s));
    size_t used = (size_t)snprintf(
        setup_text, sizeof(setup_text), "%s %s %s %s %s %u %u:", s->job, s->run,
        s->folder, s->project, s->experiment, (unsigned)s->step, s->resumed);
    for (uint64_t i = 0; i < s->setting_count; i++) {
        const xray_named_text *t =
            (const void *)((const char *)s->settings + i * s->setting_stride);
        assert_int_equal(t->size, strlen(t->text));
        used += (size_t)snprintf(setup_text + used, sizeof(setup_text) - used,
                                 " %s=%s", t->name, t->text);
    }
}

static xray_status answer_with(tracker *t, xray_status status)
{
    const xray_location location = { .header = XRAY_HEADER(xray_location),
                                     .section = "tracker.t0",
                                     .key = t->key };
    if (status < 0 && t->key)
        return t->host->fail_at(t->host, status, "here", &location, t->says);
    if (status < 0 && t->says)
        return (t->host->fail)(t->host, status, "here", t->says);
    return status;
}

static xray_status create_one(const xray_host *host, const void *config,
                              const xray_track_setup *setup, void **out_self)
{
    tracker *t = all + *(const size_t *)config;
    t->creates++;
    t->host = host;
    note_setup(setup);
    if (t->create == XRAY_OK && !t->gives_nothing)
        *out_self = t;
    return answer_with(t, t->create);
}

static void destroy_one(void *self)
{
    ((tracker *)self)->destroys++;
}

static void note_step(const xray_track_step *s)
{
    size_t used = (size_t)snprintf(step_text, sizeof(step_text),
                                   "%u:", (unsigned)s->step);
    assert_int_equal(s->header.size, sizeof(*s));
    for (uint64_t i = 0; i < s->scalar_count; i++) {
        const xray_named_value *v =
            (const void *)((const char *)s->scalars + i * s->scalar_stride);
        used += (size_t)snprintf(step_text + used, sizeof(step_text) - used,
                                 " %s=%g", v->name, v->value);
    }
    for (uint64_t i = 0; i < s->histogram_count; i++) {
        const xray_histogram *h = (const void *)((const char *)s->histograms +
                                                 i * s->histogram_stride);
        double sum = 0;
        for (uint64_t b = 0; b < h->count; b++)
            sum += h->counts[b];
        used += (size_t)snprintf(step_text + used, sizeof(step_text) - used,
                                 " %s holds %g", h->name, sum);
    }
    for (uint64_t i = 0; i < s->text_count; i++) {
        const xray_named_text *t =
            (const void *)((const char *)s->texts + i * s->text_stride);
        assert_int_equal(t->size, strlen(t->text));
        used += (size_t)snprintf(step_text + used, sizeof(step_text) - used,
                                 "\n%s: %s", t->name, t->text);
    }
    assert_true(fabs(s->time - (double)time(NULL)) < 600);
}

static xray_status submit_one(void *self, const xray_track_step *step)
{
    tracker *t = self;
    const struct timespec pause = { 0, t->pause_ms * 1000000 };
    t->submits++;
    note_step(step);
    (void)nanosleep(&pause, NULL);
    return answer_with(t, t->submit);
}

static xray_status flush_one(void *self)
{
    tracker *t = self;
    t->flushes++;
    return answer_with(t, t->flush);
}

static xray_status probe_one(const xray_host *host, const void *config,
                             const xray_track_setup *setup)
{
    tracker *t = all + *(const size_t *)config;
    t->probes++;
    t->host = host;
    note_setup(setup);
    return answer_with(t, t->probe);
}

static const xray_tracker_ops ops = { .header = XRAY_HEADER(xray_tracker_ops),
                                      .create = create_one,
                                      .destroy = destroy_one,
                                      .submit = submit_one,
                                      .flush = flush_one,
                                      .probe = probe_one };

/* ---- the run ------------------------------------------------------------- */

static xr_run run;
static xr_monitor *monitor;
static xr_metrics *metrics;
static xr_trackers trackers;
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

/* Compares what was printed since. */
static void expect_stderr(const char *want)
{
    char *text = NULL;
    size_t size = 0;
    (void)fflush(stderr);
    assert_true(dup2(kept_stderr, 2) == 2);
    (void)close(kept_stderr);
    assert_int_equal(
        xr_file_read(scratch_path("err"), 1u << 16, NULL, &text, &size),
        XRAY_OK);
    assert_string_equal(text, want);
    free(text);
}

typedef struct decoded {
    int64_t depth;
    int64_t width;
} decoded;

static const xray_option options[] = {
    XRAY_INT(decoded, depth, "2", 0, 16, "", 0u, "0.1", "A key that is set."),
    XRAY_INT(decoded, width, "3", 0, 16, "", 0u, "0.1", "One that is not."),
};

static int make_run(void **state)
{
    static const xray_component component = { .name = "t" };
    static const char *const names[] = { "tracker.t0", "tracker.t1",
                                         "tracker.t2" };
    static const size_t index[] = { 0, 1, 2 };
    static decoded values;
    const xr_table table = XR_TABLE(options);
    xr_errors errors = { 0 };
    xr_err err = { "" };
    (void)state;
    memset(all, 0, sizeof(all));
    run = (xr_run){ .config = xr_config_new(), .tracker_count = TRACKERS };
    xr_config_set(run.config, "tracker.t0.depth=7", &errors);
    xr_config_decode(run.config, "tracker.t0", table, &values, &errors);
    assert_int_equal(errors.count, 0);
    run.ini.trainer.default_local_dir = "some/folder";
    run.ini.trainer.project_name = "project";
    run.ini.trainer.experiment_name = "experiment";
    for (size_t i = 0; i < TRACKERS; i++)
        run.trackers[i] = (xr_part){ .component = &component,
                                     .ops = &ops,
                                     .config = (void *)(uintptr_t)&index[i],
                                     .instance = names[i],
                                     .host = xr_host_new(names[i], NULL) };
    metrics = xr_metrics_new();
    return xr_monitor_open(NULL, -1, 0, NULL, &err, &monitor);
}

static int drop_run(void **state)
{
    (void)state;
    for (size_t i = 0; i < TRACKERS; i++)
        xr_host_free(run.trackers[i].host);
    xr_monitor_close(monitor);
    xr_metrics_free(metrics);
    xr_config_free(run.config);
    return 0;
}

static const xr_tracked_run about = {
    .kind = "train", .run = "0123456789abcdef", .step = 5, .resumed = 7
};

static void open_all(void)
{
    xr_trackers_open(&trackers, &run, &about, monitor);
}

/* ---- cases --------------------------------------------------------------- */

static void trackers_are_told_the_run_and_its_settings(void **state)
{
    static const char want[] = "train 0123456789abcdef some/folder project "
                               "experiment 5 1: tracker.t0.depth=7";
    const xr_tracked_run fresh = { .kind = "sft", .run = "" };
    xr_errors errors = { 0 };
    (void)state;
    catch_stderr();
    open_all();
    assert_int_equal(trackers.count, TRACKERS);
    assert_int_equal(trackers.live, TRACKERS);
    assert_string_equal(setup_text, want);
    xr_trackers_close(&trackers);
    for (size_t i = 0; i < TRACKERS; i++)
        assert_true(all[i].creates == 1 && all[i].destroys == 1);
    assert_int_equal(trackers.count, 0);
    xr_trackers_close(&trackers); /* zeros are accepted */
    setup_text[0] = '\0';
    xr_trackers_probe(&run, &about, &errors);
    assert_string_equal(setup_text, want);
    xr_trackers_probe(&run, &fresh, &errors);
    assert_string_equal(setup_text, "sft  some/folder project experiment 0 0: "
                                    "tracker.t0.depth=7");
    expect_stderr("");
    assert_int_equal(errors.count, 0);
    for (size_t i = 0; i < TRACKERS; i++)
        assert_true(all[i].creates == 1 && all[i].probes == 2);
}

#define SAMPLE "score 1\n\nprompt:\n\n    2+2\n\nanswer:\n\n    4\n"

static void a_step_has_its_scalars_histograms_and_texts(void **state)
{
    static const float lengths[] = { 1, 2, 3 };
    const xr_shown_sample sample = { .prompt = "2+2",
                                     .prompt_size = 3,
                                     .answer = "4",
                                     .answer_size = 1,
                                     .truth = "",
                                     .score = 1 };
    (void)state;
    catch_stderr();
    open_all();
    assert_int_equal(xr_metrics_keep_histograms(metrics), 0);
    xr_metrics_put(metrics, "loss", 0.5);
    xr_metrics_stats(metrics, "length", lengths, 3);
    xr_metrics_stats(metrics, "score", lengths, 2);
    xr_sample_texts_add(&trackers.texts, "train", 0, &sample);
    xr_sample_texts_add(&trackers.texts, "val", 3, &sample);
    xr_trackers_submit(&trackers, 6, metrics);
    assert_string_equal(step_text,
                        "6: loss=0.5 length/mean=2 length/max=3 length/min=1 "
                        "score/mean=1.5 score/max=2 score/min=1 "
                        "length holds 3 score holds 2\n"
                        "samples/train/0: " SAMPLE "\nsamples/val/3: " SAMPLE);
    /* More scalars than any step before had. */
    xr_metrics_clear(metrics);
    xr_sample_texts_clear(&trackers.texts);
    for (int i = 0; i < 40; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "m%d", i);
        xr_metrics_put(metrics, name, i);
    }
    xr_trackers_submit(&trackers, 7, metrics);
    assert_non_null(strstr(step_text, "7: m0=0 m1=1 "));
    assert_non_null(strstr(step_text, " m39=39"));
    assert_null(strstr(step_text, "samples"));
    assert_int_equal(trackers.steps, 2);
    xr_trackers_flush(&trackers);
    xr_trackers_close(&trackers);
    expect_stderr("");
    for (size_t i = 0; i < TRACKERS; i++)
        assert_true(all[i].submits == 2 && all[i].flushes == 1);
}

/* A tracker that cannot be created is named with its reason, and the others
 * work. */
static void a_tracker_that_fails_at_its_start_is_left_out(void **state)
{
    (void)state;
    all[0].create = XRAY_E_CONFIG;
    all[0].key = "depth";
    all[0].says = ": is too deep";
    all[1].gives_nothing = 1;
    catch_stderr();
    open_all();
    assert_int_equal(trackers.live, 1);
    xr_trackers_submit(&trackers, 1, metrics);
    xr_trackers_submit(&trackers, 2, metrics);
    xr_trackers_flush(&trackers);
    xr_trackers_close(&trackers);
    expect_stderr(
        "xray: warning: --set: [tracker.t0] depth: is too "
        "deep; the run goes on without it\n"
        "xray: warning: tracker.t1: create gave no instance; the run goes on "
        "without it\n"
        "xray: warning: tracker.t0 lacks 2 of 2 steps\n"
        "xray: warning: tracker.t1 lacks 2 of 2 steps\n");
    for (size_t i = 0; i < TRACKERS; i++) {
        assert_int_equal(all[i].submits, i == 2 ? 2 : 0);
        assert_int_equal(all[i].flushes, i == 2);
        assert_int_equal(all[i].destroys, i == 2);
    }
}

/* The hundreds digit 1 and a full queue lose a step, which is reported once;
 * everything else ends the tracker. */
static void the_status_says_what_is_lost(void **state)
{
    static const struct {
        xray_status status;
        int ends;
        const char *says;
    } cases[] = {
        { XRAY_AGAIN, 0, "tracker.t0: submit: its queue is full" },
        { -100, 0, NULL },
        { XRAY_E_RANGE, 0, NULL },
        { -199, 0, NULL },
        { -200, 1, NULL },
        { -301, 1, NULL },
        { -99, 1, NULL },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char want[512];
        all[0] = (tracker){ .submit = cases[i].status, .says = "no space" };
        catch_stderr();
        open_all();
        xr_trackers_submit(&trackers, 1, metrics);
        xr_trackers_submit(&trackers, 2, metrics);
        all[0].submit = XRAY_OK;
        xr_trackers_submit(&trackers, 3, metrics);
        assert_int_equal(all[0].submits, cases[i].ends ? 1 : 3);
        assert_int_equal(all[0].destroys, cases[i].ends);
        assert_int_equal(trackers.live, TRACKERS - (size_t)cases[i].ends);
        xr_trackers_close(&trackers);
        assert_int_equal(all[0].destroys, 1);
        (void)snprintf(
            want, sizeof(want),
            "xray: warning: %s; %s\nxray: warning: tracker.t0 lacks %d of 3 "
            "steps\n",
            cases[i].says ? cases[i].says : "tracker.t0: here: no space",
            cases[i].ends ? "the run goes on without it"
                          : "the step is not in it",
            cases[i].ends ? 3 : 2);
        expect_stderr(want);
    }
    assert_int_equal(all[1].submits, 3 * sizeof(cases) / sizeof(cases[0]));
}

/* A record without all its parts is given to none of them. */
static void an_incomplete_record_is_lost(void **state)
{
    (void)state;
    all[1].create = XRAY_E_IO;
    all[1].says = "no room";
    catch_stderr();
    open_all();
    trackers.texts.failed = 1;
    xr_trackers_submit(&trackers, 8, metrics);
    xr_sample_texts_clear(&trackers.texts);
    xr_trackers_submit(&trackers, 9, metrics);
    xr_trackers_close(&trackers);
    assert_int_equal(all[0].submits, 1);
    assert_int_equal(all[2].submits, 1);
    expect_stderr(
        "xray: warning: tracker.t1: here: no room; the run goes on without it\n"
        "xray: warning: tracker.t0: out of memory for step 8; the step is not "
        "in it\n"
        "xray: warning: tracker.t2: out of memory for step 8; the step is not "
        "in it\n"
        "xray: warning: tracker.t0 lacks 1 of 2 steps\n"
        "xray: warning: tracker.t1 lacks 2 of 2 steps\n"
        "xray: warning: tracker.t2 lacks 1 of 2 steps\n");
}

/* The end of a tracker is reported even after a lost step was. */
static void a_flush_that_fails_may_end_a_tracker(void **state)
{
    (void)state;
    all[0].submit = XRAY_AGAIN;
    all[0].flush = XRAY_E_BUG;
    all[0].says = "gone";
    catch_stderr();
    open_all();
    xr_trackers_submit(&trackers, 1, metrics);
    xr_trackers_flush(&trackers);
    xr_trackers_flush(&trackers);
    assert_int_equal(all[0].flushes, 1);
    assert_int_equal(all[0].destroys, 1);
    assert_int_equal(all[2].flushes, 2);
    xr_trackers_close(&trackers);
    expect_stderr(
        "xray: warning: tracker.t0: submit: its queue is full; the step is "
        "not in it\n"
        "xray: warning: tracker.t0: here: gone; the run goes on without it\n"
        "xray: warning: tracker.t0 lacks 1 of 1 steps\n");
}

/* A hundredth of the limit of a plugin's call: here 10 ms of 1 s. */
static void a_tracker_that_holds_the_run_up_is_ended(void **state)
{
    char *text = NULL;
    size_t size = 0;
    (void)state;
    catch_stderr();
    run.tracker_count = 1;
    open_all();
    all[0].pause_ms = 30;
    xr_trackers_submit(&trackers, 1, metrics); /* without a limit */
    xr_guard_limit(INT64_C(3000000000000));
    xr_trackers_submit(&trackers, 2, metrics);
    assert_int_equal(all[0].destroys, 0);
    xr_guard_limit(1000000000);
    xr_trackers_submit(&trackers, 3, metrics);
    xr_guard_limit(0);
    assert_int_equal(all[0].submits, 3);
    assert_int_equal(all[0].destroys, 1);
    assert_int_equal(
        xr_file_read(scratch_path("err"), 4096, NULL, &text, &size), XRAY_OK);
    assert_int_equal(
        strncmp(text, "xray: warning: tracker.t0: submit took 0.", 41), 0);
    assert_non_null(strstr(text, "s, and at most 0.01 s are allowed, a "
                                 "hundredth of [run] plugin_timeout; the run "
                                 "goes on without it\n"));
    free(text);
    xr_trackers_close(&trackers); /* it has all three steps */
    (void)dup2(kept_stderr, 2);
    (void)close(kept_stderr);
}

static void a_check_reports_every_tracker_that_would_fail(void **state)
{
    static const xray_tracker_ops older = {
        .header = { .size = offsetof(xray_tracker_ops, probe) },
        .probe = probe_one
    };
    static const xray_tracker_ops unset = { .header =
                                                XRAY_HEADER(xray_tracker_ops),
                                            .create = create_one };
    xr_errors errors = { 0 };
    (void)state;
    run.trackers[1].ops = &unset;
    xr_trackers_probe(&run, &about, &errors);
    assert_int_equal(errors.count, 0);
    all[0].probe = all[1].probe = all[2].probe = XRAY_E_CONFIG;
    all[0].key = "depth";
    all[0].says = " is too deep";
    all[2].says = "is full";
    run.trackers[1].ops = &older; /* made before there was a probe */
    xr_trackers_probe(&run, &about, &errors);
    assert_int_equal(errors.count, 2);
    assert_string_equal(errors.items[0],
                        "--set: [tracker.t0] depth is too deep");
    assert_string_equal(errors.items[1], "tracker.t2: here: is full");
    assert_int_equal(all[1].probes, 0);
    xr_errors_free(&errors);
    /* Without what it needs a tracker is not asked. */
    run.trackers[1].ops = &ops;
    for (int i = 0; i < 3; i++) {
        xr_errors none = { 0 };
        const xr_part part = run.trackers[0];
        all[0].probes = 0;
        if (i == 0)
            run.trackers[0].component = NULL;
        else if (i == 1)
            run.trackers[0].config = NULL;
        else
            run.ini.trainer.default_local_dir = NULL;
        run.tracker_count = 1;
        xr_trackers_probe(&run, &about, &none);
        assert_int_equal(none.count, 0);
        assert_int_equal(all[0].probes, 0);
        run.trackers[0] = part;
    }
}

/* At most four samples of a rollout, evenly from all of it. */
static void a_few_samples_are_shown(void **state)
{
    static const struct {
        uint32_t count, n, shown;
        const char *scores; /* of those shown, which are their numbers */
    } cases[] = {
        { 8, 2, 4, "0 2 4 6 " },
        { 10, 1, 4, "0 2 5 7 " },
        { 3, 1, 3, "0 1 2 " },
        { 4, 4, 4, "0 1 2 3 " },
    };
    const xr_row rows[10] = {
        { .prompt = "p0", .ground_truth = "t0" },
        { .prompt = "p1", .ground_truth = "t1" },
        { .prompt = "p2", .ground_truth = "t2" },
        { .prompt = "p3", .ground_truth = "t3" },
        { .prompt = "p4", .ground_truth = "t4" },
        { .prompt = "p5", .ground_truth = "t5" },
        { .prompt = "p6", .ground_truth = "t6" },
        { .prompt = "p7", .ground_truth = "t7" },
    };
    const xr_row *list[10];
    xray_sample_in inputs[10];
    xr_score scores[10];
    (void)state;
    for (uint32_t i = 0; i < 10; i++) {
        list[i] = &rows[i];
        inputs[i] = (xray_sample_in){ .prompt_size = 2,
                                      .response = "an answer",
                                      .response_size = 5 };
        scores[i] = (xr_score){ .score = i };
    }
    catch_stderr();
    open_all();
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        const xr_samples samples = { .count = cases[c].count,
                                     .n = cases[c].n,
                                     .inputs = inputs,
                                     .scores = scores };
        const char *left = cases[c].scores;
        xr_sample_texts_clear(&trackers.texts);
        xr_trackers_show(&trackers, &samples, list);
        assert_int_equal(trackers.texts.count, cases[c].shown);
        for (uint32_t k = 0; k < cases[c].shown; k++, left += 2) {
            char want[160];
            const int i = *left - '0';
            const int r = i / (int)cases[c].n;
            (void)snprintf(want, sizeof(want),
                           "score %d\n\nprompt:\n\n    p%d\n\nanswer:\n\n    "
                           "an an\n\nground truth:\n\n    t%d\n",
                           i, r, r);
            assert_string_equal(trackers.texts.list[k].text, want);
            (void)snprintf(want, sizeof(want), "samples/train/%u", k);
            assert_string_equal(trackers.texts.list[k].name, want);
        }
    }
    /* No tracker is left to read them. */
    xr_sample_texts_clear(&trackers.texts);
    trackers.live = 0;
    const xr_samples samples = {
        .count = 4, .n = 1, .inputs = inputs, .scores = scores
    };
    xr_trackers_show(&trackers, &samples, list);
    assert_int_equal(trackers.texts.count, 0);
    trackers.live = TRACKERS;
    xr_trackers_close(&trackers);
    expect_stderr("");
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_run, drop_run)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(trackers_are_told_the_run_and_its_settings),
        CASE(a_step_has_its_scalars_histograms_and_texts),
        CASE(a_tracker_that_fails_at_its_start_is_left_out),
        CASE(the_status_says_what_is_lost),
        CASE(an_incomplete_record_is_lost),
        CASE(a_flush_that_fails_may_end_a_tracker),
        CASE(a_tracker_that_holds_the_run_up_is_ended),
        CASE(a_check_reports_every_tracker_that_would_fail),
        CASE(a_few_samples_are_shown),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
