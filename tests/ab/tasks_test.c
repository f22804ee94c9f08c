/* SPDX-License-Identifier: Apache-2.0
 *
 * Child processes of a comparison: states, exit codes, stops and output. This
 * program is also the child, and does what its arguments say.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "core/ab/tasks.h"
#include "tests/scratch.h"

/* ---- the child ---------------------------------------------------------- */

/* child say TEXT CODE; child wait FILE; child hold FILE; child die SIGNAL;
 * child group. */
static int run_child(int argc, char **argv)
{
    if (argc > 4 && strcmp(argv[2], "say") == 0) {
        (void)fputs(argv[3], stdout);
        (void)fflush(stdout);
        (void)fputs("!", stderr);
        return (int)strtol(argv[4], NULL, 10);
    }
    if (argc > 3 && strcmp(argv[2], "wait") == 0) {
        (void)close(open(argv[3], O_WRONLY | O_CREAT, 0600));
        for (;;)
            (void)pause();
    }
    if (argc > 3 && strcmp(argv[2], "hold") == 0) {
        const struct timespec pause = { 0, 2000000 };
        for (int i = 0; i < 10000 && access(argv[3], F_OK) != 0; i++)
            (void)nanosleep(&pause, NULL);
        return access(argv[3], F_OK) != 0;
    }
    if (argc > 3 && strcmp(argv[2], "die") == 0)
        (void)raise((int)strtol(argv[3], NULL, 10));
    return getpgrp() == getpid() && fgetc(stdin) == EOF ? 0 : 9;
}

/* ---- a list of tasks ---------------------------------------------------- */

enum { MOST = 6 };

typedef struct list {
    xr_task tasks[MOST];
    char *argv[MOST][6];
    char words[MOST][4][320];
    char output[MOST][256];
    size_t count;
    volatile sig_atomic_t stop;
    size_t running; /* now, then the largest number so far */
    size_t most;
    unsigned ticks;
    size_t holds;   /* so many run before they may end */
    char told[256]; /* "0+ 0-2 ": task 0 began, and ended in state 2 */
} list;

static void add_task(list *l, const char *what, const char *with,
                     const char *more)
{
    size_t i = l->count++;
    const char *const words[] = { "child", what, with, more };
    (void)snprintf(l->output[i], sizeof l->output[i], "%s/out-%zu",
                   scratch_dir(), i);
    for (size_t k = 0; k < 4; k++) {
        (void)snprintf(l->words[i][k], sizeof l->words[i][k], "%s", words[k]);
        l->argv[i][k + 1] = l->words[i][k];
    }
    l->argv[i][0] = l->argv[i][1];
    l->tasks[i] = (xr_task){ .argv = l->argv[i], .output = l->output[i] };
}

static void record_change(void *ctx, const xr_task *task)
{
    list *l = ctx;
    size_t size = strlen(l->told);
    int starts = task->state == XR_TASK_RUNS;
    l->running += starts ? 1u : 0u;
    l->running -= !starts && l->running ? 1u : 0u;
    l->most = l->running > l->most ? l->running : l->most;
    (void)snprintf(l->told + size, sizeof l->told - size, "%d%c%d ",
                   (int)(task - l->tasks), starts ? '+' : '-', task->state);
}

/* Sets the stop flag once the waiting child has started. */
static void stop_when_held(void *ctx)
{
    list *l = ctx;
    l->ticks++;
    if (l->holds && l->running == l->holds)
        (void)scratch_write("go", "");
    if (xr_path_exists(scratch_path("there")))
        l->stop = 1;
}

static void run_task_list(list *l, size_t jobs)
{
    const xr_task_watch watch = { l, record_change, stop_when_held, &l->stop };
    xr_tasks_run(l->tasks, l->count, jobs, &watch);
}

static void expect_output(const list *l, size_t task, const char *want)
{
    char *text = NULL;
    size_t size = 0;
    assert_int_equal(xr_file_read(l->output[task], 4096, NULL, &text, &size),
                     XRAY_OK);
    assert_string_equal(text, want);
    free(text);
}

/* ---- the suite ---------------------------------------------------------- */

