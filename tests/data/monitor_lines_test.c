/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves a monitor's output to the character: lines of metrics, marks, the
 * progress line, and plots.
 */
#define _XOPEN_SOURCE 700 /* posix_openpt */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <termios.h>
#include <time.h>

#include "core/base/hash.h"
#include "core/monitor/monitor.h"
#include "tests/scratch.h"

static char *read_text(const char *path)
{
    char *text = NULL;
    size_t size;
    xr_err err = { "" };
    if (xr_file_read(path, 1 << 20, &err, &text, &size) != XRAY_OK)
        fail_msg("%s", err.text);
    return text;
}

static void expect_file(const char *path, const char *want)
{
    char *text = read_text(path);
    assert_string_equal(text, want);
    free(text);
}

/* Returns the message without the scratch folder. */
static const char *error_text(const xr_err *err)
{
    static char text[sizeof err->text];
    const char *dir = scratch_dir();
    char *at;
    (void)snprintf(text, sizeof text, "%s", err->text);
    while ((at = strstr(text, dir)))
        memmove(at, at + strlen(dir) + 1, strlen(at + strlen(dir) + 1) + 1);
    return text;
}

#define ONE "{\"step\":1,\"a\":1,\"b\":0.5}\n"
#define TWO "{\"step\":2,\"a\":2}\n"
#define THREE "{\"step\":3,\"a\":-1e+300,\"c\":null}\n"
#define FOUR "{\"step\":4}\n"

/* Opens the file with `keep`, writes no step, and returns the mark. */
static xray_status reopen_metrics(const char *path, int64_t keep,
                                  xr_metrics_mark *mark, xr_err *err)
{
    xr_monitor *m = NULL;
    xray_status status = xr_monitor_open(path, keep, 0, NULL, err, &m);
    if (status == XRAY_OK)
        status = xr_monitor_mark(m, mark, err);
    xr_monitor_close(m);
    return status;
}

static uint64_t hash_of(const char *const *lines, size_t count)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < count; i++)
        hash = xr_hash64(lines[i], strlen(lines[i]), hash);
    return hash;
}

static const char *const all_lines[] = { ONE, TWO, THREE, FOUR };

/* A line that does not fit on the disk leaves the complete lines before it and
 * is in no mark. */
static void one_extra_line_is_cut(void **state)
{
    (void)state;
    const char *path = scratch_write("limit.jsonl", ONE);
    struct rlimit before;
    xr_metrics_mark mark;
    xr_monitor *m;
    xr_err err = { "" };
    xr_metrics *v = xr_metrics_new();
    assert_int_equal(xr_monitor_open(path, -1, 0, NULL, &err, &m), XRAY_OK);
    xr_metrics_put(v, "a", 2);
    assert_int_equal(xr_monitor_step(m, 2, 0, v, &err), XRAY_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit small = before;
    small.rlim_cur = strlen(ONE TWO) + 5;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    xray_status status = xr_monitor_step(m, 3, 0, v, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, handler);
    assert_int_equal(status, XRAY_E_IO);
    assert_int_equal(
        strncmp(error_text(&err), "limit.jsonl: File too large", 27), 0);
    expect_file(path, ONE TWO);
    assert_int_equal(xr_monitor_step(m, 4, 0, v, &err), XRAY_OK);
    assert_int_equal(xr_monitor_mark(m, &mark, &err), XRAY_OK);
    assert_int_equal(mark.count, 2);
    xr_monitor_close(m);
    xr_metrics_free(v);
    expect_file(path, ONE TWO);
}

static void marks_cover_the_lines(void **state)
{
    (void)state;
    const char *path = scratch_write("marks.jsonl", "");
    xr_metrics *v = xr_metrics_new();
    xr_metrics_mark mark;
    xr_monitor *m;
    xr_err err = { "" };
    assert_int_equal(xr_monitor_open(path, -1, 0, NULL, &err, &m), XRAY_OK);
    assert_int_equal(xr_monitor_mark(m, &mark, &err), XRAY_OK);
    assert_true(mark.count == 0 && mark.hash == 0);
    xr_metrics_put(v, "a", 1);
    xr_metrics_put(v, "b", 0.5);
    assert_int_equal(xr_monitor_step(m, 1, 0, v, &err), XRAY_OK);
    xr_metrics_clear(v);
    xr_metrics_put(v, "a", 2);
    assert_int_equal(xr_monitor_step(m, 2, 0, v, &err), XRAY_OK);
    xr_metrics_put(v, "a", -1e300);
    xr_metrics_put(v, "c", INFINITY);
    assert_int_equal(xr_monitor_step(m, 3, 0, v, &err), XRAY_OK);
    xr_metrics_clear(v);
    assert_int_equal(xr_monitor_step(m, 4, 0, v, &err), XRAY_OK);
    assert_int_equal(xr_monitor_mark(m, &mark, &err), XRAY_OK);
    assert_int_equal(mark.count, 4);
    assert_true(mark.hash == hash_of(all_lines, 4));
    xr_monitor_close(m);
    xr_metrics_free(v);
    expect_file(path, ONE TWO THREE FOUR);
}

/* A resume keeps complete lines up to its own step. */
static void resume_keeps_earlier_lines(void **state)
{
    (void)state;
    static const struct {
        const char *before;
        int64_t keep;
        const char *after;
        uint64_t lines;
    } cases[] = {
        { ONE TWO THREE, -1, ONE TWO THREE, 3 },
        { ONE TWO THREE, 0, "", 0 },
        { ONE TWO THREE, 1, ONE, 1 },
        { ONE TWO THREE FOUR, 3, ONE TWO THREE, 3 },
        { ONE TWO "{\"step\":3", 9, ONE TWO, 2 },
        { ONE TWO "{\"step\":3}", -1, ONE TWO, 2 },
        { FOUR, 4, FOUR, 1 },
        { "", 4, "", 0 },
    };
    static const char *const three[] = { ONE, TWO, THREE };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path = scratch_write("kept.jsonl", cases[i].before);
        xr_metrics_mark mark;
        xr_err err = { "" };
        if (reopen_metrics(path, cases[i].keep, &mark, &err) != XRAY_OK)
            fail_msg("case %zu: %s", i, err.text);
        expect_file(path, cases[i].after);
        assert_int_equal(mark.count, cases[i].lines);
        if (strncmp(cases[i].before, ONE, 10) == 0)
            assert_true(mark.hash == hash_of(three, mark.count));
    }
}

