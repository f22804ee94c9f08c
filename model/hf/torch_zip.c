/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the directory of a zip archive (APPNOTE 6.3.10, sections 4.3 and 4.5.3)
 * whose entries are stored, as torch.save writes it, so that an entry can be
 * used where it lies in the mapped file. Checksums are not compared, since
 * PyTorch may be told to write none, and does not compare them either.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"
#include "model/hf/torch_internal.h"

#define END_SIZE 22u
#define END64_SIZE 56u
#define LOCATOR_SIZE 20u
#define CENTRAL_SIZE 46u
#define LOCAL_SIZE 30u
#define NARROW \
    0xffffffffu /* a 32-bit field whose value is in the extra field */

typedef struct archive {
    const unsigned char *data;
    uint64_t size;
    uint64_t directory; /* position of the central directory */
    uint64_t directory_size;
    uint64_t count;
    const char *path;
    xr_err *err;
} archive;

static uint64_t read_number(const unsigned char *at, unsigned bytes)
{
    uint64_t value = 0;
    while (bytes--)
        value = value << 8 | at[bytes];
    return value;
}

static xray_status fail_as_damaged(const archive *a, const char *why)
{
    return xr_fail(a->err, XRAY_E_CONFIG,
                   "%s: the zip archive is cut off or damaged: %s", a->path,
                   why);
}

static xray_status fail_for_entry(const archive *a, const xm_zip_entry *entry,
                                  const char *why)
{
    return xr_fail(a->err, XRAY_E_CONFIG, "%s: entry %.*s: %s", a->path,
                   (int)(entry->name_size < 200 ? entry->name_size : 200),
                   entry->name, why);
}

/* Finds the end record, behind which only a comment may be. */
static xray_status find_end_record(const archive *a, uint64_t *out)
{
    uint64_t least =
        a->size > END_SIZE + 65535u ? a->size - END_SIZE - 65535u : 0;
    for (uint64_t at = a->size < END_SIZE ? 0 : a->size - END_SIZE + 1;
         at-- > least;) {
        if (read_number(a->data + at, 4) == 0x06054b50u &&
            at + END_SIZE + read_number(a->data + at + 20, 2) == a->size) {
            *out = at;
            return XRAY_OK;
        }
    }
    return fail_as_damaged(a, "there is no record of its end");
}

/* Reads the record of zip64, which PyTorch always writes, if there is one. */
static xray_status read_end64(archive *a, uint64_t end)
{
    const unsigned char *locator = a->data + end - LOCATOR_SIZE;
    if (end < LOCATOR_SIZE || read_number(locator, 4) != 0x07064b50u)
        return XRAY_OK;
    uint64_t at = read_number(locator + 8, 8);
    if (at > end - LOCATOR_SIZE || end - LOCATOR_SIZE - at < END64_SIZE ||
        read_number(a->data + at, 4) != 0x06064b50u)
        return fail_as_damaged(a, "the zip64 record is not where it should be");
    a->count = read_number(a->data + at + 32, 8);
    a->directory_size = read_number(a->data + at + 40, 8);
    a->directory = read_number(a->data + at + 48, 8);
    return XRAY_OK;
}

static xray_status find_directory(archive *a)
{
    uint64_t end = 0;
    xray_status status = find_end_record(a, &end);
    if (status)
        return status;
    a->count = read_number(a->data + end + 10, 2);
    a->directory_size = read_number(a->data + end + 12, 4);
    a->directory = read_number(a->data + end + 16, 4);
    status = read_end64(a, end);
    if (status)
        return status;
    if (a->directory > end || a->directory_size > end - a->directory ||
        a->count > a->directory_size / CENTRAL_SIZE)
        return fail_as_damaged(a, "its directory does not lie in the file");
    return XRAY_OK;
}

/* Replaces the fields that do not fit into 32 bits, which the extra field holds
 * in the order of `fields`; returns -1 if one is missing. */
static int read_wide_fields(const unsigned char *extra, uint64_t size,
                            uint64_t *const fields[3])
{
    const unsigned char *end = extra + size;
    const unsigned char *at = NULL;
    while (!at && end - extra >= 4) {
        uint64_t length = read_number(extra + 2, 2);
        if (length > (uint64_t)(end - extra - 4))
            return -1;
        if (read_number(extra, 2) == 1) {
            at = extra + 4;
            end = at + length;
        }
        extra += 4 + length;
    }
    for (int i = 0; i < 3; i++) {
        if (*fields[i] != NARROW)
            continue;
        if (!at || end - at < 8)
            return -1;
        *fields[i] = read_number(at, 8);
        at += 8;
    }
    return 0;
}

