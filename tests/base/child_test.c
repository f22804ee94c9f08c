/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what a program that was started has as its descriptors, signals and
 * group, how its end is judged, and how children are reaped.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "core/base/child.h"
#include "core/base/process.h"
#include "tests/testing.h"

enum { LONG = 40 }; /* seconds that no test waits */

typedef struct ended {
    xray_status status;
    xr_err err;
    xr_str out;
} ended;

/* Runs a script of the shell and keeps what became of it. */
static ended run_script(const char *script, int input, double seconds,
                        const xray_call_service *calls)
{
    const char *const argv[] = { "sh", "-c", script, NULL };
    const xr_child child = { "the child", argv, input, seconds };
    ended e = { .status = XRAY_OK };
    e.status = xr_child_run(&child, calls, &e.err, &e.out);
    return e;
}

static void expect_end(const char *script, xray_status status, const char *says,
                       const char *out)
{
    ended e = run_script(script, XR_CHILD_NOTHING, LONG, NULL);
    assert_int_equal(e.status, status);
    assert_string_equal(e.err.text, says);
    assert_string_equal(xr_str_text(&e.out), out);
    xr_str_free(&e.out);
}

static void the_end_of_a_program_is_judged(void **state)
{
    (void)state;
    expect_end("echo a; echo b >&2; echo c", XRAY_OK, "", "a\nc\n");
    expect_end("echo a; exit 3", XRAY_E_IO,
               "the child ended with code 3: it gave no reason", "a\n");
    expect_end("echo why >&2; exit 4", XRAY_E_IO,
               "the child ended with code 4: why ", "");
    expect_end("exit 127", XRAY_E_UNSUPPORTED,
               "the child ended with code 127: it gave no reason", "");
    expect_end("exit 126", XRAY_E_IO,
               "the child ended with code 126: it gave no reason", "");
    expect_end("kill -KILL $$", XRAY_E_IO, "the child was ended by signal 9",
               "");
    /* It may close its output long before its end. */
    expect_end("exec >&- 2>&-; sleep 0.1; exit 5", XRAY_E_IO,
               "the child ended with code 5: it gave no reason", "");
    const char *const nothing[] = { "/no/such/program", NULL };
    const xr_child child = { "the child", nothing, XR_CHILD_NOTHING, LONG };
    xr_err err = { .text = "" };
    xr_str out = { 0 };
    assert_int_equal(xr_child_run(&child, NULL, &err, &out),
                     XRAY_E_UNSUPPORTED);
    assert_string_equal(err.text,
                        "starting the child: No such file or directory");
    assert_int_equal(out.size, 0);
}

/* A sentence holds the last 400 bytes of a long reason. */
static void the_end_of_a_reason_is_kept(void **state)
{
    (void)state;
    char want[600] = "the child ended with code 1: ";
    size_t used = strlen(want);
    memset(want + used, 'x', 396);
    memcpy(want + used + 396, "end ", 5);
    ended e = run_script("{ head -c 9000 /dev/zero | tr '\\0' x; echo end; } "
                         ">&2; exit 1",
                         XR_CHILD_NOTHING, LONG, NULL);
    assert_int_equal(e.status, XRAY_E_IO);
    assert_string_equal(e.err.text, want);
    xr_str_free(&e.out);
}

/* More than the pipes hold, on both at once, and what was there stays. */
static void long_output_is_read(void **state)
{
    (void)state;
    const char *const argv[] = { "sh", "-c",
                                 "head -c 300000 /dev/zero | tr '\\0' e >&2; "
                                 "head -c 300001 /dev/zero | tr '\\0' o",
                                 NULL };
    const xr_child child = { "the child", argv, XR_CHILD_NOTHING, LONG };
    xr_str out = { 0 };
    xr_str_puts(&out, "before");
    assert_int_equal(xr_child_run(&child, NULL, NULL, &out), XRAY_OK);
    assert_int_equal(out.size, 6 + 300001);
    assert_memory_equal(out.data, "beforeo", 7);
    assert_int_equal(strspn(xr_str_text(&out) + 6, "o"), 300001);
    xr_str_free(&out);
}