/* Files that are not ours stay unchanged. */
static void foreign_lines_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned line;
    } cases[] = {
        { "notes\n", 1 },
        { "\n", 1 },
        { ONE "{\"step\":x}\n" TWO, 2 },
        { ONE TWO "{\"step\":-3}\n", 3 },
        { "{\"step\":}\n", 1 },
        { "{\"step\":1.5}\n", 1 },
        { "{\"step\":7 }\n", 1 },
        { "{\"step\":99999999999999999999}\n", 1 },
        { "{\"step\":12345678901234567890123456}\n", 1 },
        { "{ \"step\":1}\n", 1 },
        { "{\"steps\":1}\n", 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char want[128];
        xr_err err = { "" };
        xr_metrics_mark mark;
        const char *path = scratch_write("other.jsonl", cases[i].text);
        (void)snprintf(
            want, sizeof want,
            "other.jsonl:%u: not a line of metrics; the file is left unchanged",
            cases[i].line);
        assert_int_equal(reopen_metrics(path, 9, &mark, &err), XRAY_E_CONFIG);
        assert_string_equal(error_text(&err), want);
        expect_file(path, cases[i].text);
    }
}

static xray_status cut_after_mark(const char *text, uint64_t count,
                                  uint64_t hash, xr_err *err)
{
    const xr_metrics_mark mark = { count, hash };
    return xr_metrics_cut(scratch_write("cut.jsonl", text), &mark, err);
}

static void lines_after_the_mark_are_cut(void **state)
{
    (void)state;
    static const char *const texts[] = { "", ONE, ONE TWO, ONE TWO THREE,
                                         ONE TWO THREE FOUR };
    xr_err err = { "" };
    for (size_t have = 0; have < 5; have++)
        for (size_t want = 0; want <= have; want++) {
            assert_int_equal(cut_after_mark(texts[have], want,
                                            hash_of(all_lines, want), &err),
                             XRAY_OK);
            expect_file(scratch_path("cut.jsonl"), texts[want]);
        }
    /* An incomplete line and anything else after the mark are cut, too. */
    assert_int_equal(
        cut_after_mark(ONE "not ours\n{\"st", 1, hash_of(all_lines, 1), &err),
        XRAY_OK);
    expect_file(scratch_path("cut.jsonl"), ONE);
    assert_string_equal(err.text, "");
}

