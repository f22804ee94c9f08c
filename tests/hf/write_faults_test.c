/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that each system call by which a model is written may fail: the writer
 * says so, and its folder then holds the older weights, the new ones or none
 * that can be read, but no mixture. The calls go through this suite.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/hf/safetensors.h"
#include "tests/scratch.h"

/* ---- system calls ------------------------------------------------------- */

static struct {
    unsigned at; /* the call that fails, from 1; 0: none */
    unsigned count;
    const char *failed; /* its name */
    int interrupts;     /* 1: every second transfer is interrupted */
    size_t most;        /* bytes of a transfer; 0: any */
    int no_space;       /* what allocating space returns */
    size_t synced;      /* of these files */
    ino_t inodes[64];
    unsigned loose; /* files that were renamed before */
} faults;

static int prevent(const char *name)
{
    if (++faults.count != faults.at)
        return 0;
    faults.failed = name;
    errno = EIO;
    return 1;
}

static int interrupt(void)
{
    static unsigned turn;
    if (!faults.interrupts || turn++ % 2)
        return 0;
    errno = EINTR;
    return 1;
}

static size_t bound_size(size_t size)
{
    return faults.most && faults.most < size ? faults.most : size;
}

ssize_t __real_write(int fd, const void *from, size_t size);
ssize_t __wrap_write(int fd, const void *from, size_t size);
ssize_t __wrap_write(int fd, const void *from, size_t size)
{
    return prevent("write") || interrupt()
               ? -1
               : __real_write(fd, from, bound_size(size));
}

ssize_t __real_pwrite(int fd, const void *from, size_t size, off_t at);
ssize_t __wrap_pwrite(int fd, const void *from, size_t size, off_t at);
ssize_t __wrap_pwrite(int fd, const void *from, size_t size, off_t at)
{
    return prevent("pwrite") || interrupt()
               ? -1
               : __real_pwrite(fd, from, bound_size(size), at);
}

/* Bytes that are not on the disk yet are read from the system's memory.
 */
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    struct stat st;
    if (prevent("fsync"))
        return -1;
    assert_int_equal(fstat(fd, &st), 0);
    faults.inodes[faults.synced++ % 64] = st.st_ino;
    return 0;
}

static int is_synced(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return 0;
    for (size_t i = 0; i < faults.synced && i < 64; i++)
        if (faults.inodes[i] == st.st_ino)
            return 1;
    return 0;
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    faults.loose += !is_synced(from);
    return prevent("rename") ? -1 : __real_rename(from, to);
}

int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
int __wrap_unlink(const char *path)
{
    return prevent("unlink") ? -1 : __real_unlink(path);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return prevent("open") ? -1 : __real_open(path, flags, mode);
}

int __real_posix_fallocate(int fd, off_t at, off_t size);
int __wrap_posix_fallocate(int fd, off_t at, off_t size);
int __wrap_posix_fallocate(int fd, off_t at, off_t size)
{
    if (faults.no_space)
        return faults.no_space;
    return prevent("posix_fallocate") ? EIO
                                      : __real_posix_fallocate(fd, at, size);
}

static int end_faults(void **state)
{
    (void)state;
    memset(&faults, 0, sizeof faults);
    return 0;
}

/* ---- a model ------------------------------------------------------------ */

enum { COUNT = 3, VALUES = 2, BYTES = 8 };

static const xm_st_item items[COUNT] = {
    { "a", XM_ST_F32, 1, { VALUES }, NULL },
    { "b", XM_ST_F32, 1, { VALUES }, NULL },
    { "c", XM_ST_F32, 1, { VALUES }, NULL },
};

static const char *folder(void)
{
    static char path[256];
    (void)snprintf(path, sizeof path, "%s/m", scratch_dir());
    return path;
}

static xray_status feed_value(void *ctx, size_t i, xr_err *err,
                              const void **out)
{
    static float values[VALUES];
    (void)i;
    (void)err;
    for (size_t k = 0; k < VALUES; k++)
        values[k] = *(const float *)ctx;
    *out = values;
    return XRAY_OK;
}

/* As the only writer. */
static xray_status write_alone(float value, uint64_t max_shard, xr_err *err)
{
    const xm_st_feed feed = { feed_value, &value, NULL };
    return xm_st_write_model(folder(), items, COUNT, max_shard, &feed, err);
}

/* As one of several ranks. */
static xray_status write_parts(float value, uint64_t max_shard, xr_err *err)
{
    xm_st_parts *parts = NULL;
    const float values[VALUES] = { value, value };
    xray_status status =
        xm_st_parts_model(folder(), items, COUNT, max_shard, err, &parts);
    if (status)
        return status;
    status = xm_st_parts_begin(parts, err);
    if (status) {
        xm_st_parts_close(parts);
        return status;
    }
    for (size_t i = 0; !status && i < COUNT; i++)
        status = xm_st_parts_write(parts, i, 0, values, BYTES, err);
    if (!status)
        status = xm_st_parts_sync(parts, err);
    if (!status)
        status = xm_st_parts_commit(parts, err);
    if (status)
        xm_st_parts_drop(parts);
    xm_st_parts_close(parts);
    return status;
}

typedef xray_status writer(float value, uint64_t max_shard, xr_err *err);

