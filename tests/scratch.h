/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder of its own for a suite's files.
 */
#ifndef XR_TEST_SCRATCH_H
#define XR_TEST_SCRATCH_H

#include "core/base/file.h"
#include "tests/testing.h"

/* The environment holds the folder, so that all files of a suite share it. */
static inline const char *scratch_dir(void)
{
    const char *dir = getenv("XRAY_SCRATCH");
    if (!dir)
        fail_msg("the suite made no scratch folder");
    return dir;
}

static inline int scratch_make(void **state)
{
    char dir[] = "/tmp/xray-test-XXXXXX";
    (void)state;
    return mkdtemp(dir) ? setenv("XRAY_SCRATCH", dir, 1) : -1;
}

static inline int scratch_drop(void **state)
{
    (void)state;
    return xr_dir_remove(scratch_dir(), NULL) == XRAY_OK ? 0 : -1;
}

/* The path of `name` in the folder; two buffers are used in turn. */
static inline const char *scratch_path(const char *name)
{
    static char buffers[2][256];
    static unsigned turn;
    char *buffer = buffers[turn++ % 2];
    (void)snprintf(buffer, sizeof buffers[0], "%s/%s", scratch_dir(), name);
    return buffer;
}

static inline const char *scratch_write(const char *name, const char *text)
{
    const char *path = scratch_path(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
    return path;
}

#endif
