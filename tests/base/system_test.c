/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves locks, processes, limits in messages, folders, and sentences about
 * collectives.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/collective.h"
#include "core/base/lock.h"
#include "core/base/process.h"
#include "core/base/system_error.h"
#include "tests/scratch.h"

extern char **environ;

/* ---- locks -------------------------------------------------------------- */

static void lock_has_one_holder(void **state)
{
    (void)state;
    char host[64] = "";
    char want[512];
    char *said = NULL;
    size_t size = 0;
    xr_err err = { "" };
    xr_lock lock;
    xr_lock other = { 5 };
    const char *dir = scratch_dir();
    assert_int_equal(xr_lock_take(dir, &err, &lock), XRAY_OK);
    assert_true(lock.held > 0);
    int before = dup(0);
    assert_int_equal(close(before), 0);
    assert_int_equal(xr_lock_take(dir, &err, &other), XRAY_E_STATE);
    assert_int_equal(other.held, 0);
    /* A refused lock leaves no file open. */
    int after = dup(0);
    assert_int_equal(close(after), 0);
    assert_int_equal(after, before);
    assert_int_equal(gethostname(host, sizeof(host) - 1), 0);
    (void)snprintf(want, sizeof(want),
                   "%s is in use by another xray (pid %ld on %s), which holds "
                   "its file .lock",
                   dir, (long)getpid(), host);
    assert_string_equal(err.text, want);
    assert_int_equal(
        xr_file_read(scratch_path(".lock"), 200, &err, &said, &size), XRAY_OK);
    (void)snprintf(want, sizeof(want), "pid %ld on %s\n", (long)getpid(), host);
    assert_string_equal(said, want);
    free(said);
    /* Dropping a lock that is not held releases nothing. */
    xr_lock_drop(&other);
    assert_int_equal(xr_lock_take(dir, &err, &other), XRAY_E_STATE);
    /* The file's content is only a hint. */
    int fd = open(scratch_path(".lock"), O_WRONLY | O_TRUNC);
    assert_true(fd >= 0);
    assert_int_equal(xr_lock_take(dir, &err, &other), XRAY_E_STATE);
    assert_non_null(strstr(err.text, "(its process is unknown)"));
    assert_int_equal(write(fd, "a\tb\n", 4), 4);
    for (int i = 0; i < 40; i++)
        assert_int_equal(write(fd, "more lines", 10), 10);
    assert_int_equal(close(fd), 0);
    assert_int_equal(xr_lock_take(dir, &err, &other), XRAY_E_STATE);
    assert_non_null(strstr(err.text, "another xray (a b), which"));
    xr_lock_drop(&lock);
    assert_int_equal(lock.held, 0);
    assert_int_equal(xr_lock_take(dir, &err, &other), XRAY_OK);
    assert_int_equal(
        xr_file_read(scratch_path(".lock"), 200, &err, &said, &size), XRAY_OK);
    assert_string_equal(said, want);
    free(said);
    xr_lock_drop(&other);
    xr_lock_drop(&other);
    assert_int_equal(xr_lock_take(scratch_path("none"), &err, &lock),
                     XRAY_E_IO);
    (void)snprintf(
        want, sizeof(want),
        "%s/none/.lock: cannot create the file that locks the folder: No such "
        "file or directory",
        dir);
    assert_string_equal(err.text, want);
    assert_int_equal(unlink(scratch_path(".lock")), 0);
    /* A link is refused, because the lock file would be elsewhere. */
    assert_int_equal(symlink("elsewhere", scratch_path(".lock")), 0);
    assert_int_equal(xr_lock_take(dir, &err, &lock), XRAY_E_IO);
    assert_int_equal(xr_path_exists(scratch_path("elsewhere")), 0);
    assert_int_equal(unlink(scratch_path(".lock")), 0);
}

/* ---- processes ---------------------------------------------------------- */

static pid_t start_child(void)
{
    char name[] = "sleep";
    char seconds[] = "100";
    char *const argv[] = { name, seconds, NULL };
    pid_t pid = 0;
    assert_int_equal(posix_spawnp(&pid, name, NULL, NULL, argv, environ), 0);
    return pid;
}

