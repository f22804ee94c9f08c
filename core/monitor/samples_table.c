/* SPDX-License-Identifier: Apache-2.0
 *
 * Fits texts of models into the columns of a terminal.
 */
#include "core/monitor/samples_table.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

enum { SCORE_COLUMNS = 8, LEAST_COLUMNS = 60, NO_TERMINAL_COLUMNS = 120 };

static const char ELLIPSIS[] = "\xe2\x80\xa6";
static const char REPLACEMENT[] = "\xef\xbf\xbd";

unsigned xr_terminal_columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col)
        return size.ws_col;
    return NO_TERMINAL_COLUMNS;
}

/* One character as it is shown. */
typedef struct glyph {
    const char *text;
    size_t size;
    size_t taken; /* bytes of the source */
    unsigned columns;
} glyph;

/* Controls, formatting characters (which reorder text) and line separators are
 * not shown as they are. */
static int is_harmless(uint32_t code)
{
    switch (utf8proc_category((int32_t)code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return 0;
    default:
        return 1;
    }
}

static glyph read_glyph(const char *at, const char *end)
{
    uint32_t code = 0;
    int size = xr_utf8_decode(at, end, &code);
    if (size && code == '\n')
        return (glyph){ "\\n", 2, 1, 2 };
    if (size && code == '\t')
        return (glyph){ "\\t", 2, 1, 2 };
    if (!size || !is_harmless(code))
        return (glyph){ REPLACEMENT, strlen(REPLACEMENT),
                        size ? (size_t)size : 1, 1 };
    int columns = utf8proc_charwidth((int32_t)code);
    return (glyph){ at, (size_t)size, (size_t)size,
                    columns > 0 ? (unsigned)columns : 0 };
}

static size_t count_columns(const char *text, size_t size)
{
    size_t columns = 0;
    for (const char *at = text; at < text + size;) {
        glyph g = read_glyph(at, text + size);
        columns += g.columns;
        at += g.taken;
    }
    return columns;
}

static void pad_cell(size_t used, unsigned columns, xr_str *out)
{
    for (; used < columns; used++)
        xr_str_append(out, " ", 1);
}

/* Appends the beginning of a text, and blanks up to `columns`. */
static void put_beginning(const char *text, size_t size, unsigned columns,
                          xr_str *out)
{
    size_t all = count_columns(text, size);
    size_t room = all > columns ? columns - 1 : columns;
    size_t used = 0;
    for (const char *at = text; at < text + size;) {
        glyph g = read_glyph(at, text + size);
        if (used + g.columns > room)
            break;
        xr_str_append(out, g.text, g.size);
        used += g.columns;
        at += g.taken;
    }
    if (all > columns) {
        xr_str_puts(out, ELLIPSIS);
        used++;
    }
    pad_cell(used, columns, out);
}

/* Appends the end of a text, and blanks up to `columns`. */
static void put_end(const char *text, size_t size, unsigned columns,
                    xr_str *out)
{
    size_t left = count_columns(text, size);
    size_t used = 0;
    if (left <= columns) {
        put_beginning(text, size, columns, out);
        return;
    }
    const char *at = text;
    while (at < text + size && left > columns - 1) {
        glyph g = read_glyph(at, text + size);
        left -= g.columns;
        at += g.taken;
    }
    xr_str_puts(out, ELLIPSIS);
    used = 1 + left;
    while (at < text + size) {
        glyph g = read_glyph(at, text + size);
        xr_str_append(out, g.text, g.size);
        at += g.taken;
    }
    pad_cell(used, columns, out);
}

void xr_shown_text(const char *text, size_t size, const char *indent,
                   xr_str *out)
{
    xr_str_puts(out, indent);
    for (const char *at = text; at < text + size;) {
        glyph g = read_glyph(at, text + size);
        if (*at == '\n') {
            xr_str_puts(out, "\n");
            xr_str_puts(out, at + 1 < text + size ? indent : "");
        } else {
            xr_str_append(out, g.text, g.size);
        }
        at += g.taken;
    }
    if (!size || text[size - 1] != '\n')
        xr_str_puts(out, "\n");
}

/* The widths of prompt, answer and ground truth. */
static void share_columns(unsigned columns, unsigned out[3])
{
    columns = columns < LEAST_COLUMNS ? LEAST_COLUMNS : columns;
    unsigned rest = columns - SCORE_COLUMNS - 6; /* two blanks before each */
    out[0] = rest * 2 / 5;
    out[2] = rest / 5;
    out[1] = rest - out[0] - out[2];
}

static void end_line(xr_str *out)
{
    while (out->size && out->data[out->size - 1] == ' ')
        out->size--;
    xr_str_append(out, "\n", 1);
}

void xr_samples_table_head(unsigned columns, xr_str *out)
{
    static const char *const names[] = { "prompt", "answer", "ground truth" };
    unsigned widths[3];
    share_columns(columns, widths);
    xr_str_printf(out, "%*s", SCORE_COLUMNS, "score");
    for (size_t i = 0; i < 3; i++) {
        xr_str_puts(out, "  ");
        put_beginning(names[i], strlen(names[i]), widths[i], out);
    }
    end_line(out);
}

void xr_samples_table_row(const xr_shown_sample *sample, unsigned columns,
                          xr_str *out)
{
    unsigned widths[3];
    share_columns(columns, widths);
    xr_str_printf(out, "%*.4g  ", SCORE_COLUMNS, sample->score);
    put_end(sample->prompt, sample->prompt_size, widths[0], out);
    xr_str_puts(out, "  ");
    put_beginning(sample->answer, sample->answer_size, widths[1], out);
    xr_str_puts(out, "  ");
    put_beginning(sample->truth, strlen(sample->truth), widths[2], out);
    end_line(out);
}
