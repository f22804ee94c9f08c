/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what reward.ffi does with its workers, whatever they are: programs of
 * the shell stand for an interpreter that answers wrongly, breaks off, or
 * crashes, and what a function prints is logged line by line.
 */
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/reward/ffi_rig.h"
#include "tests/reward/log_lines.h"

/* An interpreter that runs these commands of the shell with descriptor 3 as the
 * channel. */
static void shell_keys(const char *commands, const char **out)
{
    char text[1024];
    (void)snprintf(text, sizeof(text), "#!/bin/sh\n%s\n", commands);
    const char *path = scratch_write("interpreter", text);
    assert_int_equal(chmod(path, 0700), 0);
    const char *keys[] = { "language", "python",      "path", "x.py", "workers",
                           "1",        "interpreter", path,   NULL };
    memcpy(out, keys, sizeof(keys));
}

static void workers_that_are_never_ready_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *commands;
        const char *words;
    } rows[] = {
        { "echo '{}' >&3", "create: a worker said nonsense" },
        { "echo '[1]' >&3", "create: a worker said nonsense" },
        { "echo 'words' >&3", "create: a worker said nonsense" },
        { "echo '{\"ready\":\"1\"}' >&3", "create: a worker said nonsense" },
        { "echo '{\"error\":\"my words\"}' >&3", "create: my words" },
        { "printf '{\"error\":' >&3; sleep 0.05; echo '\"two parts\"}' >&3",
          "create: two parts" },
        { "exit 3", "create: the function ended its process (exit code 3) "
                    "while its file was loaded" },
        { "kill -SEGV $$", "create: the function crashed (Segmentation fault) "
                           "while its file was loaded" },
        { "exec 3>&-; sleep 60", "create: the function closed its channel "
                                 "while its file was loaded" },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *keys[9];
        shell_keys(rows[i].commands, keys);
        expect_refusal(keys, rows[i].words);
    }
}

/* The worker is ready, then answers each request with the same words. */
static void open_answering(rig *r, const char *words)
{
    char commands[512];
    const char *keys[9];
    (void)snprintf(commands, sizeof(commands),
                   "echo '{\"ready\":1}' >&3\n"
                   "while read -r line <&3; do\n%s\ndone",
                   words);
    shell_keys(commands, keys);
    rig_open(r, keys);
}

static void wrong_answers_are_failures_of_the_sample(void **state)
{
    (void)state;
    static const struct {
        const char *commands;
        const char *words;
    } rows[] = {
        { "echo '[1,2]' >&3", "sample 3: the answer is not that of a worker" },
        { "echo '[]' >&3", "sample 3: the answer is not that of a worker" },
        { "echo '{\"x\":1}' >&3", "the answer is not that of a worker" },
        { "echo words >&3", "sample 3: the answer is not that of a worker" },
        { "echo '{\"error\":\"all bad\"}' >&3", "sample 3: all bad" },
        { "echo '[{\"error\":\"one bad\"}]' >&3", "sample 3: one bad" },
        { "exit 9", "the function ended its process (exit code 9)" },
        { "kill -KILL $$", "sample 3: the function crashed (Killed)" },
        { "exec 3>&-; sleep 60", "sample 3: the function closed its channel" },
    };
    const xray_sample_in sample = make_sample(3, "a");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        rig r;
        open_answering(&r, rows[i].commands);
        for (int k = 0; k < 2; k++) {
            expect_failure(&r, &sample, rows[i].words);
            assert_null(strstr(r.host.reason, "loaded"));
        }
        r.ops->destroy(r.self);
    }
}

static void right_answers_are_scores(void **state)
{
    (void)state;
    rig r;
    xray_score score;
    const xray_sample_in sample = make_sample(3, "a");
    open_answering(&r, "printf '[{\"score\":2,' >&3; sleep 0.05; "
                       "echo '\"v\":4}]' >&3");
    for (int k = 0; k < 2; k++) {
        submit(&r, &sample, 1);
        assert_int_equal(next_score(&r, &score), XRAY_OK);
        assert_true(score.score == 2);
        assert_int_equal(score.value_count, 2);
        assert_true(score.values[1].value == 4);
    }
    r.ops->destroy(r.self);
    open_answering(&r, "echo '[0.25]' >&3");
    assert_true(score_text(&r, "a") == 0.25);
    r.ops->destroy(r.self);
}

/* ---- what is printed ---------------------------------------------------- */

/* Has a function print a text; what the worker has printed is logged when it
 * ended, if not before. */
static void print_text(const char *function, const char *text)
{
    rig r;
    rig_open(&r, C_KEYS("symbol", function, "signature", "response:s -> d",
                        "workers", "1"));
    logged.count = 0;
    r.host.api.log = keep_line;
    assert_true(score_text(&r, text) == 1);
    r.ops->destroy(r.self);
}

static void check_line(unsigned i, const char *expected)
{
    char line[1100];
    (void)snprintf(line, sizeof(line), "the function prints: %s", expected);
    assert_string_equal(logged.line[i], line);
}

static void prints_are_logged_line_by_line(void **state)
{
    static const char *const functions[] = { "print", "complain" };
    (void)state;
    for (int i = 0; i < 2; i++) {
        print_text(functions[i], "one\n\ntwo words\nrest");
        assert_int_equal(logged.count, 3);
        check_line(0, "one");
        check_line(1, "two words");
        check_line(2, "rest");
    }
    print_text("print", "\n");
    assert_int_equal(logged.count, 0);
}

