/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the outcomes of a replay with its golden, line by line. A line
 * begins with the name of its input, and both texts are in the order of names.
 */
#include "tests/fuzz/replay.h"

#define SHOWN 20u /* differences that are printed */

static size_t measure_line(const char *line)
{
    return strcspn(line, "\n");
}

/* Compares the names of two lines; the end of a text is after all names. */
static int compare_lines(const char *a, const char *b)
{
    size_t a_size = strcspn(a, " \n");
    size_t b_size = strcspn(b, " \n");
    if (!*a || !*b)
        return !*a - !*b;
    int order = memcmp(a, b, a_size < b_size ? a_size : b_size);
    return order ? order : (a_size > b_size) - (a_size < b_size);
}

static void print_line(const char *what, const char *line)
{
    (void)printf("  %s %.*s\n", what, (int)measure_line(line), line);
}

int golden_is(const char *golden, const char *lines)
{
    size_t different = 0;
    while (*golden || *lines) {
        int order = compare_lines(golden, lines);
        size_t was = order <= 0 ? measure_line(golden) : 0;
        size_t now = order >= 0 ? measure_line(lines) : 0;
        int same = order == 0 && was == now && !memcmp(golden, lines, was);
        if (!same && ++different <= SHOWN) {
            print_line("was", order <= 0 ? golden : "(no such input)");
            print_line("is ", order >= 0 ? lines : "(no such input)");
        }
        golden += order <= 0 ? was + (golden[was] == '\n') : 0;
        lines += order >= 0 ? now + (lines[now] == '\n') : 0;
    }
    if (different)
        (void)printf("%zu outcomes differ from the golden\n", different);
    return !different;
}