static void ends_have_state_and_code(void **state)
{
    (void)state;
    list l = { .count = 0 };
    char killed[8];
    (void)snprintf(killed, sizeof killed, "%d", SIGKILL);
    add_task(&l, "say", "one", "0");
    add_task(&l, "say", "two", "1");
    add_task(&l, "die", killed, "");
    add_task(&l, "group", "", "");
    l.tasks[1].code = 99;
    run_task_list(&l, 1);
    static const int states[] = { XR_TASK_DONE, XR_TASK_FAILED, XR_TASK_FAILED,
                                  XR_TASK_DONE };
    static const int codes[] = { 0, 1, 128 + SIGKILL, 0 };
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(l.tasks[i].state, states[i]);
        assert_int_equal(l.tasks[i].code, codes[i]);
    }
    /* One after another in their order, each reported twice. */
    assert_string_equal(l.told, "0+1 0-2 1+1 1-3 2+1 2-3 3+1 3-2 ");
    assert_int_equal(l.most, 1);
    expect_output(&l, 0, "one!"); /* both streams */
    /* A finished task is not repeated, and the output file is overwritten. */
    l.tasks[1].state = XR_TASK_WAITS;
    (void)snprintf(l.words[1][2], sizeof l.words[1][2], "x");
    l.told[0] = '\0';
    run_task_list(&l, 1);
    assert_string_equal(l.told, "1+1 1-3 ");
    expect_output(&l, 1, "x!");
}

static void tasks_run_side_by_side(void **state)
{
    (void)state;
    list l = { .holds = 3 };
    (void)remove(scratch_path("go"));
    for (int i = 0; i < 5; i++)
        add_task(&l, "hold", scratch_path("go"), "");
    run_task_list(&l, 3);
    assert_int_equal(l.most, 3);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(l.tasks[i].state, XR_TASK_DONE);
    assert_int_equal(strncmp(l.told, "0+1 1+1 2+1 ", 12), 0);
}

/* A stop reaches the running tasks, and no other is started. */
static void stop_reaches_running_tasks(void **state)
{
    (void)state;
    list l = { .count = 0 };
    (void)remove(scratch_path("there"));
    add_task(&l, "say", "x", "0");
    add_task(&l, "wait", scratch_path("there"), "");
    add_task(&l, "say", "never", "0");
    (void)remove(l.output[2]);
    run_task_list(&l, 1);
    assert_int_equal(l.tasks[0].state, XR_TASK_DONE);
    assert_int_equal(l.tasks[1].state, XR_TASK_STOPPED);
    assert_int_equal(l.tasks[1].code, 128 + SIGINT);
    assert_int_equal(l.tasks[2].state, XR_TASK_WAITS);
    assert_string_equal(l.told, "0+1 0-2 1+1 1-4 ");
    assert_true(l.ticks > 0);
    assert_false(xr_path_exists(l.output[2]));
    (void)remove(scratch_path("there"));
    /* A task that ends by another signal has failed. */
    list own = { .count = 0 };
    char sigint[8];
    (void)snprintf(sigint, sizeof sigint, "%d", SIGINT);
    add_task(&own, "die", sigint, "");
    run_task_list(&own, 1);
    assert_int_equal(own.tasks[0].state, XR_TASK_FAILED);
    assert_int_equal(own.tasks[0].code, 128 + SIGINT);
}

/* Signals that this process ignores or blocks, as under nohup, still end its
 * tasks. */
static void tasks_have_their_own_signals(void **state)
{
    (void)state;
    sigset_t both;
    sigset_t before;
    (void)sigemptyset(&both);
    (void)sigaddset(&both, SIGINT);
    (void)sigaddset(&both, SIGTERM);
    for (int blocked = 0; blocked < 2; blocked++) {
        list l = { .count = 0 };
        char sigterm[8];
        (void)snprintf(sigterm, sizeof sigterm, "%d", SIGTERM);
        (void)remove(scratch_path("there"));
        add_task(&l, "die", sigterm, "");
        add_task(&l, "wait", scratch_path("there"), "");
        if (blocked) {
            assert_int_equal(sigprocmask(SIG_BLOCK, &both, &before), 0);
        } else {
            (void)signal(SIGINT, SIG_IGN);
            (void)signal(SIGTERM, SIG_IGN);
        }
        run_task_list(&l, 1);
        if (blocked) {
            assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
        } else {
            (void)signal(SIGINT, SIG_DFL);
            (void)signal(SIGTERM, SIG_DFL);
        }
        assert_int_equal(l.tasks[0].code, 128 + SIGTERM);
        assert_int_equal(l.tasks[1].state, XR_TASK_STOPPED);
        assert_int_equal(l.tasks[1].code, 128 + SIGINT);
    }
    (void)remove(scratch_path("there"));
}

