/* SPDX-License-Identifier: Apache-2.0
 *
 * Gives each suite its own folder, and compares errors as one text.
 */
#ifndef XR_CONFIG_TESTING_H
#define XR_CONFIG_TESTING_H

#include "core/config/config.h"
#include "tests/testing.h"

static inline int enter_folder(void **state)
{
    static char dir[] = "/tmp/xray-config-XXXXXX";
    *state = mkdtemp(dir);
    return *state && chdir(dir) == 0 ? 0 : -1;
}

static inline int leave_folder(void **state)
{
    (void)unlink("run.ini");
    (void)unlink("other.ini");
    return chdir("/") == 0 && rmdir(*state) == 0 ? 0 : -1;
}

static inline void write_file(const char *name, const void *data, size_t size)
{
    /* Some file systems wait for the disk where a file is overwritten. */
    (void)unlink(name);
    FILE *file = fopen(name, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static inline void write_text(const char *name, const char *text)
{
    write_file(name, text, strlen(text));
}

/* Compares the errors, one per line, and clears them. */
static inline void expect_errors(xr_errors *errors, const char *want)
{
    xr_str text = { 0 };
    for (size_t i = 0; i < errors->count; i++)
        xr_str_printf(&text, "%s%s", i ? "\n" : "", errors->items[i]);
    assert_string_equal(xr_str_text(&text), want);
    xr_str_free(&text);
    xr_errors_free(errors);
}

#endif