static void processes_live_and_die(void **state)
{
    (void)state;
    pid_t pid = start_child();
    int file = xr_process_open((uint32_t)pid);
    int status = 0;
    char letter = xr_process_state((uint32_t)pid);
    assert_true(letter == 'S' || letter == 'R' || letter == 'D');
    assert_int_equal(xr_process_is_dead((uint32_t)pid, -1), 0);
    assert_int_equal(xr_process_is_dead((uint32_t)pid, file), 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(xr_process_state((uint32_t)pid), 'Z');
    assert_int_equal(xr_process_is_dead((uint32_t)pid, -1), 1);
    if (file >= 0)
        assert_int_equal(xr_process_is_dead((uint32_t)pid, file), 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(xr_process_state((uint32_t)pid), 0);
    assert_int_equal(xr_process_is_dead((uint32_t)pid, -1), 1);
    if (file >= 0)
        (void)close(file);
    /* Oneself. */
    assert_int_equal(xr_process_open((uint32_t)getpid()), -1);
    assert_int_equal(xr_process_is_dead((uint32_t)getpid(), -1), 0);
    assert_int_equal(xr_process_state((uint32_t)getpid()), 'R');
    double age = xr_process_age();
    assert_true(age >= 0 && age < 300);
}

/* The kernel shows a name as it is, so that it may look like further fields. */
static void names_of_processes_hold_any_characters(void **state)
{
    (void)state;
    char name[16] = "";
    assert_int_equal(prctl(PR_GET_NAME, name), 0);
    assert_int_equal(prctl(PR_SET_NAME, "a) Z 1 (b) Z"), 0);
    char letter = xr_process_state((uint32_t)getpid());
    double age = xr_process_age();
    assert_int_equal(prctl(PR_SET_NAME, name), 0);
    assert_int_equal(letter, 'R');
    assert_true(age >= 0 && age < 300);
}

/* ---- reasons ------------------------------------------------------------ */

static void limits_are_named(void **state)
{
    (void)state;
    static const struct {
        int code;
        int limit;
        rlim_t bytes;
        const char *more;
    } rows[] = { { EMFILE, RLIMIT_NOFILE, 64, " (ulimit -n is 64)" },
                 { EFBIG, RLIMIT_FSIZE, 1 << 20, " (ulimit -f is 1024)" },
                 { ENOENT, RLIMIT_FSIZE, 1 << 20, "" } };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char want[128];
        struct rlimit before;
        assert_int_equal(getrlimit(rows[i].limit, &before), 0);
        struct rlimit now = { rows[i].bytes, before.rlim_max };
        assert_int_equal(setrlimit(rows[i].limit, &now), 0);
        const char *why = XR_SYSTEM_ERROR(rows[i].code);
        assert_int_equal(setrlimit(rows[i].limit, &before), 0);
        (void)snprintf(want, sizeof(want), "%s%s", strerror(rows[i].code),
                       rows[i].more);
        assert_string_equal(why, want);
    }
    struct rlimit space;
    assert_int_equal(getrlimit(RLIMIT_AS, &space), 0);
    if (space.rlim_cur == RLIM_INFINITY)
        assert_string_equal(XR_SYSTEM_ERROR(ENOMEM), strerror(ENOMEM));
}

/* ---- folders ------------------------------------------------------------ */

static void paths_are_joined(void **state)
{
    (void)state;
    static const struct {
        const char *dir;
        const char *name;
        const char *want;
    } rows[] = { { "", "a", "a" },
                 { "/", "a", "/a" },
                 { "d", "a", "d/a" },
                 { "d/", "a", "d/a" },
                 { "d", "", "d/" } };
    char buffer[8];
    xr_err err = { "" };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(xr_path_join(rows[i].dir, rows[i].name, buffer,
                                      sizeof(buffer), &err),
                         XRAY_OK);
        assert_string_equal(buffer, rows[i].want);
    }
    assert_int_equal(xr_path_join("abc", "def", buffer, 8, &err), XRAY_OK);
    assert_int_equal(xr_path_join("abc", "defg", buffer, 8, &err),
                     XRAY_E_RANGE);
    assert_string_equal(err.text, "the path abc/defg is longer than 7 bytes");
}

