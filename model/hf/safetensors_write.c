/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes safetensors: the header, then the tensors in the order given.
 */
#include <string.h>

#include "core/base/file.h"
#include "core/base/map.h"
#include "core/base/str.h"
#include "model/hf/safetensors_internal.h"

/* Bytes between two looks at the stop. */
#define PIECE ((uint64_t)4 << 20)

static void put_metadata(xr_str *header, const char *const *metadata)
{
    xr_str_puts(header, "\"__metadata__\":{");
    for (size_t i = 0; metadata[i]; i += 2) {
        xr_str_puts(header, i ? "," : "");
        xr_str_json(header, metadata[i], strlen(metadata[i]));
        xr_str_puts(header, ":");
        xr_str_json(header, metadata[i + 1], strlen(metadata[i + 1]));
    }
    xr_str_puts(header, "}");
}

xray_status xm_st_item_bytes(const char *path, const xm_st_item *item,
                             xr_err *err, uint64_t *out)
{
    uint32_t bits;
    if (!xm_st_dtype_name(item->dtype, &bits) || item->dims > XM_ST_DIMS)
        return xr_fail(err, XRAY_E_ARG,
                       "%s: tensor \"%.200s\": its type or number of "
                       "dimensions cannot be written",
                       path, item->name);
    uint64_t bytes = bits / 8;
    for (uint32_t d = 0; d < item->dims; d++) {
        uint64_t dim = item->shape[d];
        /* Offsets must be exact as JSON numbers, which are doubles. */
        if (dim && bytes > (UINT64_C(1) << 53) / dim)
            return xr_fail(err, XRAY_E_RANGE,
                           "%s: tensor \"%.200s\": the shape is too large",
                           path, item->name);
        bytes *= dim;
    }
    *out = bytes;
    return XRAY_OK;
}

static void put_item_entry(xr_str *header, const xm_st_item *item,
                           uint64_t from, uint64_t to)
{
    uint32_t bits;
    xr_str_json(header, item->name, strlen(item->name));
    xr_str_printf(header, ":{\"dtype\":\"%s\",\"shape\":[",
                  xm_st_dtype_name(item->dtype, &bits));
    for (uint32_t d = 0; d < item->dims; d++)
        xr_str_printf(header, "%s%llu", d ? "," : "",
                      (unsigned long long)item->shape[d]);
    xr_str_printf(header, "],\"data_offsets\":[%llu,%llu]}",
                  (unsigned long long)from, (unsigned long long)to);
}

static xray_status put_item_entries(xr_str *header, const char *path,
                                    const xm_st_item *items, size_t count,
                                    xr_err *err)
{
    xr_map *seen = xr_map_new(count);
    xray_status status =
        seen ? XRAY_OK : xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    uint64_t at = 0;
    for (size_t i = 0; !status && i < count; i++) {
        uint64_t bytes = 0;
        uint64_t other;
        size_t size = strlen(items[i].name);
        if (xr_map_get(seen, items[i].name, size, &other))
            status = xr_fail(err, XRAY_E_ARG,
                             "%s: tensor \"%.200s\": the name occurs twice",
                             path, items[i].name);
        else if (xr_map_put(seen, items[i].name, size, i))
            status = xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
        if (!status)
            status = xm_st_item_bytes(path, &items[i], err, &bytes);
        if (status)
            break;
        xr_str_puts(header, header->size > 9 ? "," : "");
        put_item_entry(header, &items[i], at, at + bytes);
        at += bytes;
    }
    xr_map_free(seen);
    return status;
}

xray_status xm_st_header(xr_str *header, const char *path,
                         const xm_st_item *items, size_t count,
                         const char *const *metadata, xr_err *err)
{
    xr_str_append(header, "\0\0\0\0\0\0\0\0{", 9);
    if (metadata)
        put_metadata(header, metadata);
    xray_status status = put_item_entries(header, path, items, count, err);
    if (status)
        return status;
    xr_str_puts(header, "}");
    while (header->size % 8 && !header->failed)
        xr_str_puts(header, " ");
    if (header->failed)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    uint64_t length = header->size - 8;
    for (int i = 0; i < 8; i++)
        header->data[i] = (char)(length >> (8 * i) & 255);
    return XRAY_OK;
}

static xray_status append_data(xr_file_out *file, const char *data,
                               uint64_t bytes, const xray_call_service *calls,
                               xr_err *err)
{
    xray_status status = XRAY_OK;
    for (uint64_t at = 0; at < bytes && status == XRAY_OK; at += PIECE) {
        status = xr_stop_check(calls, err);
        if (status == XRAY_OK)
            status = xr_file_append(
                file, data + at,
                (size_t)(bytes - at < PIECE ? bytes - at : PIECE), err);
    }
    return status;
}

xray_status xm_st_write_fed(const char *path, const xm_st_item *items,
                            size_t count, const char *const *metadata,
                            const xm_st_feed *feed, xr_err *err)
{
    xr_str header = { 0 };
    xr_file_out file;
    xray_status status =
        xm_st_header(&header, path, items, count, metadata, err);
    if (!status)
        status = xr_file_begin(path, err, &file);
    if (status) {
        xr_str_free(&header);
        return status;
    }
    status = xr_file_append(&file, header.data, header.size, err);
    xr_str_free(&header);
    for (size_t i = 0; !status && i < count; i++) {
        uint64_t bytes = 0;
        const void *data = NULL;
        status = xm_st_item_bytes(path, &items[i], err, &bytes);
        if (!status)
            status = feed->data(feed->ctx, i, err, &data);
        if (!status)
            status = append_data(&file, data, bytes, feed->calls, err);
    }
    if (!status)
        return xr_file_finish(&file, err);
    xr_file_drop(&file);
    return status;
}

typedef struct own_items {
    const xm_st_item *items;
} own_items;

static xray_status feed_own_data(void *ctx, size_t i, xr_err *err,
                                 const void **out)
{
    (void)err;
    *out = ((const own_items *)ctx)->items[i].data;
    return XRAY_OK;
}

xray_status xm_st_write(const char *path, const xm_st_item *items, size_t count,
                        const char *const *metadata, xr_err *err)
{
    own_items own = { items };
    const xm_st_feed feed = { feed_own_data, &own };
    return xm_st_write_fed(path, items, count, metadata, &feed, err);
}
