/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements growing strings, JSON text output, checked allocation, and edit
 * distance.
 */
#include "core/base/str.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/locale.h"

void xr_str_free(xr_str *s)
{
    free(s->data);
    *s = (xr_str){ 0 };
}

void xr_str_clear(xr_str *s)
{
    s->size = 0;
    s->failed = 0;
    if (s->data)
        s->data[0] = '\0';
}

/* Ensures capacity for `more` bytes and the NUL. */
static int reserve_bytes(xr_str *s, size_t more)
{
    if (s->failed)
        return -1;
    if (more < s->cap - s->size)
        return 0;
    if (more >= SIZE_MAX / 2 - s->size) {
        s->failed = 1;
        return -1;
    }
    size_t cap = s->cap ? s->cap : 32;
    while (cap - s->size <= more)
        cap *= 2;
    char *data = realloc(s->data, cap);
    if (!data) {
        s->failed = 1;
        return -1;
    }
    s->data = data;
    s->cap = cap;
    return 0;
}

void xr_str_append(xr_str *s, const void *bytes, size_t size)
{
    if (reserve_bytes(s, size))
        return;
    if (size)
        memcpy(s->data + s->size, bytes, size);
    s->size += size;
    s->data[s->size] = '\0';
}

void xr_str_puts(xr_str *s, const char *text)
{
    xr_str_append(s, text, strlen(text));
}

void xr_str_printf(xr_str *s, const char *fmt, ...)
{
    xr_locale saved = xr_locale_use_c();
    va_list args;
    va_start(args, fmt);
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0)
        s->failed = 1;
    else if (!reserve_bytes(s, (size_t)n)) {
        (void)vsnprintf(s->data + s->size, (size_t)n + 1, fmt, again);
        s->size += (size_t)n;
    }
    va_end(again);
    xr_locale_restore(saved);
}

static void append_json_char(xr_str *s, const char *at, int length)
{
    unsigned char c = (unsigned char)*at;
    const char *const from = "\"\\\n\r\t\b\f";
    const char *const to = "\"\\nrtbf";
    const char *hit = c ? strchr(from, c) : NULL;
    if (hit) {
        char pair[2] = { '\\', to[hit - from] };
        xr_str_append(s, pair, 2);
    } else if (c < 0x20 || c == 0x7f) {
        xr_str_printf(s, "\\u%04x", c);
    } else {
        xr_str_append(s, at, (size_t)length);
    }
}

void xr_str_json(xr_str *s, const char *text, size_t size)
{
    xr_str_append(s, "\"", 1);
    const char *end = text + size;
    while (text < end) {
        uint32_t code;
        int length = xr_utf8_decode(text, end, &code);
        if (length)
            append_json_char(s, text, length);
        else
            xr_str_append(s, "\xEF\xBF\xBD", 3);
        text += length ? length : 1;
    }
    xr_str_append(s, "\"", 1);
}

void xr_str_number(xr_str *s, double value)
{
    if (!isfinite(value)) {
        xr_str_puts(s, "null");
        return;
    }
    char text[40];
    xr_locale saved = xr_locale_use_c();
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    xr_locale_restore(saved);
    xr_str_puts(s, text);
}

void xr_str_float(xr_str *s, float value)
{
    if (!isfinite(value)) {
        xr_str_puts(s, "null");
        return;
    }
    char text[40];
    xr_locale saved = xr_locale_use_c();
    for (int digits = 6; digits <= 9; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    xr_locale_restore(saved);
    xr_str_puts(s, text);
}

const char *xr_str_text(const xr_str *s)
{
    return s->data ? s->data : "";
}

char *xr_strdup(const char *text)
{
    return xr_strndup(text, strlen(text));
}

char *xr_strndup(const char *text, size_t size)
{
    char *copy = size < SIZE_MAX ? malloc(size + 1) : NULL;
    if (!copy)
        return NULL;
    if (size)
        memcpy(copy, text, size);
    copy[size] = '\0';
    return copy;
}

void *xr_calloc(size_t count, size_t size)
{
    if (size && count > SIZE_MAX / 2 / size)
        return NULL;
    /* Allocates at least one byte, so that NULL always means "out of
     * memory". */
    return count && size ? calloc(count, size) : calloc(1, 1);
}

unsigned xr_edit_distance(const char *a, const char *b, unsigned limit)
{
    enum { LONGEST = 255 };
    size_t rows = strlen(a);
    size_t cols = strlen(b);
    size_t gap = rows > cols ? rows - cols : cols - rows;
    if (gap > limit)
        return limit + 1;
    /* Names are short; longer texts are only compared for equality. */
    if (cols > LONGEST)
        return strcmp(a, b) == 0 ? 0 : limit + 1;
    unsigned row[LONGEST + 1];
    for (size_t j = 0; j <= cols; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= rows; i++) {
        unsigned corner = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= cols; j++) {
            unsigned best = corner + (a[i - 1] != b[j - 1]);
            corner = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[cols] > limit ? limit + 1 : row[cols];
}