static void folders_are_removed_with_their_content(void **state)
{
    (void)state;
    char deep[256];
    char want[512];
    xr_err err = { "" };
    (void)snprintf(deep, sizeof(deep), "%s/a//b/c/", scratch_dir());
    assert_int_equal(xr_dir_make(deep, &err), XRAY_OK);
    assert_int_equal(xr_path_is_dir(scratch_path("a/b/c")), 1);
    assert_int_equal(xr_path_is_dir(scratch_write("a/f", "x")), 0);
    assert_int_equal(xr_path_is_dir(scratch_path("a/none")), 0);
    assert_int_equal(xr_path_exists(scratch_path("a/none")), 0);
    assert_int_equal(symlink("nowhere", scratch_path("a/dead")), 0);
    assert_int_equal(xr_path_exists(scratch_path("a/dead")), 1);
    assert_int_equal(xr_path_is_dir(scratch_path("a/dead")), 0);
    assert_int_equal(
        xr_path_is_same(scratch_path("a/b"), scratch_path("a/./b/c/..")), 1);
    assert_int_equal(xr_path_is_same(scratch_path("a"), scratch_path("a/b")),
                     0);
    assert_int_equal(xr_path_is_same(scratch_path("n"), scratch_path("n")), 0);
    assert_int_equal(xr_path_is_in(scratch_path("a/b"), scratch_path("a")), 1);
    assert_int_equal(xr_path_is_in(scratch_path("a/b/c"), scratch_path("a")),
                     0);
    assert_int_equal(xr_path_is_in(scratch_path("a"), scratch_path("a")), 0);
    assert_int_equal(xr_path_is_in(scratch_path("a/x"), scratch_path("a")), 0);
    assert_int_equal(xr_dir_make(scratch_path("a/f/g"), &err), XRAY_E_IO);
    (void)snprintf(want, sizeof(want),
                   "%s/a/f/g: cannot make the folder: Not a directory",
                   scratch_dir());
    assert_int_equal(xr_dir_make(scratch_path("a/f"), &err), XRAY_E_IO);
    (void)snprintf(want, sizeof(want),
                   "%s/a/f: cannot make the folder: File exists",
                   scratch_dir());
    assert_string_equal(err.text, want);
    assert_int_equal(xr_dir_remove(scratch_path("a/f"), &err), XRAY_E_IO);
    (void)snprintf(want, sizeof(want),
                   "%s/a/f: cannot remove the folder: Not a directory",
                   scratch_dir());
    assert_string_equal(err.text, want);
    assert_int_equal(xr_dir_remove(scratch_path("a"), &err), XRAY_OK);
    assert_int_equal(xr_path_exists(scratch_path("a")), 0);
}

static void commit_refuses_an_existing_name(void **state)
{
    (void)state;
    char want[512];
    xr_err err = { "" };
    assert_int_equal(xr_dir_make(scratch_path("from"), &err), XRAY_OK);
    assert_int_equal(xr_dir_make(scratch_path("to"), &err), XRAY_OK);
    assert_int_equal(
        xr_dir_commit(scratch_path("from"), scratch_path("to"), &err),
        XRAY_E_IO);
    (void)snprintf(want, sizeof(want), "%s/to: already exists", scratch_dir());
    assert_string_equal(err.text, want);
    assert_int_equal(xr_path_exists(scratch_path("from")), 1);
    (void)scratch_write("file", "x");
    assert_int_equal(
        xr_dir_commit(scratch_path("from"), scratch_path("file"), &err),
        XRAY_E_IO);
    (void)snprintf(want, sizeof(want), "%s/file: already exists",
                   scratch_dir());
    assert_string_equal(err.text, want);
    assert_int_equal(
        xr_dir_commit(scratch_path("from"), scratch_path("none/to"), &err),
        XRAY_E_IO);
    (void)snprintf(want, sizeof(want),
                   "%s/from: cannot rename to %s/none/to: No such file or "
                   "directory",
                   scratch_dir(), scratch_dir());
    assert_string_equal(err.text, want);
    assert_int_equal(xr_dir_sync(scratch_path("none"), &err), XRAY_E_IO);
    (void)snprintf(want, sizeof(want),
                   "%s/none: cannot open the folder: No such file or directory",
                   scratch_dir());
    assert_string_equal(err.text, want);
    assert_int_equal(xr_dir_sync_parent(scratch_path("none"), &err), XRAY_OK);
    assert_int_equal(xr_dir_sync_parent(scratch_path("none//"), &err), XRAY_OK);
    assert_int_equal(xr_dir_sync_parent(scratch_path("none/x"), &err),
                     XRAY_E_IO);
    assert_int_equal(xr_dir_sync_parent("bare", &err), XRAY_OK);
    assert_int_equal(xr_dir_sync_parent("/", &err), XRAY_OK);
}

/* Folders up to 64 levels deep are removed; this program makes no deeper
 * ones. */
