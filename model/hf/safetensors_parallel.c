/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes safetensors files from several ranks, each of which writes the bytes
 * it has.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/str.h"
#include "core/base/system_error.h"
#include "model/hf/safetensors_internal.h"

static xray_status fail_with_errno(const char *path, const char *what,
                                   xr_err *err)
{
    char why[XR_SYSTEM_ERROR_CAP];
    return xr_fail(err, XRAY_E_IO, "%s: cannot %s: %s", path, what,
                   xr_system_error(errno, why));
}

static char *join_strings(const char *text, const char *tail)
{
    size_t size = strlen(text) + strlen(tail) + 1;
    char *copy = malloc(size);
    if (copy)
        (void)snprintf(copy, size, "%s%s", text, tail);
    return copy;
}

xray_status xm_st_parts_new(const char *dir, const xm_st_item *items,
                            size_t count, xr_err *err, xm_st_parts **out)
{
    xm_st_parts *parts = xr_calloc(1, sizeof *parts);
    if (parts) {
        *parts = (xm_st_parts){ .items = items,
                                .item_count = count,
                                .dir = join_strings(dir, ""),
                                .part_of = xr_calloc(count + 1, sizeof(size_t)),
                                .at = xr_calloc(count + 1, sizeof(uint64_t)) };
        /* There are at most as many files as tensors, and one if there are no
         * tensors. */
        parts->parts = xr_calloc(count + 1, sizeof *parts->parts);
    }
    if (!parts || !parts->dir || !parts->part_of || !parts->at ||
        !parts->parts) {
        xm_st_parts_close(parts);
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", dir);
    }
    *out = parts;
    return XRAY_OK;
}

xray_status xm_st_parts_add(xm_st_parts *parts, const char *path,
                            const xm_st_item *items, size_t first, size_t end,
                            const char *const *metadata, xr_err *err)
{
    xm_st_part *part = &parts->parts[parts->count++];
    *part = (xm_st_part){ .path = join_strings(path, ""),
                          .temp = join_strings(path, ".part"),
                          .fd = -1 };
    if (!part->path || !part->temp)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    xray_status status = xm_st_header(&part->header, path, items + first,
                                      end - first, metadata, err);
    part->size = part->header.size;
    for (size_t i = first; !status && i < end; i++) {
        uint64_t bytes = 0;
        status = xm_st_item_bytes(path, &items[i], err, &bytes);
        parts->part_of[i] = parts->count - 1;
        parts->at[i] = part->size;
        part->size += bytes;
    }
    return status;
}

xray_status xm_st_parts_file(const char *path, const xm_st_item *items,
                             size_t count, const char *const *metadata,
                             xr_err *err, xm_st_parts **out)
{
    xm_st_parts *parts = NULL;
    xray_status status = xm_st_parts_new(path, items, count, err, &parts);
    if (!status)
        status = xm_st_parts_add(parts, path, items, 0, count, metadata, err);
    if (status) {
        xm_st_parts_close(parts);
        return status;
    }
    *out = parts;
    return XRAY_OK;
}

void xm_st_parts_close(xm_st_parts *parts)
{
    if (!parts)
        return;
    for (size_t i = 0; parts->parts && i < parts->count; i++) {
        xm_st_part *part = &parts->parts[i];
        if (part->fd >= 0)
            (void)close(part->fd);
        free(part->path);
        free(part->temp);
        xr_str_free(&part->header);
    }
    free(parts->parts);
    free(parts->part_of);
    free(parts->at);
    free(parts->dir);
    free(parts);
}

static xray_status write_at_offset(const xm_st_part *part, uint64_t at,
                                   const void *data, size_t size, xr_err *err)
{
    const char *from = data;
    while (size) {
        ssize_t n = pwrite(part->fd, from, size, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fail_with_errno(part->temp, "write", err);
        from += n;
        at += (uint64_t)n;
        size -= (size_t)n;
    }
    return XRAY_OK;
}

static xray_status create_temporary(xm_st_part *part, xr_err *err)
{
    part->fd = open(part->temp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (part->fd < 0)
        return fail_with_errno(part->temp, "create", err);
    /* Allocates the file now, so that a full disk is reported here and not by a
     * rank halfway. */
    int full = xr_file_allocate(part->fd, part->size);
    char why[XR_SYSTEM_ERROR_CAP];
    if (full)
        return xr_fail(err, XRAY_E_IO, "%s: cannot allocate %llu bytes: %s",
                       part->temp, (unsigned long long)part->size,
                       xr_system_error(full, why));
    return write_at_offset(part, 0, part->header.data, part->header.size, err);
}

xray_status xm_st_parts_begin(xm_st_parts *parts, xr_err *err)
{
    xray_status status = XRAY_OK;
    for (size_t i = 0; !status && i < parts->count; i++)
        status = create_temporary(&parts->parts[i], err);
    if (status)
        xm_st_parts_drop(parts);
    return status;
}

xray_status xm_st_parts_write(xm_st_parts *parts, size_t i, uint64_t at,
                              const void *data, size_t size, xr_err *err)
{
    xm_st_part *part = &parts->parts[parts->part_of[i]];
    if (part->fd < 0)
        part->fd = open(part->temp, O_RDWR | O_CLOEXEC);
    if (part->fd < 0)
        return fail_with_errno(part->temp, "open", err);
    return write_at_offset(part, parts->at[i] + at, data, size, err);
}

xray_status xm_st_parts_sync(xm_st_parts *parts, xr_err *err)
{
    for (size_t i = 0; i < parts->count; i++) {
        const xm_st_part *part = &parts->parts[i];
        if (part->fd >= 0 && xr_file_sync(part->fd))
            return fail_with_errno(part->temp, "sync", err);
    }
    return XRAY_OK;
}

xray_status xm_st_parts_rename(xm_st_parts *parts, xr_err *err)
{
    for (size_t i = 0; i < parts->count; i++)
        if (rename(parts->parts[i].temp, parts->parts[i].path))
            return fail_with_errno(parts->parts[i].path,
                                   "rename the new file to", err);
    return parts->count ? xr_dir_sync_parent(parts->parts[0].path, err)
                        : XRAY_OK;
}

void xm_st_parts_drop(xm_st_parts *parts)
{
    for (size_t i = 0; i < parts->count; i++)
        (void)unlink(parts->parts[i].temp);
}