static void different_lines_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t count;
        const char *says;
    } cases[] = {
        { ONE, 2,
          "cut.jsonl has 1 complete lines, but the checkpoint was written with "
          "2" },
        { ONE "{\"step\":2}", 2,
          "cut.jsonl has 1 complete lines, but the checkpoint was written with "
          "2" },
        { "", 3,
          "cut.jsonl has 0 complete lines, but the checkpoint was written with "
          "3" },
        { ONE THREE TWO FOUR, 3,
          "cut.jsonl:3: step 2 follows step 3; the file was changed after the "
          "checkpoint was written" },
        { ONE ONE, 2,
          "cut.jsonl:2: step 1 follows step 1; the file was changed after the "
          "checkpoint was written" },
        { ONE THREE, 2,
          "cut.jsonl: the first 2 lines differ from those that the checkpoint "
          "was written with" },
        { ONE "notes\n" TWO, 3,
          "cut.jsonl: the first 3 lines differ from those that the checkpoint "
          "was written with" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xr_err err = { "" };
        assert_int_equal(cut_after_mark(cases[i].text, cases[i].count,
                                        hash_of(all_lines, cases[i].count),
                                        &err),
                         XRAY_E_CONFIG);
        assert_string_equal(error_text(&err), cases[i].says);
        expect_file(scratch_path("cut.jsonl"), cases[i].text);
    }
    const xr_metrics_mark none = { 0, 0 };
    const xr_metrics_mark some = { 2, 1 };
    xr_err err = { "" };
    const char *path = scratch_path("gone.jsonl");
    assert_int_equal(xr_metrics_cut(path, &none, &err), XRAY_OK);
    assert_int_equal(xr_metrics_cut(path, &some, &err), XRAY_E_CONFIG);
    assert_string_equal(error_text(&err),
                        "gone.jsonl is missing, but the checkpoint "
                        "was written with 2 lines in it");
    assert_false(xr_path_exists(path));
}

/* A full disk is reported once, with the state of the file. */
static void full_disk_leaves_complete_lines(void **state)
{
    (void)state;
    xr_monitor *m;
    xr_metrics_mark mark;
    xr_err err = { "" };
    xr_metrics *v = xr_metrics_new();
    assert_int_equal(xr_monitor_open("/dev/full", -1, 0, NULL, &err, &m),
                     XRAY_OK);
    assert_int_equal(xr_monitor_step(m, 1, 2, v, &err), XRAY_E_IO);
    assert_string_equal(
        err.text,
        "/dev/full: No space left on device (an incomplete last line remains)");
    assert_int_equal(xr_monitor_step(m, 2, 2, v, &err), XRAY_OK);
    assert_int_equal(xr_monitor_mark(m, &mark, &err), XRAY_OK);
    assert_int_equal(mark.count, 0);
    xr_monitor_close(m);
    xr_metrics_free(v);
}

/* ---- the progress line -------------------------------------------------- */

typedef struct capture {
    int saved;
    int file;
} capture;

static void begin_capture(capture *c, int file)
{
    (void)fflush(stderr);
    c->saved = dup(STDERR_FILENO);
    c->file = file;
    assert_true(file >= 0 && c->saved >= 0 && dup2(file, STDERR_FILENO) >= 0);
}

static void end_capture(capture *c)
{
    (void)fflush(stderr);
    (void)dup2(c->saved, STDERR_FILENO);
    (void)close(c->saved);
    (void)close(c->file);
}

static int open_log(void)
{
    return open(scratch_path("stderr.txt"), O_RDWR | O_CREAT | O_TRUNC, 0600);
}

static const char *const watch[] = { "critic/score/mean", "gone", "loss",
                                     NULL };

static void console_shows_lines(void **state)
{
    (void)state;
    capture c;
    xr_monitor *m;
    xr_metrics *v = xr_metrics_new();
    begin_capture(&c, open_log());
    xray_status status = xr_monitor_open(NULL, -1, 1, watch, NULL, &m);
    xr_metrics_put(v, "loss", -1234567);
    xr_metrics_put(v, "unwatched", 7);
    xr_metrics_put(v, "critic/score/mean", 0.123456);
    xr_monitor_validation(m, 0, 9, 0.25);
    xr_monitor_validation(m, 3, 0, 2.0 / 3);
    xr_monitor_validation(m, 4, 9, (double)NAN);
    status |= xr_monitor_step(m, 7, 0, v, NULL);
    xr_monitor_say(m, "said");
    xr_metrics_put(v, "loss", (double)NAN);
    status |= xr_monitor_step(m, 9, 9, v, NULL);
    xr_monitor_close(m);
    /* Without a console and a file, nothing is written. */
    status |= xr_monitor_open(NULL, -1, 0, watch, NULL, &m);
    status |= xr_monitor_step(m, 9, 9, v, NULL);
    xr_monitor_validation(m, 9, 9, 0.5);
    xr_monitor_close(m);
    end_capture(&c);
    xr_metrics_free(v);
    assert_int_equal(status, XRAY_OK);
    expect_file(scratch_path("stderr.txt"),
                "step 0/9  validation 0.2500\n"
                "step 3  validation 0.6667\n"
                "step 7  critic/score/mean 0.1235  loss -1.235e+06\n"
                "said\n"
                "step 9/9  critic/score/mean 0.1235\n");
}