static void folder_depth_is_bounded(void **state)
{
    (void)state;
    char path[1024];
    for (int deep = 64; deep <= 65; deep++) {
        size_t used =
            (size_t)snprintf(path, sizeof(path), "%s", scratch_path("deep"));
        for (int i = 0; i < deep; i++)
            used += (size_t)snprintf(path + used, sizeof(path) - used, "/d");
        assert_int_equal(xr_dir_make(path, NULL), XRAY_OK);
        assert_int_equal(xr_dir_remove(scratch_path("deep"), NULL),
                         deep == 64 ? XRAY_OK : XRAY_E_IO);
    }
    assert_int_equal(xr_dir_remove(scratch_path("deep/d"), NULL), XRAY_OK);
}

/* ---- files -------------------------------------------------------------- */

static void writes_finish_or_are_dropped(void **state)
{
    (void)state;
    char want[512];
    xr_err err = { "" };
    xr_file_out out;
    xr_map_file map;
    struct stat st;
    mode_t mask = umask(022);
    assert_int_equal(xr_file_write(scratch_path("none/f"), "x", 1, &err),
                     XRAY_E_IO);
    (void)snprintf(want, sizeof(want),
                   "%s/none/f: cannot write: No such file or directory",
                   scratch_dir());
    assert_string_equal(err.text, want);
    assert_int_equal(xr_file_write(scratch_path("f"), "", 0, &err), XRAY_OK);
    (void)umask(mask);
    assert_int_equal(stat(scratch_path("f"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0644);
    assert_int_equal(st.st_size, 0);
    assert_int_equal(xr_file_map(scratch_path("f"), &err, &map), XRAY_OK);
    assert_int_equal(map.size, 0);
    xr_file_unmap(&map);
    assert_int_equal(xr_file_begin(scratch_path("g"), &err, &out), XRAY_OK);
    xr_file_drop(&out);
    assert_int_equal(xr_file_append(&out, "x", 1, &err), XRAY_E_STATE);
    assert_non_null(strstr(err.text, ": an earlier write failed"));
    assert_int_equal(xr_file_finish(&out, &err), XRAY_E_STATE);
    xr_file_drop(&out);
    assert_int_equal(xr_path_exists(scratch_path("g")), 0);
    /* A folder cannot be written as a file. */
    assert_int_equal(xr_file_write(scratch_dir(), "x", 1, &err), XRAY_E_IO);
    assert_int_equal(xr_file_write("/dev/null", "x", 1, &err), XRAY_OK);
    assert_int_equal(
        xr_file_copy(scratch_path("none"), scratch_path("g"), &err), XRAY_E_IO);
    assert_int_equal(xr_path_exists(scratch_path("g")), 0);
    /* A failed rename leaves no temporary file. */
    const char *path = scratch_path("h");
    assert_int_equal(xr_file_begin(path, &err, &out), XRAY_OK);
    assert_int_equal(xr_file_append(&out, "x", 1, &err), XRAY_OK);
    assert_int_equal(xr_dir_make(path, &err), XRAY_OK);
    (void)snprintf(want, sizeof(want), "%s", out.temp);
    assert_int_equal(xr_path_exists(want), 1);
    assert_int_equal(xr_file_finish(&out, &err), XRAY_E_IO);
    assert_int_equal(xr_path_exists(want), 0);
}

/* Files of unknown size, and limits on both kinds. */
static void reads_continue_to_the_end(void **state)
{
    (void)state;
    char *data = NULL;
    size_t size = 0;
    xr_err err = { "" };
    static const size_t sizes[] = { 0,    1,    3999, 4000, 4001,
                                    4094, 4095, 4096, 4097, 70000 };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char *bytes = malloc(sizes[i] + 1);
        assert_non_null(bytes);
        memset(bytes, 'x', sizes[i] + 1);
        const char *path = scratch_path("sized");
        assert_int_equal(xr_file_write(path, bytes, sizes[i], &err), XRAY_OK);
        assert_int_equal(xr_file_read(path, sizes[i], &err, &data, &size),
                         XRAY_OK);
        assert_int_equal(size, sizes[i]);
        assert_memory_equal(data, bytes, size);
        assert_int_equal(data[size], '\0');
        free(data);
        if (sizes[i])
            assert_int_equal(
                xr_file_read(path, sizes[i] - 1, &err, &data, &size),
                XRAY_E_RANGE);
        free(bytes);
    }
    assert_int_equal(
        xr_file_read("/proc/self/maps", 1 << 20, &err, &data, &size), XRAY_OK);
    assert_true(size > 100 && strlen(data) == size);
    free(data);
    assert_int_equal(xr_file_read("/proc/self/maps", 10, &err, &data, &size),
                     XRAY_E_RANGE);
    assert_string_equal(err.text, "/proc/self/maps: the file is larger than "
                                  "the limit of 10 bytes");
    double before = xr_now();
    assert_true(xr_now() >= before && before > 0);
}

/* ---- collectives -------------------------------------------------------- */

static void collectives_are_described(void **state)
{
    (void)state;
    static const struct {
        xr_collective call;
        const char *want;
    } rows[] = {
        { { .bytes = 8 }, "no call of 8 bytes" },
        { { .call = XRAY_COMM_ALL_REDUCE,
            .dtype = XRAY_F32,
            .bytes = 64,
            .other = 1 },
          "all_reduce of 64 bytes of f32" },
        { { .call = XRAY_COMM_REDUCE_SCATTER,
            .dtype = XRAY_BF16,
            .bytes = 64,
            .other = 1 },
          "reduce_scatter of 64 bytes of bf16" },
        { { .call = XRAY_COMM_ALL_REDUCE,
            .dtype = XRAY_F16,
            .bytes = 2,
            .other = 1 },
          "all_reduce of 2 bytes of f16" },
        { { .call = XRAY_COMM_ALL_REDUCE, .dtype = 4, .bytes = 2, .other = 1 },
          "all_reduce of 2 bytes" },
        { { .call = XRAY_COMM_ALL_GATHER,
            .dtype = XRAY_F32,
            .bytes = 64,
            .other = 1 },
          "all_gather of 64 bytes" },
        { { .call = XRAY_COMM_BROADCAST,
            .dtype = XRAY_F32,
            .bytes = 4,
            .other = 3 },
          "broadcast of 4 bytes from rank 3" },
        { { .call = XRAY_COMM_SEND, .dtype = XRAY_F32, .bytes = 4, .other = 3 },
          "send of 4 bytes to rank 3" },
        { { .call = XRAY_COMM_RECV, .dtype = XRAY_F32, .bytes = 4, .other = 2 },
          "recv of 4 bytes from rank 2" },
        { { .call = XRAY_COMM_EXCHANGE,
            .dtype = 0,
            .bytes = 4,
            .other = 2,
            .from = 1,
            .from_bytes = 6 },
          "exchange of 4 bytes to rank 2 and 6 bytes from rank 1" },
        { { .call = XRAY_COMM_ALL_TO_ALL,
            .dtype = XRAY_F32,
            .bytes = 4,
            .other = 2 },
          "all_to_all of 4 bytes" },
        { { .call = XRAY_COMM_ALL_REDUCE_MAX,
            .dtype = XRAY_F32,
            .bytes = 4,
            .other = 1 },
          "all_reduce_max of 4 bytes of f32" },
        { { .call = 10, .dtype = 0, .bytes = 5, .other = 0 },
          "a call of 5 bytes" },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[64];
        xr_sentence s = { text, sizeof(text), 0 };
        xr_collective_print(&s, &rows[i].call);
        assert_string_equal(text, rows[i].want);
        assert_int_equal(s.used, strlen(text));
    }
    char small[8];
    xr_sentence s = { small, sizeof(small), 0 };
    xr_sentence_printf(&s, "%s", "12345");
    xr_sentence_printf(&s, "%s", "6789");
    assert_string_equal(small, "1234567");
    assert_int_equal(s.used, 7);
    s.used = 0;
    xr_sentence_printf(&s, "%s", "12345678");
    assert_int_equal(s.used, 7);
    xr_sentence_printf(&s, "%s", "more");
    assert_string_equal(small, "1234567");
}

static char reason[256];
static xray_status record_reason(const xray_host *host, xray_status code,
                                 const char *where, const char *text)
{
    (void)host;
    (void)snprintf(reason, sizeof(reason), "%s: %s", where, text);
    return code;
}

static void collectives_are_checked(void **state)
{
    (void)state;
    const xray_host host = { .fail = record_reason };
    uint64_t most = UINT64_MAX / 4 / 4096;
    char byte = 0;
    assert_int_equal(xr_collective_width(XRAY_F32), 4);
    assert_int_equal(xr_collective_width(XRAY_BF16), 2);
    assert_int_equal(xr_collective_width(XRAY_F16), 2);
    assert_int_equal(xr_collective_width(0), 0);
    assert_int_equal(xr_collective_width(4), 0);
    assert_int_equal(xr_collective_check(&host, "w", &byte, &byte, most), 0);
    assert_int_equal(xr_collective_check(&host, "w", &byte, &byte, most + 1),
                     XRAY_E_RANGE);
    assert_string_equal(reason, "w: 1125899906842624 bytes are too many");
    assert_int_equal(xr_collective_check(NULL, "w", &byte, &byte, most + 1),
                     XRAY_E_RANGE);
    assert_int_equal(xr_collective_check(&host, "w", NULL, NULL, 0), 0);
    assert_int_equal(xr_collective_check(&host, "w", NULL, &byte, 1),
                     XRAY_E_ARG);
    assert_int_equal(xr_collective_check(&host, "w", &byte, NULL, 1),
                     XRAY_E_ARG);
    assert_string_equal(reason, "w: a pointer is NULL");
    const struct {
        uint32_t call;
        uint32_t dtype;
        uint64_t count;
        const void *in;
        xray_status want;
    } calls[] = {
        { XRAY_COMM_REDUCE_SCATTER, XRAY_F16, 1, &byte, XRAY_E_UNSUPPORTED },
        { XRAY_COMM_REDUCE_SCATTER, XRAY_F32, 1, &byte, XRAY_OK },
        { XRAY_COMM_REDUCE_SCATTER, XRAY_F32, 1, NULL, XRAY_E_ARG },
        { XRAY_COMM_REDUCE_SCATTER, XRAY_F32, most / 4 + 1, &byte,
          XRAY_E_RANGE },
        { XRAY_COMM_ALL_REDUCE, XRAY_BF16, most / 4 + 1, NULL, XRAY_OK },
        { XRAY_COMM_ALL_REDUCE, XRAY_F32, UINT64_MAX / 4 + 2, NULL,
          XRAY_E_RANGE },
        { XRAY_COMM_ALL_REDUCE_MAX, XRAY_F32, 1, NULL, XRAY_OK },
        { XRAY_COMM_ALL_REDUCE_MAX, XRAY_F16, 1, NULL, XRAY_E_UNSUPPORTED },
        { XRAY_COMM_ALL_GATHER, XRAY_F16, 1, &byte, XRAY_OK },
        { XRAY_COMM_ALL_GATHER, XRAY_F32, 1, NULL, XRAY_E_ARG },
        { XRAY_COMM_ALL_GATHER, 0, 1, &byte, XRAY_E_UNSUPPORTED },
    };
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        assert_int_equal(
            xr_collective_check_call(&host, calls[i].call, calls[i].in, &byte,
                                     calls[i].count, calls[i].dtype),
            calls[i].want);
    assert_string_equal(reason, "all_gather: no call for elements of type 0");
}

/* Ranks of a group ascend, so that every member sees the same order. */
static void ranks_of_a_group_ascend(void **state)
{
    (void)state;
    const xray_host host = { .fail = record_reason };
    static const struct {
        uint32_t ranks[3];
        uint32_t count;
        uint32_t self;
        const char *said; /* NULL: accepted */
    } rows[] = {
        { { 0, 1, 3 }, 3, 3, NULL },
        { { 2 }, 1, 2, NULL },
        { { 0, 1, 1 },
          3,
          1,
          "group: rank 1: ranks must ascend and be below 4" },
        { { 0, 3, 2 },
          3,
          0,
          "group: rank 2: ranks must ascend and be below 4" },
        { { 0, 4, 5 },
          3,
          0,
          "group: rank 4: ranks must ascend and be below 4" },
        { { 0, 1, 3 }, 3, 2, "group: this rank, 2, is not among the group's" },
        { { 0 }, 0, 0, "group: this rank, 0, is not among the group's" },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(xr_collective_check_ranks(&host, rows[i].ranks,
                                                   rows[i].count, rows[i].self,
                                                   4),
                         rows[i].said ? XRAY_E_ARG : XRAY_OK);
        if (rows[i].said)
            assert_string_equal(reason, rows[i].said);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lock_has_one_holder),
        cmocka_unit_test(processes_live_and_die),
        cmocka_unit_test(names_of_processes_hold_any_characters),
        cmocka_unit_test(limits_are_named),
        cmocka_unit_test(paths_are_joined),
        cmocka_unit_test(folders_are_removed_with_their_content),
        cmocka_unit_test(commit_refuses_an_existing_name),
        cmocka_unit_test(folder_depth_is_bounded),
        cmocka_unit_test(writes_finish_or_are_dropped),
        cmocka_unit_test(reads_continue_to_the_end),
        cmocka_unit_test(collectives_are_described),
        cmocka_unit_test(collectives_are_checked),
        cmocka_unit_test(ranks_of_a_group_ascend),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
