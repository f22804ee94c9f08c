/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves how the tracker treats its folder: files of other programs stay, a
 * resume cuts all files or none, a new run sets the old one aside, and names
 * keep the order.
 */
#include "tests/scratch.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "core/base/str.h"
#include "plugins/tracker-tensorboard/events.h"
#include "plugins/tracker-tensorboard/folder.h"
#include "plugins/tracker-tensorboard/tensorboard.h"

#define NAME(seconds) "events.out.tfevents." seconds ".host.1.xray"

static void write_bytes(const char *name, const xr_str *bytes)
{
    FILE *file = fopen(scratch_path(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes->data, 1, bytes->size, file), bytes->size);
    assert_int_equal(fclose(file), 0);
}

/* Writes a file with the steps from `first` to `last` and returns its size
 * after step `upto`. */
static size_t write_steps(const char *name, uint64_t first, uint64_t last,
                          uint64_t upto)
{
    static const xray_named_value value = { "a", 1 };
    xr_str bytes = { 0 };
    size_t size = 0;
    tb_event_version(1, &bytes);
    for (uint64_t i = first; i <= last; i++) {
        const xray_track_step step = { .header = XRAY_HEADER(xray_track_step),
                                       .step = i,
                                       .scalars = &value,
                                       .scalar_count = 1,
                                       .scalar_stride = sizeof(value) };
        tb_event_step(&step, &bytes);
        if (i == upto)
            size = bytes.size;
    }
    write_bytes(name, &bytes);
    xr_str_free(&bytes);
    return size;
}

static long size_of(const char *name)
{
    struct stat info;
    return stat(scratch_path(name), &info) == 0 ? (long)info.st_size : -1;
}

static tb_files list_files(void)
{
    xr_err err = { "" };
    tb_files files;
    if (tb_files_list(scratch_dir(), &err, &files) != XRAY_OK)
        fail_msg("%s", err.text);
    return files;
}

static int start_empty(void **state)
{
    return scratch_drop(state) || mkdir(scratch_dir(), 0777);
}

static void only_own_files_are_listed_in_order(void **state)
{
    (void)state;
    (void)scratch_write(NAME("0000000020"), "x");
    (void)scratch_write(NAME("0000000003"), "x");
    (void)scratch_write("events.out.tfevents.0000000001.host", "x");
    (void)scratch_write("events.out.tfevents..xray.tmp", "x");
    (void)scratch_write("events.out.tfevents.xray", "x");
    (void)scratch_write("notes.xray", "x");
    tb_files files = list_files();
    assert_int_equal(files.count, 2);
    assert_string_equal(files.names[0], NAME("0000000003"));
    assert_string_equal(files.names[1], NAME("0000000020"));
    tb_files_free(&files);
    xr_err err = { "" };
    assert_int_equal(tb_files_list(scratch_path("nowhere"), &err, &files),
                     XRAY_OK);
    assert_int_equal(files.count, 0);
}

static const char *host_name = "here";

/* Stands in for that of the system, whose host has but one name. */
int gethostname(char *out, size_t size)
{
    (void)snprintf(out, size, "%s", host_name);
    return 0;
}

/* Its seconds are at least those of the files before, and its host's name has
 * no character that a file's name may not have. */
static void a_new_file_is_named_after_time_host_and_process(void **state)
{
    const char *const before[] = { NULL, NAME("0000000003"), NAME("5000000000"),
                                   NAME("9999999999") };
    static const char *const hosts[][2] = {
        { "node-7.example", "node-7_example" },
        { "AZaz09-", "AZaz09-" },
        { "a/b c@d[e`f{g:h,i", "a_b_c_d_e_f_g_h_i" },
        { "\xC3\xA9", "__" },
    };
    (void)state;
    for (int i = 0; i < 4; i++) {
        char want[256];
        char *path = NULL;
        int fd = -1;
        xr_err err = { "" };
        if (before[i])
            (void)scratch_write(before[i], "x");
        host_name = hosts[i][0];
        tb_files files = list_files();
        const long long now = (long long)time(NULL);
        assert_int_equal(
            tb_file_create(scratch_dir(), &files, &err, &path, &fd), XRAY_OK);
        const char *name = path + strlen(scratch_dir()) + 1;
        long long seconds =
            strtoll(name + strlen("events.out.tfevents."), NULL, 10);
        if (i < 2 || i == 3)
            assert_in_range(seconds, now, now + 600);
        else
            assert_int_equal(seconds, 5000000001);
        (void)snprintf(want, sizeof(want),
                       "events.out.tfevents.%010lld.%s.%ld.xray", seconds,
                       hosts[i][1], (long)getpid());
        assert_string_equal(name, want);
        assert_int_equal(write(fd, "x", 1), 1);
        assert_int_equal(close(fd), 0);
        assert_int_equal(size_of(name), 1);
        assert_int_equal(unlink(path), 0);
        if (before[i])
            assert_int_equal(unlink(scratch_path(before[i])), 0);
        free(path);
        tb_files_free(&files);
    }
}

