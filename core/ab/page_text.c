/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes text, numbers and names of variants into the HTML page of a
 * comparison.
 */
#include "core/ab/page.h"

#include <math.h>
#include <string.h>

static void put_character(const char *at, int size, uint32_t code, xr_str *out)
{
    if (code == '&')
        xr_str_puts(out, "&amp;");
    else if (code == '<')
        xr_str_puts(out, "&lt;");
    else if (code == '>')
        xr_str_puts(out, "&gt;");
    else if (code == '"')
        xr_str_puts(out, "&quot;");
    else if ((code < 0x20 && code != '\n' && code != '\t') ||
             (code >= 0x7f && code < 0xa0) || (code & 0xfffeu) == 0xfffeu)
        xr_str_puts(out, "\xef\xbf\xbd"); /* not allowed in XML */
    else
        xr_str_append(out, at, (size_t)size);
}

void xr_page_text(const char *text, xr_str *out)
{
    const char *end = text + strlen(text);
    while (text < end) {
        uint32_t code = 0;
        int size = xr_utf8_decode(text, end, &code);
        if (size > 0)
            put_character(text, size, code, out);
        else
            xr_str_puts(out, "\xef\xbf\xbd");
        text += size > 0 ? size : 1;
    }
}

void xr_page_number(double value, xr_str *out)
{
    if (isnan(value))
        xr_str_puts(out, "\xe2\x80\x93");
    else
        xr_str_printf(
            out, fabs(value) >= 1000 && fabs(value) < 1e15 ? "%.0f" : "%.4g",
            value);
}

void xr_page_name(const xr_runs *runs, size_t variant, xr_str *out)
{
    xr_str_printf(out, "<span class=\"key c%zu\"></span>",
                  variant % XR_COLOURS);
    xr_page_text(runs->variants[variant].name, out);
}
