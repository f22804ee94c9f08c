/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts a command line into words.
 */
#include "core/base/words.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"

#define BLANKS " \t\n"

/* Appends the value that stands at `at`, and returns the bytes of its name; 0
 * if there is none. */
static size_t put_value(const char *at, const xr_word_value *values,
                        size_t count, xr_str *out)
{
    for (size_t i = 0; i < count; i++) {
        const size_t size = strlen(values[i].name);
        if (strncmp(at + 1, values[i].name, size) == 0 && at[1 + size] == '}') {
            xr_str_puts(out, values[i].value);
            return size + 2;
        }
    }
    return 0;
}

/* Appends one word and its NUL, and returns what follows it; NULL if a quote
 * does not end. */
static const char *cut_word(const char *at, const xr_word_value *values,
                            size_t count, xr_str *out)
{
    char quote = '\0';
    for (; *at && (quote || !strchr(BLANKS, *at)); at++) {
        const size_t named = *at == '{' ? put_value(at, values, count, out) : 0;
        if (named)
            at += named - 1;
        else if (quote ? *at == quote : *at == '\'' || *at == '"')
            quote = quote ? '\0' : *at;
        else
            xr_str_append(out, at, 1);
    }
    xr_str_append(out, "", 1);
    return quote ? NULL : at;
}

/* The table of the words that follow each other in `text`. */
static char **make_table(const xr_str *text, size_t count)
{
    const size_t table = (count + 1) * sizeof(char *);
    char **words = malloc(table + text->size);
    if (!words)
        return NULL;
    char *at = (char *)words + table;
    memcpy(at, text->data, text->size);
    for (size_t i = 0; i < count; i++) {
        words[i] = at;
        at += strlen(at) + 1;
    }
    words[count] = NULL;
    return words;
}

xray_status xr_words_cut(const char *text, const xr_word_value *values,
                         size_t value_count, xr_err *err, char ***out)
{
    xr_str all = { 0 };
    size_t count = 0;
    xray_status status = XRAY_OK;
    for (const char *at = text + strspn(text, BLANKS); at && *at;
         at += strspn(at, BLANKS)) {
        at = cut_word(at, values, value_count, &all);
        count++;
        if (at)
            continue;
        status = xr_fail(err, XRAY_E_CONFIG, "has a quote that does not end");
        break;
    }
    if (status == XRAY_OK && !count)
        status = xr_fail(err, XRAY_E_CONFIG, "is empty");
    char **words =
        status == XRAY_OK && !all.failed ? make_table(&all, count) : NULL;
    xr_str_free(&all);
    if (status == XRAY_OK && !words)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    if (words)
        *out = words;
    return status;
}

char **xr_words_copy(const char *const *words, const char *last)
{
    size_t count = 0;
    size_t size = strlen(last) + 1;
    for (; words[count]; count++)
        size += strlen(words[count]) + 1;
    char **copy = malloc((count + 2) * sizeof(*copy) + size);
    if (!copy)
        return NULL;
    char *at = (char *)(copy + count + 2);
    for (size_t i = 0; i <= count; i++) {
        const char *from = i < count ? words[i] : last;
        const size_t length = strlen(from) + 1;
        memcpy(at, from, length);
        copy[i] = at;
        at += length;
    }
    copy[count + 1] = NULL;
    return copy;
}