static void a_resume_cuts_every_file(void **state)
{
    (void)state;
    xr_err err = { "" };
    int settings = 1;
    size_t whole = write_steps(NAME("1"), 0, 2, 2);
    size_t part = write_steps(NAME("2"), 3, 6, 4);
    (void)write_steps(NAME("3"), 5, 7, 5);
    tb_files files = list_files();
    assert_int_equal(tb_files_cut(scratch_dir(), &files, 4, 1, &settings, &err),
                     XRAY_OK);
    assert_true(size_of(NAME("3")) > 0);
    assert_true(size_of(NAME("2")) > (long)part);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(
            tb_files_cut(scratch_dir(), &files, 4, 0, &settings, &err),
            XRAY_OK);
        assert_int_equal(size_of(NAME("1")), whole);
        assert_int_equal(size_of(NAME("2")), part);
        assert_int_equal(size_of(NAME("3")), -1);
        tb_files_free(&files);
        files = list_files();
        assert_int_equal(files.count, 2);
    }
    assert_int_equal(settings, 0);
    tb_files_free(&files);
}

static void a_damaged_file_leaves_all_as_they_are(void **state)
{
    (void)state;
    xr_err err = { "" };
    int settings = 0;
    (void)write_steps(NAME("1"), 0, 4, 4);
    (void)write_steps(NAME("2"), 5, 6, 6);
    FILE *file = fopen(scratch_path(NAME("2")), "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 22, SEEK_SET), 0);
    assert_int_not_equal(fputc('?', file), EOF);
    assert_int_equal(fclose(file), 0);
    long sizes[] = { size_of(NAME("1")), size_of(NAME("2")) };
    tb_files files = list_files();
    assert_int_equal(tb_files_cut(scratch_dir(), &files, 2, 0, &settings, &err),
                     XRAY_E_IO);
    assert_non_null(strstr(err.text, NAME("2") ": the record at byte 0 does "
                                               "not have its checksum"));
    assert_int_equal(size_of(NAME("1")), sizes[0]);
    assert_int_equal(size_of(NAME("2")), sizes[1]);
    tb_files_free(&files);
}

static void an_older_run_is_set_aside(void **state)
{
    (void)state;
    char dir[200];
    xr_err err = { "" };
    (void)snprintf(dir, sizeof(dir), "%s/tb", scratch_dir());
    assert_int_equal(mkdir(dir, 0777), 0);
    (void)snprintf(dir, sizeof(dir), "%s/tb.1", scratch_dir());
    assert_int_equal(mkdir(dir, 0777), 0);
    dir[strlen(dir) - 2] = '\0';
    (void)scratch_write("tb/" NAME("1"), "x");
    (void)scratch_write("tb/other", "x");
    tb_files files;
    assert_int_equal(tb_files_list(dir, &err, &files), XRAY_OK);
    assert_int_equal(tb_files_set_aside(dir, &files, &err), XRAY_OK);
    tb_files_free(&files);
    assert_int_equal(size_of("tb/" NAME("1")), -1);
    assert_int_equal(size_of("tb.2/" NAME("1")), 1);
    assert_int_equal(size_of("tb/other"), 1);
    assert_int_equal(tb_files_list(dir, &err, &files), XRAY_OK);
    assert_int_equal(tb_files_set_aside(dir, &files, &err), XRAY_OK);
    assert_int_equal(size_of("tb.3"), -1);
}

/* A clock that was set back, or a resume within a second, changes no order. */
static void a_new_file_comes_last(void **state)
{
    (void)state;
    xr_err err = { "" };
    static const char *const last[] = { NAME("0000000007"), NAME("9000000000"),
                                        NAME("9000000000"),
                                        NAME("9999999998") };
    for (size_t i = 0; i < sizeof(last) / sizeof(last[0]); i++) {
        char *path = NULL;
        int fd = -1;
        (void)scratch_write(last[i], "x");
        tb_files files = list_files();
        const char *before = files.names[files.count - 1];
        assert_int_equal(
            tb_file_create(scratch_dir(), &files, &err, &path, &fd), XRAY_OK);
        const char *name = strrchr(path, '/') + 1;
        if (strcmp(name, before) <= 0)
            fail_msg("%s does not come after %s", name, before);
        tb_files_free(&files);
        files = list_files();
        assert_string_equal(files.names[files.count - 1], name);
        tb_files_free(&files);
        assert_int_equal(close(fd), 0);
        free(path);
    }
}

/* ---- the tracker --------------------------------------------------------- */

static char said[512];

static xray_status take_reason(const xray_host *host, xray_status code,
                               const char *where, const char *msg)
{
    (void)host;
    (void)snprintf(said, sizeof(said), "%s: %s", where, msg);
    return code;
}

static const xray_host host = { .header = XRAY_HEADER(xray_host),
                                .fail = take_reason };

static void two_runs_do_not_share_a_folder(void **state)
{
    (void)state;
    const tb_config config = { "" };
    const xray_track_setup setup = { .header = XRAY_HEADER(xray_track_setup),
                                     .folder = scratch_dir() };
    void *first = NULL;
    void *second = NULL;
    assert_int_equal(tb_ops.create(&host, &config, &setup, &first), XRAY_OK);
    assert_int_equal(tb_ops.probe(&host, &config, &setup), XRAY_OK);
    assert_int_equal(tb_ops.create(&host, &config, &setup, &second),
                     XRAY_E_STATE);
    assert_non_null(strstr(said, "is in use by another xray"));
    assert_null(second);
    tb_ops.destroy(first);
    assert_int_equal(tb_ops.create(&host, &config, &setup, &second), XRAY_OK);
    tb_ops.destroy(second);
    tb_ops.destroy(NULL);
}

static void a_folder_that_cannot_be_made_is_told(void **state)
{
    (void)state;
    char dir[200];
    (void)scratch_write("file", "x");
    (void)snprintf(dir, sizeof(dir), "%s/file/tb/", scratch_dir());
    const tb_config config = { dir };
    const xray_track_setup setup = { .header = XRAY_HEADER(xray_track_setup),
                                     .folder = scratch_dir() };
    void *self = NULL;
    assert_int_equal(tb_ops.probe(&host, &config, &setup), XRAY_E_IO);
    assert_non_null(strstr(said, "probe: dir: "));
    assert_non_null(strstr(said, "/file is no folder"));
    assert_true(tb_ops.create(&host, &config, &setup, &self) < 0);
    assert_null(self);
}

/* The sentence names the file, which keeps its complete records. */
static void a_step_that_cannot_be_written_is_told(void **state)
{
    (void)state;
    const tb_config config = { "" };
    const xray_track_setup setup = { .header = XRAY_HEADER(xray_track_setup),
                                     .folder = scratch_dir() };
    static const xray_named_value value = { "a", 1 };
    const xray_track_step step = { .header = XRAY_HEADER(xray_track_step),
                                   .scalars = &value,
                                   .scalar_count = 1,
                                   .scalar_stride = sizeof(value) };
    char dir[200];
    char name[256];
    struct rlimit before;
    struct rlimit less;
    xr_err err = { "" };
    tb_files files;
    void *self = NULL;
    assert_int_equal(tb_ops.create(&host, &config, &setup, &self), XRAY_OK);
    (void)snprintf(dir, sizeof(dir), "%s/tensorboard", scratch_dir());
    assert_int_equal(tb_files_list(dir, &err, &files), XRAY_OK);
    (void)snprintf(name, sizeof(name), "tensorboard/%s", files.names[0]);
    const long size = size_of(name);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    less = before;
    less.rlim_cur = (rlim_t)size + 1;
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
    xray_status status = tb_ops.submit(self, &step);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_true(signal(SIGXFSZ, SIG_DFL) != SIG_ERR);
    assert_int_equal(status, XRAY_E_IO);
    assert_memory_equal(said, "submit: ", 8);
    assert_non_null(strstr(said, files.names[0]));
    assert_non_null(strstr(said, "File too large"));
    assert_int_equal(size_of(name), size);
    tb_files_free(&files);
    tb_ops.destroy(self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(only_own_files_are_listed_in_order, start_empty),
        cmocka_unit_test_setup(a_new_file_is_named_after_time_host_and_process,
                               start_empty),
        cmocka_unit_test_setup(a_resume_cuts_every_file, start_empty),
        cmocka_unit_test_setup(a_damaged_file_leaves_all_as_they_are,
                               start_empty),
        cmocka_unit_test_setup(an_older_run_is_set_aside, start_empty),
        cmocka_unit_test_setup(a_new_file_comes_last, start_empty),
        cmocka_unit_test_setup(two_runs_do_not_share_a_folder, start_empty),
        cmocka_unit_test_setup(a_folder_that_cannot_be_made_is_told,
                               start_empty),
        cmocka_unit_test_setup(a_step_that_cannot_be_written_is_told,
                               start_empty),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
