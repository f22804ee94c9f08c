/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what files and locks are after system calls that are interrupted,
 * transfer only a part, or fail: the calls go through this suite.
 */
#define _GNU_SOURCE /* F_OFD_SETLK */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "core/base/lock.h"
#include "tests/scratch.h"

/* ---- system calls ------------------------------------------------------- */

typedef enum call {
    NO_CALL,
    READ,
    WRITE,
    SYNC,
    STATE,
    MAP,
    RENAME,
    FOLDER,
    LOCK
} call;

static struct {
    int interrupts; /* 1: every second call */
    unsigned count;
    size_t most; /* bytes of a transfer */
    call fails;  /* with `reason` */
    int reason;
    char order[16]; /* 'f' and 'd': a file or folder is synced; 'r': renamed */
} faults;

static void note_order(char what)
{
    size_t size = strlen(faults.order);
    if (size + 1 < sizeof faults.order)
        faults.order[size] = what;
}

/* Returns 1 if the call is not made. */
static int prevent(call which, int may_wait)
{
    if (faults.interrupts && may_wait && faults.count++ % 2 == 0) {
        errno = EINTR;
        return 1;
    }
    errno = faults.reason;
    return faults.fails == which;
}

static size_t bound_size(size_t size)
{
    return faults.most && faults.most < size ? faults.most : size;
}

ssize_t __real_read(int fd, void *to, size_t size);
ssize_t __wrap_read(int fd, void *to, size_t size);
ssize_t __wrap_read(int fd, void *to, size_t size)
{
    return prevent(READ, 1) ? -1 : __real_read(fd, to, bound_size(size));
}

/* A compiler that checks the sizes of buffers calls this for read(). */
ssize_t __wrap___read_chk(int fd, void *to, size_t size, size_t space);
ssize_t __wrap___read_chk(int fd, void *to, size_t size, size_t space)
{
    assert_true(size <= space);
    return __wrap_read(fd, to, size);
}

ssize_t __real_write(int fd, const void *from, size_t size);
ssize_t __wrap_write(int fd, const void *from, size_t size);
ssize_t __wrap_write(int fd, const void *from, size_t size)
{
    return prevent(WRITE, 1) ? -1 : __real_write(fd, from, bound_size(size));
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    struct stat st;
    if (prevent(SYNC, 1))
        return -1;
    note_order(fstat(fd, &st) == 0 && S_ISDIR(st.st_mode) ? 'd' : 'f');
    return __real_fsync(fd);
}

int __real_fstat(int fd, struct stat *out);
int __wrap_fstat(int fd, struct stat *out);
int __wrap_fstat(int fd, struct stat *out)
{
    return prevent(STATE, 0) ? -1 : __real_fstat(fd, out);
}

void *__real_mmap(void *at, size_t size, int access, int flags, int fd,
                  off_t from);
void *__wrap_mmap(void *at, size_t size, int access, int flags, int fd,
                  off_t from);
void *__wrap_mmap(void *at, size_t size, int access, int flags, int fd,
                  off_t from)
{
    return prevent(MAP, 0) ? MAP_FAILED
                           : __real_mmap(at, size, access, flags, fd, from);
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    if (prevent(RENAME, 0))
        return -1;
    note_order('r');
    return __real_rename(from, to);
}

int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode)
{
    return prevent(FOLDER, 0) ? -1 : __real_mkdir(path, mode);
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
    va_list args;
    va_start(args, command);
    void *value = va_arg(args, void *);
    va_end(args);
    if (command == F_OFD_SETLK && prevent(LOCK, 0))
        return -1;
    return __real_fcntl(fd, command, value);
}

/* ---- files -------------------------------------------------------------- */

static void fail_call(call which, int reason)
{
    faults.fails = which;
    faults.reason = reason;
}

static int end_faults(void **state)
{
    (void)state;
    memset(&faults, 0, sizeof faults);
    return 0;
}

static size_t count_entries(const char *path)
{
    DIR *dir = opendir(path);
    size_t count = 0;
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    (void)closedir(dir);
    return count - 2;
}

static void expect_text(const char *path, const char *want)
{
    char *data = NULL;
    size_t size = 0;
    assert_int_equal(xr_file_read(path, 1 << 20, NULL, &data, &size), XRAY_OK);
    assert_int_equal(size, strlen(want));
    assert_string_equal(data, want);
    free(data);
}

/* A signal that arrives meanwhile changes nothing, nor does a file system that
 * takes or gives a few bytes at once. */
