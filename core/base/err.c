/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes error sentences and records which key or file a sentence is about.
 */
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
    err->location = (xr_location){ .name_end = 0 };
    return status;
}

/* Returns 0 if the name does not fit; the INI reader takes no name that
 * long. */
static int copy_fitting_name(char *to, size_t cap, const char *name)
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
    size_t name_size = strlen(err->text);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(err->text + name_size, sizeof err->text - name_size, fmt,
                    args);
    va_end(args);
    xr_one_line(err->text);
    xr_location location = { .name_end = (uint32_t)name_size };
    if (copy_fitting_name(location.section, sizeof location.section,
                          section ? section : "") &&
        copy_fitting_name(location.key, sizeof location.key, key))
        err->location = location;
    return status;
}

void xr_err_file(xr_err *err, const char *file)
{
    size_t size = strlen(file);
    if (err && size < strlen(err->text))
        err->location = (xr_location){ .name_end = (uint32_t)size };
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
    size_t space = used < sizeof err->text ? sizeof err->text - used : 0;
    err->location = (xr_location){ .name_end = 0 };
    if (space > 2) {
        memcpy(err->text + used, ": ", 3);
        size_t size = strnlen(inner.text, sizeof inner.text - 1);
        size = size < space - 3 ? size : space - 3;
        memcpy(err->text + used + 2, inner.text, size);
        err->text[used + 2 + size] = '\0';
        if (inner.location.name_end && inner.location.name_end <= size) {
            err->location = inner.location;
            err->location.name_begin += (uint32_t)used + 2;
            err->location.name_end += (uint32_t)used + 2;
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
    if (!p->name_end || !XRAY_HAS(xray_host, host, fail_at))
        return host->fail(host, status, where, err->text);
    (void)snprintf(name, sizeof name, "%.*s",
                   (int)(p->name_end - p->name_begin),
                   err->text + p->name_begin);
    const xray_location location = { .header = XRAY_HEADER(xray_location),
                                     .section = *p->section ? p->section : NULL,
                                     .key = *p->key ? p->key : NULL,
                                     .file = *p->key ? NULL : name };
    return host->fail_at(host, status, where, &location,
                         err->text + p->name_end);
}