/* Returns the value that all weights have, or 0 if there are none. */
static float read_model(void)
{
    xr_err err = { "" };
    xm_st *st = NULL;
    float first = 0;
    if (xm_st_open(folder(), &err, &st) != XRAY_OK)
        return 0;
    for (size_t i = 0; i < COUNT; i++) {
        float got[VALUES] = { 0 };
        const xm_st_tensor *t = xm_st_find(st, items[i].name);
        assert_non_null(t);
        assert_int_equal(xm_st_read_f32(t, 0, VALUES, got, &err), XRAY_OK);
        first = i ? first : got[0];
        for (size_t k = 0; k < VALUES; k++)
            if (got[k] < first || got[k] > first)
                fail_msg("%s: %g beside %g", items[i].name, (double)got[k],
                         (double)first);
    }
    xm_st_close(st);
    return first;
}

/* Counts all files, and those that no reader knows. */
static size_t count_files(size_t *out_unfinished)
{
    size_t count = 0;
    DIR *dir = opendir(folder());
    assert_non_null(dir);
    *out_unfinished = 0;
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        count += *e->d_name != '.';
        *out_unfinished += strstr(e->d_name, ".tmp") != NULL ||
                           strstr(e->d_name, ".part") != NULL;
    }
    (void)closedir(dir);
    return count;
}

/* ---- failures ----------------------------------------------------------- */

/* The calls of a write fail one after the other, over an older model of this
 * size of shards or none. */
static void fail_each_call(writer *write, uint64_t before, uint64_t max_shard)
{
    for (unsigned at = 1;; at++) {
        xr_err err = { "" };
        size_t unfinished = 0;
        memset(&faults, 0, sizeof faults);
        assert_int_equal(xr_dir_remove(folder(), NULL), XRAY_OK);
        assert_int_equal(xr_dir_make(folder(), NULL), XRAY_OK);
        if (before)
            assert_int_equal(write_alone(1, before, &err), XRAY_OK);
        faults.count = 0;
        faults.synced = 0;
        faults.at = at;
        xray_status status = write(2, max_shard, &err);
        unsigned made = faults.count;
        faults.at = 0;
        float value = read_model();
        size_t files = count_files(&unfinished);
        if (made < at) {
            assert_int_equal(status, XRAY_OK);
            assert_true(value > 1 && value < 3);
            /* Each file before it takes the place of another, and the folder
             * when all has been done. */
            assert_int_equal(faults.loose, 0);
            assert_true(is_synced(folder()));
            assert_int_equal(files, max_shard < 3 * (uint64_t)BYTES ? 4 : 1);
            assert_true(at > 5);
            return;
        }
        if (status != XRAY_E_IO || !err.text[0])
            fail_msg("call %u, %s: %d, '%s'", at, faults.failed, status,
                     err.text);
        assert_true(before || value < 1 || value > 1);
        if (strcmp(faults.failed, "unlink") != 0)
            assert_int_equal(unfinished, 0);
        /* Nothing stands in the way of the next attempt. */
        if (at % 4)
            continue;
        if (write(3, max_shard, &err) != XRAY_OK)
            fail_msg("after call %u, %s: %s", at, faults.failed, err.text);
        value = read_model();
        assert_true(value > 2);
    }
}

static void no_failure_is_overlooked(void **state)
{
    (void)state;
    static writer *const writers[] = { write_alone, write_parts };
    static const uint64_t sizes[][2] = { { 0, 3 * BYTES },
                                         { BYTES, 3 * BYTES },
                                         { 3 * BYTES, BYTES },
                                         { BYTES, BYTES } };
    for (size_t w = 0; w < 2; w++)
        for (size_t i = 0; i < 4; i++)
            fail_each_call(writers[w], sizes[i][0], sizes[i][1]);
}

/* ---- transfers ---------------------------------------------------------- */

static void transfers_go_on_where_they_stopped(void **state)
{
    (void)state;
    static writer *const writers[] = { write_alone, write_parts };
    assert_int_equal(xr_dir_make(folder(), NULL), XRAY_OK);
    for (size_t w = 0; w < 2; w++)
        for (size_t most = 1; most < 12; most += 5) {
            xr_err err = { "" };
            faults.interrupts = 1;
            faults.most = most;
            if (writers[w]((float)most, 3 * BYTES, &err) != XRAY_OK)
                fail_msg("%s", err.text);
            float got = read_model();
            assert_true(got > (float)most - 1 && got < (float)most + 1);
        }
}

/* A file system may allocate no space in advance, but a full one says so. */
static void space_is_allocated_where_that_can_be(void **state)
{
    (void)state;
    static const int reasons[] = { EOPNOTSUPP, EINVAL, ENOSPC };
    assert_int_equal(xr_dir_make(folder(), NULL), XRAY_OK);
    for (size_t i = 0; i < 3; i++) {
        xr_err err = { "" };
        faults.no_space = reasons[i];
        xray_status status = write_parts(5 + (float)i, BYTES, &err);
        float got = read_model();
        assert_int_equal(status, i < 2 ? XRAY_OK : XRAY_E_IO);
        assert_true(got > (i < 2 ? 4.5f + (float)i : 5.5f) && got < 6.5f);
        if (i == 2)
            assert_non_null(strstr(err.text, ": cannot allocate "));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(no_failure_is_overlooked, end_faults),
        cmocka_unit_test_teardown(transfers_go_on_where_they_stopped,
                                  end_faults),
        cmocka_unit_test_teardown(space_is_allocated_where_that_can_be,
                                  end_faults),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