static void input_is_what_was_given(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], "given\n", 6), 6);
    assert_int_equal(close(fds[1]), 0);
    ended e = run_script("cat", fds[0], LONG, NULL);
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(e.status, XRAY_OK);
    assert_string_equal(xr_str_text(&e.out), "given\n");
    xr_str_free(&e.out);
    e = run_script("cat", XR_CHILD_NOTHING, LONG, NULL);
    assert_int_equal(e.status, XRAY_OK);
    assert_int_equal(e.out.size, 0);
    xr_str_free(&e.out);
}

/* ---- ends that the caller sets ------------------------------------------ */

/* Waits until nobody holds the pipe's other end, in whatever process; those
 * that are not killed hold it much longer. */
static void expect_all_ended(int *pipe_fds)
{
    char byte;
    struct pollfd end = { .fd = pipe_fds[0], .events = POLLIN };
    assert_int_equal(close(pipe_fds[1]), 0);
    assert_int_equal(poll(&end, 1, 1000 * LONG), 1);
    assert_int_equal(read(pipe_fds[0], &byte, 1), 0);
    assert_int_equal(close(pipe_fds[0]), 0);
}

/* A program that takes too long is killed, and so is what it started. The
 * second closes its output and goes on. */
static void a_program_ends_with_its_time(void **state)
{
    (void)state;
    static const char *const scripts[] = { "sleep 900 & sleep 900",
                                           "sleep 900 & exec >&- 2>&-; wait" };
    for (size_t i = 0; i < 2; i++) {
        int alive[2];
        assert_int_equal(pipe(alive), 0);
        assert_int_equal(fcntl(alive[0], F_SETFD, FD_CLOEXEC), 0);
        ended e = run_script(scripts[i], XR_CHILD_NOTHING, 0.2, NULL);
        assert_int_equal(e.status, XRAY_E_IO);
        assert_string_equal(e.err.text, "the child took longer than 0 s");
        expect_all_ended(alive);
        xr_str_free(&e.out);
    }
}

static uint32_t stop_calls(const xray_call_service *self)
{
    (void)self;
    return 1;
}

static void a_program_ends_with_the_call(void **state)
{
    (void)state;
    const xray_call_service calls = { .header = XRAY_HEADER(xray_call_service),
                                      .stopping = stop_calls };
    int alive[2];
    assert_int_equal(pipe(alive), 0);
    assert_int_equal(fcntl(alive[0], F_SETFD, FD_CLOEXEC), 0);
    ended e =
        run_script("sleep 900 & sleep 900", XR_CHILD_NOTHING, LONG, &calls);
    assert_int_equal(e.status, XRAY_E_CANCELED);
    expect_all_ended(alive);
    xr_str_free(&e.out);
}

/* ---- what a started program has ----------------------------------------- */

/* Starts a script and returns what it writes to a pipe, which is its descriptor
 * `place`, until all that hold it have ended. */
static void read_started(const char *script, const int *files, int place,
                         int only, char *text, size_t cap)
{
    char name[] = "sh";
    char option[] = "-c";
    char *words = strdup(script);
    char *const argv[] = { name, option, words, NULL };
    int all[XR_CHILD_FILES];
    int fds[2];
    int status = 0;
    pid_t pid = 0;
    size_t used = 0;
    ssize_t n;
    assert_non_null(words);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    memcpy(all, files, sizeof(all));
    all[place] = fds[1];
    assert_int_equal(xr_child_start(argv, all, only, &pid), 0);
    assert_int_equal(close(fds[1]), 0);
    while ((n = read(fds[0], text + used, cap - 1 - used)) > 0)
        used += (size_t)n;
    text[used] = '\0';
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    free(words);
}