static void failed_starts_are_reported(void **state)
{
    (void)state;
    list l = { .count = 0 };
    xr_str text = { 0 };
    add_task(&l, "say", "x", "0");
    add_task(&l, "say", "y", "0");
    (void)snprintf(l.output[0], sizeof l.output[0], "%s/no/out", scratch_dir());
    run_task_list(&l, 2);
    assert_int_equal(l.tasks[0].state, XR_TASK_FAILED);
    assert_int_equal(l.tasks[0].code, 127);
    assert_int_equal(l.tasks[1].state, XR_TASK_DONE);
    xr_task_complaint(&l.tasks[0], &text);
    assert_string_equal(xr_str_text(&text),
                        "it ended with exit code 127 and printed nothing");
    xr_str_free(&text);
}

static void last_message_is_found(void **state)
{
    (void)state;
    static const struct {
        const char *output;
        const char *says;
    } cases[] = {
        { "", "it ended with exit code 5 and printed nothing" },
        { "\n\n", "it ended with exit code 5 and printed nothing" },
        { "one\ntwo\n\n", "two" },
        { "one\ntwo", "two" },
        { "xray: no\n", "no" },
        { "xray: first\nxray: last\nnoise\n", "last" },
        { "noise\nxray: it\n  more\n", "it" },
        { "an xray: is not one\n", "an xray: is not one" },
        { "xray:no\n", "xray:no" },
    };
    char path[256];
    (void)snprintf(path, sizeof path, "%s/said", scratch_dir());
    xr_task task = { .output = path, .code = 5 };
    xr_str text = { 0 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        (void)scratch_write("said", cases[i].output);
        xr_str_clear(&text);
        xr_task_complaint(&task, &text);
        assert_string_equal(xr_str_text(&text), cases[i].says);
    }
    /* The end of a long output is read. */
    xr_str_clear(&text);
    for (int i = 0; i < 3000; i++)
        xr_str_printf(&text, "line %d\n", i);
    (void)scratch_write("said", xr_str_text(&text));
    xr_str_clear(&text);
    xr_task_complaint(&task, &text);
    assert_string_equal(xr_str_text(&text), "line 2999");
    xr_str_free(&text);
}

static void last_step_is_found(void **state)
{
    (void)state;
    char path[256];
    (void)snprintf(path, sizeof path, "%s/steps", scratch_dir());
    const xr_task task = { .metrics = path };
    xr_str text = { 0 };
    assert_int_equal(xr_task_step(&task), 0);
    (void)scratch_write("steps", "");
    assert_int_equal(xr_task_step(&task), 0);
    (void)scratch_write("steps", "{\"step\":3,\"a\":1}\n");
    assert_int_equal(xr_task_step(&task), 3);
    for (int i = 1; i <= 900; i++)
        xr_str_printf(&text, "{\"step\":%d,\"some/metric/mean\":0.5}\n", i);
    (void)scratch_write("steps", xr_str_text(&text));
    assert_int_equal(xr_task_step(&task), 900);
    xr_str_free(&text);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_have_state_and_code),
        cmocka_unit_test(tasks_run_side_by_side),
        cmocka_unit_test(stop_reaches_running_tasks),
        cmocka_unit_test(tasks_have_their_own_signals),
        cmocka_unit_test(failed_starts_are_reported),
        cmocka_unit_test(last_message_is_found),
        cmocka_unit_test(last_step_is_found),
    };
    if (argc > 1 && strcmp(argv[1], "child") == 0)
        return run_child(argc, argv);
    return cmocka_run_group_tests_name("ab.tasks", tests, scratch_make,
                                       scratch_drop);
}
