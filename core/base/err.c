/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void xr_one_line(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 127)
            *text = ' ';
}

xray_status xr_fail(xr_err *err, xray_status status, const char *fmt, ...)
{
    if (!err)
        return status;
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    xr_one_line(err->text);
    return status;
}

xray_status xr_fail_in(xr_err *err, xray_status status, const char *fmt, ...)
{
    if (!err)
        return status;
    char rest[sizeof err->text];
    memcpy(rest, err->text, sizeof rest);
    rest[sizeof rest - 1] = '\0';
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    size_t used = n < 0 ? 0 : (size_t)n;
    size_t room = used < sizeof err->text ? sizeof err->text - used : 0;
    if (room > 2) {
        memcpy(err->text + used, ": ", 3);
        size_t size = strlen(rest);
        size = size < room - 3 ? size : room - 3;
        memcpy(err->text + used + 2, rest, size);
        err->text[used + 2 + size] = '\0';
    }
    xr_one_line(err->text);
    return status;
}