static void descriptors_are_those_given(void **state)
{
    (void)state;
    char text[256];
    const int nothing[] = { XR_CHILD_NOTHING, XR_CHILD_NOTHING,
                            XR_CHILD_NOTHING, XR_CHILD_NOTHING };
    read_started("echo one; echo two >&2; echo three >&3; cat", nothing, 1, 0,
                 text, sizeof text);
    assert_string_equal(text, "one\n");
    read_started("echo one; echo two >&2; echo three >&3", nothing, 2, 0, text,
                 sizeof text);
    assert_string_equal(text, "two\n");
    read_started("echo one; echo two >&2; echo three >&3", nothing, 3, 0, text,
                 sizeof text);
    assert_string_equal(text, "three\n");
}

/* Descriptors that stand where others go are not lost. */
static void descriptors_may_change_places(void **state)
{
    (void)state;
    char name[] = "sh";
    char option[] = "-c";
    char words[] = "echo output; echo error >&2";
    char *const argv[] = { name, option, words, NULL };
    const int crossed[] = { XR_CHILD_NOTHING, 2, 1, XR_CHILD_SAME };
    int saved[2] = { fcntl(1, F_DUPFD_CLOEXEC, 10),
                     fcntl(2, F_DUPFD_CLOEXEC, 10) };
    int fds[2][2];
    char text[2][32] = { "", "" };
    int status = -1;
    pid_t pid = 0;
    (void)fflush(NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pipe2(fds[i], O_CLOEXEC), 0);
        assert_int_equal(dup2(fds[i][1], i + 1), i + 1);
    }
    int bad = xr_child_start(argv, crossed, 0, &pid);
    for (int i = 0; i < 2; i++) {
        (void)dup2(saved[i], i + 1);
        (void)close(saved[i]);
        (void)close(fds[i][1]);
    }
    assert_int_equal(bad, 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    for (int i = 0; i < 2; i++) {
        assert_true(read(fds[i][0], text[i], sizeof(text[i]) - 1) > 0);
        assert_int_equal(close(fds[i][0]), 0);
    }
    assert_string_equal(text[0], "error\n");
    assert_string_equal(text[1], "output\n");
}

/* Descriptors above the four are closed where only those are wanted. */
static void only_the_given_descriptors_are_open(void **state)
{
    (void)state;
    static const char script[] =
        "for i in 3 4 20; do [ -e /proc/$$/fd/$i ] && echo $i; done; true";
    char text[64];
    int nothing[] = { XR_CHILD_NOTHING, XR_CHILD_NOTHING, XR_CHILD_NOTHING,
                      XR_CHILD_NOTHING };
    int low = open("/dev/null", O_RDONLY);
    int high = fcntl(low, F_DUPFD, 20);
    assert_true(low >= 0 && high == 20);
    read_started(script, nothing, 1, 1, text, sizeof text);
    assert_string_equal(text, "3\n");
    read_started(script, nothing, 1, 0, text, sizeof text);
    assert_non_null(strstr(text, "20\n"));
    nothing[3] = XR_CHILD_SAME;
    read_started(script, nothing, 1, 1, text, sizeof text);
    assert_string_equal(text, "");
    assert_int_equal(close(low), 0);
    assert_int_equal(close(high), 0);
}

/* It leads a group of its own, and no signal is blocked or ignored there. */
/* A process that may open few files starts no program without its pipes, and
 * says why; what it has opened is closed again. */
static void a_limit_of_files_is_a_reason(void **state)
{
    struct rlimit limit;
    int full = 0;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit usual = limit;
    const int first = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(first >= 0);
    (void)close(first);
    for (int more = 0; more <= 8; more++) {
        limit.rlim_cur = (rlim_t)(first + more);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        ended e = run_script("echo a", XR_CHILD_NOTHING, LONG, NULL);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
        const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_int_equal(next, first);
        (void)close(next);
        full += e.status != XRAY_OK;
        if (more < 4 || e.status != XRAY_OK) {
            assert_int_equal(e.status, XRAY_E_IO);
            assert_non_null(strstr(e.err.text, "Too many open files"));
        } else {
            assert_string_equal(xr_str_text(&e.out), "a\n");
        }
        xr_str_free(&e.out);
    }
    assert_in_range(full, 4, 8);
}

