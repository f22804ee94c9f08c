/* SPDX-License-Identifier: Apache-2.0
 *
 * Collects what a fuzz target reports about one input as lines of text.
 */
#include "tests/fuzz/replay.h"

static xr_str text;
static char input[XR_PATH_CAP + 64];
static char folder[64]; /* absolute; "": none yet */

const char *fuzz_input(void)
{
    return input;
}

void seen_begin(const char *name, const char *how)
{
    (void)snprintf(input, sizeof(input), "%s%s: ", name, how);
    xr_str_clear(&text);
}

const xr_str *seen_end(void)
{
    FUZZ_CHECK(!text.failed);
    return &text;
}

void seen_work_in(const char *path)
{
    FUZZ_CHECK(chdir(path) == 0);
    FUZZ_CHECK(getcwd(folder, sizeof(folder)));
}

void seen_free(void)
{
    xr_str_free(&text);
}

static void begin_line(const char *name)
{
    if (*name)
        xr_str_printf(&text, "%s: ", name);
}

/* Absolute paths appear where a configuration is printed. */
static size_t skip_folder(const char *at, size_t left)
{
    size_t size = strlen(folder);
    return size && left >= size && !memcmp(at, folder, size) ? size : 0;
}

static void put_byte(unsigned char c)
{
    if (c == '\\')
        xr_str_puts(&text, "\\\\");
    else if (c == '\n')
        xr_str_puts(&text, "\\n");
    else if (c < ' ' || c == 0x7F)
        xr_str_printf(&text, "\\x%02X", c);
    else
        xr_str_append(&text, &c, 1);
}

void fuzz_saw(const char *name, const void *data, size_t size)
{
    const char *bytes = data;
    begin_line(name);
    for (size_t i = 0; i < size;) {
        size_t skip = skip_folder(bytes + i, size - i);
        if (skip)
            xr_str_puts(&text, "FOLDER");
        else
            put_byte((unsigned char)bytes[i]);
        i += skip ? skip : 1;
    }
    xr_str_puts(&text, "\n");
}

void fuzz_saw_text(const char *name, const char *value)
{
    if (value) {
        fuzz_saw(name, value, strlen(value));
    } else {
        begin_line(name);
        xr_str_puts(&text, "\\none\n");
    }
}

void fuzz_saw_u64(const char *name, uint64_t value)
{
    begin_line(name);
    xr_str_printf(&text, "%llu\n", (unsigned long long)value);
}

void fuzz_saw_i64(const char *name, int64_t value)
{
    begin_line(name);
    xr_str_printf(&text, "%lld\n", (long long)value);
}

void fuzz_saw_real(const char *name, double value)
{
    begin_line(name);
    if (value != value)
        xr_str_puts(&text, "nan\n");
    else
        xr_str_printf(&text, "%.17g\n", value);
}

void fuzz_saw_rounded(const char *name, double value)
{
    begin_line(name);
    if (value != value)
        xr_str_puts(&text, "nan\n");
    else
        xr_str_printf(&text, "%.6g\n", value);
}