/* Opens a terminal whose output arrives unchanged at *out_master. */
static int open_terminal(int *out_master)
{
    struct termios how;
    *out_master = posix_openpt(O_RDWR | O_NOCTTY);
    if (*out_master < 0 || grantpt(*out_master) || unlockpt(*out_master))
        return -1;
    int slave = open(ptsname(*out_master), O_RDWR | O_NOCTTY);
    if (slave < 0 || tcgetattr(slave, &how))
        return -1;
    how.c_oflag &= (tcflag_t)~OPOST;
    return tcsetattr(slave, TCSANOW, &how) ? -1 : slave;
}

/* Reads the terminal's output up to `end`. */
static void read_until(int master, const char *end, char *out, size_t cap)
{
    size_t size = 0;
    out[0] = '\0';
    while (size + 1 < cap && !strstr(out, end)) {
        ssize_t n = read(master, out + size, cap - 1 - size);
        assert_true(n > 0);
        size += (size_t)n;
        out[size] = '\0';
    }
    assert_non_null(strstr(out, end));
}

/* On a terminal, each step overwrites the previous one; messages appear above
 * it. */
static void progress_is_overwritten_in_place(void **state)
{
    (void)state;
    char text[1024];
    int master;
    capture c;
    xr_monitor *m;
    xr_metrics *v = xr_metrics_new();
    int slave = open_terminal(&master);
    begin_capture(&c, slave);
    xray_status status = xr_monitor_open(NULL, -1, 1, watch, NULL, &m);
    xr_monitor_say(m, "before");
    xr_metrics_put(v, "loss", 0.5);
    status |= xr_monitor_step(m, 1, 0, v, NULL);
    xr_monitor_say(m, "between");
    status |= xr_monitor_step(m, 2, 2, v, NULL);
    xr_monitor_validation(m, 2, 2, 1);
    xr_monitor_close(m);
    (void)fputs("END", stderr);
    end_capture(&c);
    read_until(master, "END", text, sizeof text);
    (void)close(master);
    xr_metrics_free(v);
    assert_int_equal(status, XRAY_OK);
    assert_string_equal(text, "before\n"
                              "\r\033[Kstep 1  loss 0.5"
                              "\r\033[Kbetween\nstep 1  loss 0.5"
                              "\r\033[Kstep 2/2  loss 0.5"
                              "\r\033[Kstep 2/2  validation 1.0000\n"
                              "step 2/2  loss 0.5"
                              "\nEND");
}

/* Parses the seconds of "h:mm:ss" or "m:ss", whose parts have two digits. */
static double parse_eta(const char *at)
{
    size_t digits = strspn(at, "0123456789");
    double seconds = strtod(at, NULL);
    int parts = 1;
    for (at += digits; *at == ':'; at += 3, parts++) {
        assert_int_equal(strspn(at + 1, "0123456789"), 2);
        assert_true(at[1] < '6');
        seconds = seconds * 60 + (at[1] - '0') * 10 + (at[2] - '0');
    }
    assert_true(parts == 2 || parts == 3);
    assert_true((parts == 3) == (seconds >= 3600));
    return seconds;
}

/* The ETA is computed from the steps of this process: from step 101 on there
 * are four at step 104. */
static void eta_counts_down(void **state)
{
    (void)state;
    static const uint64_t to_go[] = { 4000000, 40000, 1000 };
    for (size_t i = 0; i < 3; i++) {
        char text[1024];
        int master;
        capture c;
        xr_monitor *m;
        xr_metrics *v = xr_metrics_new();
        int slave = open_terminal(&master);
        double since = xr_now();
        begin_capture(&c, slave);
        xray_status status = xr_monitor_open(NULL, -1, 1, watch, NULL, &m);
        double opened = xr_now();
        for (uint64_t step = 101; step <= 103; step++)
            status |= xr_monitor_step(m, step, 0, v, NULL);
        (void)nanosleep(&(struct timespec){ 0, 20000000 }, NULL);
        double before = xr_now();
        status |= xr_monitor_step(m, 104, 104 + to_go[i], v, NULL);
        double after = xr_now();
        status |= xr_monitor_step(m, 104, 104, v, NULL);
        xr_monitor_close(m);
        (void)fputs("END", stderr);
        end_capture(&c);
        read_until(master, "END", text, sizeof text);
        (void)close(master);
        xr_metrics_free(v);
        assert_int_equal(status, XRAY_OK);
        assert_non_null(strstr(text, "\033[Kstep 104/104\nEND"));
        char *at = strstr(text, "  eta ");
        assert_non_null(at);
        assert_ptr_equal(strstr(at + 1, "  eta "), NULL);
        double eta = parse_eta(at + 6);
        assert_true(eta >= (before - opened) / 4 * (double)to_go[i] - 1);
        assert_true(eta <= (after - since) / 4 * (double)to_go[i] + 1);
    }
}