static void signals_are_those_of_a_new_program(void **state)
{
    (void)state;
    char name[] = "sh";
    char option[] = "-c";
    char words[] = "set -- $(cat /proc/$$/stat); [ $5 = $$ ] || exit 1; "
                   "kill -TERM $$; exit 2";
    char *const argv[] = { name, option, words, NULL };
    const int same[] = { XR_CHILD_NOTHING, XR_CHILD_SAME, XR_CHILD_SAME,
                         XR_CHILD_SAME };
    for (int ignored = 0; ignored < 2; ignored++) {
        sigset_t term;
        sigset_t before;
        int status = 0;
        pid_t pid = 0;
        (void)sigemptyset(&term);
        (void)sigaddset(&term, SIGTERM);
        if (ignored)
            (void)signal(SIGTERM, SIG_IGN);
        else
            assert_int_equal(sigprocmask(SIG_BLOCK, &term, &before), 0);
        int bad = xr_child_start(argv, same, 0, &pid);
        if (ignored)
            (void)signal(SIGTERM, SIG_DFL);
        else
            assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
        assert_int_equal(bad, 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    }
}

/* ---- reaping ------------------------------------------------------------ */

static void children_are_reaped_once(void **state)
{
    (void)state;
    char name[] = "sleep";
    char seconds[] = "900";
    char *const argv[] = { name, seconds, NULL };
    const int same[] = { XR_CHILD_SAME, XR_CHILD_SAME, XR_CHILD_SAME,
                         XR_CHILD_SAME };
    int status = 0;
    pid_t pid = 0;
    assert_int_equal(xr_child_start(argv, same, 0, &pid), 0);
    assert_int_equal(xr_process_reap(pid, 0, &status), XR_PROCESS_RUNS);
    assert_int_equal(xr_process_reap(pid, 20, &status), XR_PROCESS_RUNS);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(xr_process_reap(pid, 1000 * LONG, &status),
                     XR_PROCESS_ENDED);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(xr_process_reap(pid, 1000 * LONG, &status),
                     XR_PROCESS_GONE);
}

static void ends_are_described(void **state)
{
    (void)state;
    static const struct {
        int status; /* as waitpid gives it on Linux */
        int clean;
        const char *says;
    } rows[] = {
        { 0, 1, "exited with status 0" },
        { 1 << 8, 0, "exited with status 1" },
        { 255 << 8, 0, "exited with status 255" },
        { SIGKILL, 0, "was killed by signal 9 (Killed)" },
        { SIGSEGV | 0x80, 0, "was killed by signal 11 (Segmentation fault)" },
        { 33, 0, "was killed by signal 33 (unknown)" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[80];
        assert_int_equal(xr_process_describe(rows[i].status, text, sizeof text),
                         rows[i].clean);
        assert_string_equal(text, rows[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_of_a_program_is_judged),
        cmocka_unit_test(the_end_of_a_reason_is_kept),
        cmocka_unit_test(long_output_is_read),
        cmocka_unit_test(input_is_what_was_given),
        cmocka_unit_test(a_program_ends_with_its_time),
        cmocka_unit_test(a_program_ends_with_the_call),
        cmocka_unit_test(descriptors_are_those_given),
        cmocka_unit_test(descriptors_may_change_places),
        cmocka_unit_test(only_the_given_descriptors_are_open),
        cmocka_unit_test(a_limit_of_files_is_a_reason),
        cmocka_unit_test(signals_are_those_of_a_new_program),
        cmocka_unit_test(children_are_reaped_once),
        cmocka_unit_test(ends_are_described),
    };
    return cmocka_run_group_tests_name("base.child", tests, NULL, NULL);
}