/* Finds the entry's data behind its local header. */
static xray_status find_entry_data(const archive *a, uint64_t at,
                                   xm_zip_entry *entry)
{
    if (at > a->directory || a->directory - at < LOCAL_SIZE ||
        read_number(a->data + at, 4) != 0x04034b50u)
        return fail_for_entry(a, entry,
                              "its header is not where the "
                              "directory says");
    uint64_t name = read_number(a->data + at + 26, 2);
    uint64_t skip = LOCAL_SIZE + name + read_number(a->data + at + 28, 2);
    if (skip > a->directory - at || entry->size > a->directory - at - skip)
        return fail_for_entry(a, entry, "its data does not lie in the file");
    if (name != entry->name_size ||
        memcmp(a->data + at + LOCAL_SIZE, entry->name, name) != 0)
        return fail_for_entry(a, entry, "its header has another name");
    entry->data = a->data + at + skip;
    return XRAY_OK;
}

/* Reads the directory's record at *at, of which `left` bytes are there, and
 * moves on to the next. */
static xray_status read_directory_record(const archive *a,
                                         const unsigned char **at,
                                         xm_zip_entry *entry)
{
    const unsigned char *record = *at;
    uint64_t left =
        (uint64_t)(a->data + a->directory + a->directory_size - record);
    if (left < CENTRAL_SIZE || read_number(record, 4) != 0x02014b50u)
        return fail_as_damaged(a, "its directory ends too early");
    uint64_t name = read_number(record + 28, 2);
    uint64_t extra = read_number(record + 30, 2);
    uint64_t size = CENTRAL_SIZE + name + extra + read_number(record + 32, 2);
    if (size > left)
        return fail_as_damaged(a, "its directory ends too early");
    *entry = (xm_zip_entry){ .name = (const char *)record + CENTRAL_SIZE,
                             .name_size = name };
    uint64_t packed = read_number(record + 20, 4);
    uint64_t header = read_number(record + 42, 4);
    entry->size = read_number(record + 24, 4);
    uint64_t *const fields[3] = { &entry->size, &packed, &header };
    if (read_wide_fields(record + CENTRAL_SIZE + name, extra, fields))
        return fail_for_entry(a, entry, "its zip64 sizes are missing");
    if (read_number(record + 8, 2) & 1)
        return fail_for_entry(a, entry, "is encrypted");
    if (read_number(record + 10, 2) != 0 || packed != entry->size)
        return fail_for_entry(a, entry,
                              "is compressed, as in programs of TorchScript; "
                              "torch.save stores its entries");
    *at = record + size;
    return find_entry_data(a, header, entry);
}

static xray_status read_directory(const archive *a, xm_zip *zip)
{
    const unsigned char *at = a->data + a->directory;
    xray_status status = XRAY_OK;
    for (; !status && zip->count < a->count; zip->count++) {
        xm_zip_entry *entry = &zip->entries[zip->count];
        uint64_t other;
        status = read_directory_record(a, &at, entry);
        if (!status &&
            xr_map_get(zip->index, entry->name, entry->name_size, &other))
            status = fail_for_entry(a, entry, "the name occurs twice");
        if (!status &&
            xr_map_put(zip->index, entry->name, entry->name_size, zip->count))
            status =
                xr_fail(a->err, XRAY_E_NOMEM, "%s: out of memory", a->path);
    }
    return status;
}

xray_status xm_zip_read(const xr_map_file *file, const char *path, xr_err *err,
                        xm_zip *out)
{
    archive a = {
        .data = file->data, .size = file->size, .path = path, .err = err
    };
    *out = (xm_zip){ .count = 0 };
    xray_status status = find_directory(&a);
    if (status)
        return status;
    out->entries = xr_calloc((size_t)a.count, sizeof *out->entries);
    out->index = xr_map_new((size_t)a.count);
    if (!out->entries || !out->index)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    return read_directory(&a, out);
}

void xm_zip_free(xm_zip *zip)
{
    free(zip->entries);
    xr_map_free(zip->index);
    *zip = (xm_zip){ .count = 0 };
}

const xm_zip_entry *xm_zip_find(const xm_zip *zip, const char *name,
                                size_t size)
{
    uint64_t i;
    return xr_map_get(zip->index, name, size, &i) ? &zip->entries[i] : NULL;
}