static void interrupted_calls_are_repeated(void **state)
{
    (void)state;
    enum { SIZE = 20000 };
    static const size_t sizes[] = { 0, 1, 4096, 4097 };
    char text[SIZE + 1];
    char from[XR_PATH_CAP];
    char to[XR_PATH_CAP];
    for (size_t i = 0; i < SIZE; i++)
        text[i] = (char)('a' + i % 23);
    text[SIZE] = '\0';
    assert_int_equal(xr_dir_make(scratch_path("slow"), NULL), XRAY_OK);
    (void)snprintf(from, sizeof from, "%s", scratch_path("slow/from"));
    (void)snprintf(to, sizeof to, "%s", scratch_path("slow/to"));
    for (size_t i = 0; i < 8; i++) {
        faults.interrupts = 1;
        faults.count = i >= 4;
        faults.most = sizes[i % 4];
        assert_int_equal(xr_file_write(from, text, SIZE, NULL), XRAY_OK);
        assert_int_equal(xr_file_copy(from, to, NULL), XRAY_OK);
        expect_text(to, text);
        assert_int_equal(xr_dir_sync(scratch_path("slow"), NULL), XRAY_OK);
        assert_int_equal(count_entries(scratch_path("slow")), 2);
    }
}

/* A call that fails leaves the old file and says why. */
static void failing_calls_leave_the_old_file(void **state)
{
    (void)state;
    static const struct {
        call fails;
        const char *reads; /* NULL: that works */
        const char *writes;
        const char *copies;
    } cases[] = {
        { READ, "from: cannot read: ", NULL, "from: cannot read: " },
        { STATE, "from: cannot read: ", NULL, "from: cannot read: " },
        { WRITE, NULL, "to: cannot write: ", "to: cannot write: " },
        { SYNC, NULL, "to: cannot write: ", "to: cannot write: " },
        { RENAME, NULL, "to: cannot write: ", "to: cannot write: " },
    };
    char from[XR_PATH_CAP];
    char to[XR_PATH_CAP];
    assert_int_equal(xr_dir_make(scratch_path("hurt"), NULL), XRAY_OK);
    (void)snprintf(from, sizeof from, "%s", scratch_path("hurt/from"));
    (void)snprintf(to, sizeof to, "%s", scratch_path("hurt/to"));
    assert_int_equal(xr_file_write(from, "new", 3, NULL), XRAY_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xr_err err[3] = { { "" }, { "" }, { "" } };
        const char *const says[] = { cases[i].reads, cases[i].writes,
                                     cases[i].copies };
        char *data = NULL;
        size_t size = 0;
        xray_status got[3];
        assert_int_equal(xr_file_write(to, "old", 3, NULL), XRAY_OK);
        fail_call(cases[i].fails, EIO);
        got[0] = xr_file_read(from, 9, &err[0], &data, &size);
        got[1] = xr_file_write(to, "newer", 5, &err[1]);
        fail_call(NO_CALL, 0);
        if (got[1] == XRAY_OK)
            assert_int_equal(xr_file_write(to, "old", 3, NULL), XRAY_OK);
        expect_text(to, "old");
        fail_call(cases[i].fails, EIO);
        got[2] = xr_file_copy(from, to, &err[2]);
        fail_call(NO_CALL, 0);
        expect_text(to, got[2] == XRAY_OK ? "new" : "old");
        free(data);
        for (int k = 0; k < 3; k++) {
            assert_int_equal(got[k], says[k] ? XRAY_E_IO : XRAY_OK);
            if (says[k] && !strstr(err[k].text, says[k]))
                fail_msg("case %zu, %d: %s", i, k, err[k].text);
        }
        assert_int_equal(count_entries(scratch_path("hurt")), 2);
    }
}

/* After a write that failed nothing more is taken, and nothing is made of what
 * came before it. */
static void a_file_that_failed_stays_so(void **state)
{
    (void)state;
    xr_file_out file;
    xr_err err = { "" };
    const char *path = scratch_path("failed");
    assert_int_equal(xr_file_begin(path, NULL, &file), XRAY_OK);
    fail_call(WRITE, ENOSPC);
    assert_int_equal(xr_file_append(&file, "x", 1, &err), XRAY_E_IO);
    fail_call(NO_CALL, 0);
    assert_int_equal(xr_file_append(&file, "x", 1, &err), XRAY_E_STATE);
    assert_non_null(strstr(err.text, "an earlier write failed"));
    err.text[0] = '\0';
    assert_int_equal(xr_file_finish(&file, &err), XRAY_E_STATE);
    assert_non_null(strstr(err.text, "an earlier write failed"));
    xr_file_drop(&file);
    assert_false(xr_path_exists(path));
}

/* After a loss of power a name stands for complete bytes: they are on the disk
 * before it does, and the folder is before the call returns. */
