/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/err.h"

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
    err->location = (xr_location){ .said = 0 };
    return status;
}

/* 0 if the name does not fit, as no name that the INI takes. */
static int copy_name(char *to, size_t cap, const char *name)
{
    size_t size = strlen(name);
    if (size < cap)
        memcpy(to, name, size + 1);
    return size < cap;
}

xray_status xr_fail_key(xr_err *err, xray_status status, const char *section,
                        const char *key, const char *fmt, ...)
{
    if (!err)
        return status;
    (void)xr_fail(err, status, "%s%s%s%s", section ? "[" : "",
                  section ? section : "", section ? "] " : "", key);
    size_t named = strlen(err->text);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(err->text + named, sizeof err->text - named, fmt, args);
    va_end(args);
    xr_one_line(err->text);
    xr_location place = { .said = (uint32_t)named };
    if (copy_name(place.section, sizeof place.section,
                  section ? section : "") &&
        copy_name(place.key, sizeof place.key, key))
        err->location = place;
    return status;
}

void xr_err_file(xr_err *err, const char *file)
{
    size_t size = strlen(file);
    if (err && size < strlen(err->text))
        err->location = (xr_location){ .said = (uint32_t)size };
}

xray_status xr_fail_in(xr_err *err, xray_status status, const char *fmt, ...)
{
    if (!err)
        return status;
    const xr_err inner = *err;
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    size_t used = n < 0 ? 0 : (size_t)n;
    size_t room = used < sizeof err->text ? sizeof err->text - used : 0;
    err->location = (xr_location){ .said = 0 };
    if (room > 2) {
        memcpy(err->text + used, ": ", 3);
        size_t size = strnlen(inner.text, sizeof inner.text - 1);
        size = size < room - 3 ? size : room - 3;
        memcpy(err->text + used + 2, inner.text, size);
        err->text[used + 2 + size] = '\0';
        if (inner.location.said && inner.location.said <= size) {
            err->location = inner.location;
            err->location.from += (uint32_t)used + 2;
            err->location.said += (uint32_t)used + 2;
        }
    }
    xr_one_line(err->text);
    return status;
}

xray_status xr_host_vfail(const xray_host *host, xray_status status,
                          const char *where, const char *fmt, va_list args)
{
    char text[1024];
    if (!host)
        return status;
    (void)vsnprintf(text, sizeof text, fmt, args);
    return host->fail(host, status, where, text);
}

xray_status xr_host_fail(const xray_host *host, xray_status status,
                         const char *where, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    status = xr_host_vfail(host, status, where, fmt, args);
    va_end(args);
    return status;
}

xray_status xr_host_tell(const xray_host *host, xray_status status,
                         const char *where, const xr_err *err)
{
    const xr_location *p = &err->location;
    char name[sizeof err->text];
    if (!host)
        return status;
    if (!p->said || !XRAY_HAS(xray_host, host, fail_at))
        return host->fail(host, status, where, err->text);
    (void)snprintf(name, sizeof name, "%.*s", (int)(p->said - p->from),
                   err->text + p->from);
    const xray_location place = { .header = XRAY_HEADER(xray_location),
                                  .section = *p->section ? p->section : NULL,
                                  .key = *p->key ? p->key : NULL,
                                  .file = *p->key ? NULL : name };
    return host->fail_at(host, status, where, &place, err->text + p->said);
}