static void a_line_before_a_crash_is_logged(void **state)
{
    rig r;
    const xray_sample_in sample = make_sample(3, "crash");
    (void)state;
    rig_open(&r, C_KEYS("symbol", "obey", "workers", "1"));
    logged.count = 0;
    r.host.api.log = keep_line;
    expect_failure(&r, &sample, "the function crashed");
    r.ops->destroy(r.self);
    assert_int_equal(logged.count, 1);
    check_line(0, "the end");
}

/* A line of more than 1000 bytes is logged in pieces. */
static void long_lines_are_logged_in_pieces(void **state)
{
    (void)state;
    static char text[2503];
    char piece[1001];
    memset(text, 'a', 2500);
    memcpy(text + 2500, "\nb", 3);
    print_text("print", text);
    assert_int_equal(logged.count, 4);
    memset(piece, 'a', 1000);
    piece[1000] = '\0';
    check_line(0, piece);
    check_line(1, piece);
    piece[500] = '\0';
    check_line(2, piece);
    check_line(3, "b");
}

/* ---- limits ------------------------------------------------------------- */

static void memory_of_0_is_no_limit(void **state)
{
    (void)state;
    rig r;
    const xray_sample_in sample = make_sample(3, "leak");
    rig_open(&r, C_KEYS("symbol", "obey", "memory", "0", "workers", "1"));
    assert_true(score_text(&r, "leak") == 2);
    r.ops->destroy(r.self);
    rig_open(&r, C_KEYS("symbol", "obey", "memory", "32M", "workers", "1"));
    expect_failure(&r, &sample, "sample 3: the function "); /* it ends */
    assert_true(score_text(&r, "well") == 2);
    r.ops->destroy(r.self);
}

/* `timeout` is that of a call: a file may take longer to load. */
static void loading_may_take_longer_than_a_call(void **state)
{
    (void)state;
    rig r;
    const char *keys[11];
    shell_keys("sleep 0.5; echo '{\"ready\":1}' >&3\n"
               "read -r line <&3; echo '[2]' >&3\n"
               "read -r line <&3; sleep 60",
               keys);
    keys[8] = "timeout";
    keys[9] = "400ms";
    keys[10] = NULL;
    rig_open(&r, keys);
    const xray_sample_in sample = make_sample(3, "a");
    xray_score score;
    submit(&r, &sample, 1);
    if (next_score(&r, &score) == XRAY_OK) /* a busy machine may take longer */
        assert_true(score.score == 2);
    submit(&r, &sample, 1);
    if (next_score(&r, &score) == XRAY_OK)
        expect_failure(&r, &sample, "did not return within 0.4 s (timeout)");
    expect_words(r.host.reason, "did not return within 0.4 s (timeout)");
    r.ops->destroy(r.self);
}

/* Samples of one prompt are one call if their rows are the same. */
static void another_row_is_another_call(void **state)
{
    (void)state;
    rig r;
    xray_score score;
    static const double expected[] = { 3, 3, 3, 1 };
    xray_sample_in samples[4];
    for (uint64_t i = 0; i < 4; i++) {
        samples[i] = make_sample(i, "a");
        samples[i].fields_json = i < 3 ? "{\"v\":1}" : "{\"v\":2}";
    }
    rig_open(&r,
             PYTHON_KEYS(scratch_write("b.py", "def f(solution_strs, **k):\n"
                                               "    n = len(solution_strs)\n"
                                               "    return [n] * n\n"),
                         "call", "batch", "name", "f"));
    submit(&r, samples, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(next_score(&r, &score), XRAY_OK);
        assert_true(score.score == expected[score.id]);
    }
    assert_int_equal(next_score(&r, &score), XRAY_END);
    r.ops->destroy(r.self);
}

/* ---- the program of a worker -------------------------------------------- */

/* Returns the exit code of the program with these arguments, and no channel. */
static int run_worker(const char *first, const char *second, const char *third)
{
    extern char **environ;
    char path[512];
    char texts[3][64];
    pid_t pid = 0;
    int status = 0;
    posix_spawn_file_actions_t actions;
    (void)snprintf(path, sizeof(path), "%s/plugins/reward-ffi-worker",
                   getenv("XRAY_BUILD"));
    (void)snprintf(texts[0], sizeof(texts[0]), "%s", first);
    (void)snprintf(texts[1], sizeof(texts[1]), "%s", second);
    (void)snprintf(texts[2], sizeof(texts[2]), "%s", third);
    char *const argv[] = { path, texts[0], texts[1], texts[2], texts[2], NULL };
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    assert_int_equal(
        posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", 1, 0), 0);
    assert_int_equal(posix_spawn(&pid, path, &actions, NULL, argv, environ), 0);
    (void)posix_spawn_file_actions_destroy(&actions);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void only_the_plugin_runs_a_worker(void **state)
{
    (void)state;
    assert_int_equal(run_worker("x", "0", "exec"), 2);
    assert_int_equal(run_worker("1", "x", "exec"), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_that_are_never_ready_are_refused),
        cmocka_unit_test(wrong_answers_are_failures_of_the_sample),
        cmocka_unit_test(right_answers_are_scores),
        cmocka_unit_test(prints_are_logged_line_by_line),
        cmocka_unit_test(a_line_before_a_crash_is_logged),
        cmocka_unit_test(long_lines_are_logged_in_pieces),
        cmocka_unit_test(memory_of_0_is_no_limit),
        cmocka_unit_test(loading_may_take_longer_than_a_call),
        cmocka_unit_test(another_row_is_another_call),
        cmocka_unit_test(only_the_plugin_runs_a_worker),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