static void files_are_synced_before_they_are_renamed(void **state)
{
    (void)state;
    char to[XR_PATH_CAP];
    (void)snprintf(to, sizeof to, "%s", scratch_path("synced"));
    assert_int_equal(xr_file_write(to, "x", 1, NULL), XRAY_OK);
    assert_string_equal(faults.order, "frd");
    memset(faults.order, 0, sizeof faults.order);
    assert_int_equal(xr_file_copy(to, scratch_path("copied"), NULL), XRAY_OK);
    assert_string_equal(faults.order, "frd");
    assert_int_equal(xr_dir_make(scratch_path("begun"), NULL), XRAY_OK);
    memset(faults.order, 0, sizeof faults.order);
    assert_int_equal(
        xr_dir_commit(scratch_path("begun"), scratch_path("made"), NULL),
        XRAY_OK);
    assert_string_equal(faults.order, "drd");
}

/* A file system without fsync keeps files as well as it can. */
static void file_systems_need_no_sync(void **state)
{
    (void)state;
    static const int reasons[] = { EINVAL, ENOSYS, EROFS };
    const char *path = scratch_path("unsynced");
    for (size_t i = 0; i < 3; i++) {
        fail_call(SYNC, reasons[i]);
        assert_int_equal(xr_file_write(path, "x", 1, NULL), XRAY_OK);
        assert_int_equal(xr_dir_sync(scratch_dir(), NULL), XRAY_OK);
        expect_text(path, "x");
    }
    xr_err err = { "" };
    fail_call(SYNC, EIO);
    assert_int_equal(xr_dir_sync(scratch_dir(), &err), XRAY_E_IO);
    assert_non_null(strstr(err.text, "cannot sync the folder: "));
}

static void maps_that_fail_say_why(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_map_file map;
    const char *path = scratch_write("mapped", "text");
    fail_call(MAP, ENOMEM);
    assert_int_equal(xr_file_map(path, &err, &map), XRAY_E_NOMEM);
    assert_non_null(strstr(err.text, "mapped: cannot map: "));
    fail_call(MAP, ENODEV);
    assert_int_equal(xr_file_map(path, &err, &map), XRAY_E_IO);
    assert_null(map.data);
    assert_int_equal(map.size, 0);
}

/* The reason is why the folder was not made, not that it is not there. */
static void folders_that_are_not_made_say_why(void **state)
{
    (void)state;
    xr_err err = { "" };
    char why[128];
    const char *path = scratch_path("folder");
    fail_call(FOLDER, EDQUOT);
    assert_int_equal(xr_dir_make(path, &err), XRAY_E_IO);
    (void)snprintf(why, sizeof why, "folder: cannot make the folder: %s",
                   strerror(EDQUOT));
    assert_non_null(strstr(err.text, why));
    /* One that is there needs not be made. */
    assert_int_equal(xr_dir_make(scratch_dir(), NULL), XRAY_OK);
}

/* ---- locks -------------------------------------------------------------- */

/* Either of two reasons says that somebody else has the lock. */
static void locks_tell_holders_from_file_systems(void **state)
{
    (void)state;
    static const struct {
        int reason;
        xray_status status;
        const char *says;
    } cases[] = {
        { EAGAIN, XRAY_E_STATE, "is in use by another xray" },
        { EACCES, XRAY_E_STATE, "is in use by another xray" },
        { ENOLCK, XRAY_E_UNSUPPORTED, "does not support locks" },
        { EINVAL, XRAY_E_UNSUPPORTED, "does not support locks" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xr_err err = { "" };
        xr_lock lock;
        fail_call(LOCK, cases[i].reason);
        assert_int_equal(xr_lock_take(scratch_dir(), &err, &lock),
                         cases[i].status);
        assert_non_null(strstr(err.text, cases[i].says));
        assert_int_equal(lock.held, 0);
        xr_lock_drop(&lock);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(interrupted_calls_are_repeated, end_faults),
        cmocka_unit_test_teardown(failing_calls_leave_the_old_file, end_faults),
        cmocka_unit_test_teardown(a_file_that_failed_stays_so, end_faults),
        cmocka_unit_test_teardown(files_are_synced_before_they_are_renamed,
                                  end_faults),
        cmocka_unit_test_teardown(file_systems_need_no_sync, end_faults),
        cmocka_unit_test_teardown(maps_that_fail_say_why, end_faults),
        cmocka_unit_test_teardown(folders_that_are_not_made_say_why,
                                  end_faults),
        cmocka_unit_test_teardown(locks_tell_holders_from_file_systems,
                                  end_faults),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