/* If lines cannot be overwritten, there is about one per second, and always the
 * last one. */
static void console_shows_one_line_per_second(void **state)
{
    (void)state;
    capture c;
    xr_monitor *m;
    xr_metrics *v = xr_metrics_new();
    begin_capture(&c, open_log());
    double since = xr_now();
    xray_status status = xr_monitor_open(NULL, -1, 1, NULL, NULL, &m);
    for (uint64_t step = 1; step <= 200; step++)
        status |= xr_monitor_step(m, step, step > 199 ? 200 : 0, v, NULL);
    double seconds = xr_now() - since;
    xr_monitor_close(m);
    end_capture(&c);
    xr_metrics_free(v);
    assert_int_equal(status, XRAY_OK);
    char *text = read_text(scratch_path("stderr.txt"));
    size_t lines = 0;
    for (const char *at = text; *at; at++)
        lines += *at == '\n';
    assert_true(lines >= 2 && (double)lines <= 3 + seconds);
    assert_int_equal(strncmp(text, "step 1\n", 7), 0);
    assert_string_equal(text + strlen(text) - 13, "step 200/200\n");
    free(text);
}

/* ---- plots -------------------------------------------------------------- */

static void plots_are_exact(void **state)
{
    (void)state;
    static const double up[] = { 1, 2, 3, 4, 5, 6, 7, 9, (double)NAN, 8 };
    static const double gap[] = { -1, (double)INFINITY, 1 };
    static const struct {
        const double *values;
        size_t count;
        unsigned width;
        unsigned height;
        const char *want;
    } cases[] = {
        { up, 10, 5, 3,
          "p\n"
          "         8 |   **\n"
          "      4.75 | **\n"
          "       1.5 |*\n"
          "           +-----\n"
          "            1  10\n" },
        { up, 4, 10, 4,
          "p\n"
          "         4 |   *\n"
          "           |  *\n"
          "         2 | *\n"
          "         1 |*\n"
          "           +----\n"
          "            1  4\n" },
        { gap, 3, 3, 2,
          "p\n"
          "         1 |  *\n"
          "        -1 |*\n"
          "           +---\n"
          "            1 3\n" },
        { up, 1, 8, 3,
          "p\n"
          "       1.5 |\n"
          "         1 |*\n"
          "       0.5 |\n"
          "           +-\n"
          "            1\n" },
        { up, 7, 2, 2,
          "p\n"
          "       5.5 | *\n"
          "         2 |*\n"
          "           +--\n"
          "            1 7\n" },
        { up, 10, 0, 3, "p\n  (no values)\n" },
        { up, 10, 5, 1, "p\n  (no values)\n" },
        { up + 8, 1, 5, 3, "p\n  (no values)\n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xr_str out = { 0 };
        xr_plot(cases[i].values, cases[i].count, cases[i].width,
                cases[i].height, "p", &out);
        assert_string_equal(xr_str_text(&out), cases[i].want);
        xr_str_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks_cover_the_lines),
        cmocka_unit_test(one_extra_line_is_cut),
        cmocka_unit_test(resume_keeps_earlier_lines),
        cmocka_unit_test(foreign_lines_are_refused),
        cmocka_unit_test(lines_after_the_mark_are_cut),
        cmocka_unit_test(different_lines_are_refused),
        cmocka_unit_test(full_disk_leaves_complete_lines),
        cmocka_unit_test(console_shows_lines),
        cmocka_unit_test(progress_is_overwritten_in_place),
        cmocka_unit_test(eta_counts_down),
        cmocka_unit_test(console_shows_one_line_per_second),
        cmocka_unit_test(plots_are_exact),
    };
    return cmocka_run_group_tests_name("monitor.lines", tests, scratch_make,
                                       scratch_drop);
}
