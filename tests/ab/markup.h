/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks XML-like HTML: every tag is closed in order, there is no bare '<', '&'
 * or control character, and attributes are in double quotes.
 */
#ifndef XR_TEST_MARKUP_H
#define XR_TEST_MARKUP_H

#include "tests/testing.h"

static inline size_t markup_name(const char *at)
{
    return strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789");
}

/* The end of a tag that begins at `at`, past its '>'. */
static inline const char *markup_tag_end(const char *at)
{
    for (at++; *at && *at != '>'; at++) {
        if (*at == '<')
            fail_msg("'<' inside a tag: %.60s", at);
        if (*at == '"')
            at += 1 + strcspn(at + 1, "\"");
    }
    if (!*at)
        fail_msg("a tag has no end");
    return at + 1;
}

static inline void markup_entity(const char *at)
{
    static const char *const known[] = { "&amp;", "&lt;", "&gt;", "&quot;",
                                         "&#160;" };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strncmp(at, known[i], strlen(known[i])) == 0)
            return;
    fail_msg("an '&' that begins no known name: %.40s", at);
}

static inline void markup_check(const char *page)
{
    char open[64][16];
    size_t depth = 0;
    const char *at = page;
    assert_int_equal(strncmp(at, "<!DOCTYPE html>\n<html", 21), 0);
    for (at += 16; *at;) {
        if ((unsigned char)*at < 0x20 && !strchr("\n\t", *at))
            fail_msg("a control character: %.40s", at);
        if (*at == '&')
            markup_entity(at);
        if (*at != '<') {
            at++;
            continue;
        }
        int closes = at[1] == '/';
        const char *name = at + 1 + closes;
        size_t n = markup_name(name);
        const char *next = markup_tag_end(at);
        if (!n || n >= sizeof open[0])
            fail_msg("no tag: %.40s", at);
        if (closes) {
            if (!depth || strncmp(open[depth - 1], name, n) != 0 ||
                open[depth - 1][n])
                fail_msg("</%.*s> closes <%s>", (int)n, name,
                         depth ? open[depth - 1] : "nothing");
            depth--;
        } else if (next[-2] != '/') {
            assert_true(depth < 64);
            memcpy(open[depth], name, n);
            open[depth++][n] = '\0';
        }
        at = next;
    }
    if (depth)
        fail_msg("<%s> is not closed", open[depth - 1]);
}

#endif
