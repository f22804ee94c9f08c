/* SPDX-License-Identifier: Apache-2.0
 *
 * Element types of safetensors by name.
 */
#ifndef XM_SAFETENSORS_INTERNAL_H
#define XM_SAFETENSORS_INTERNAL_H

#include "core/base/str.h"
#include "model/hf/safetensors.h"

/* XM_ST_*, the bits of an element and the name, which lasts; 0 for a name the
 * format does not know. */
uint32_t xm_st_dtype(const char *name, uint32_t *out_bits,
                     const char **out_name);

/* Name and bits of a convertible type, or NULL. */
const char *xm_st_dtype_name(uint32_t dtype, uint32_t *out_bits);

/* Bytes of a tensor to write. */
xray_status xm_st_item_bytes(const char *path, const xm_st_item *item,
                             xr_err *err, uint64_t *out);

/* xm_st_write with data by demand. */
xray_status xm_st_write_fed(const char *path, const xm_st_item *items,
                            size_t count, const char *const *metadata,
                            const xm_st_feed *feed, xr_err *err);

/* Length, JSON and spaces up to a multiple of 8. */
xray_status xm_st_header(xr_str *header, const char *path,
                         const xm_st_item *items, size_t count,
                         const char *const *metadata, xr_err *err);

/* ---- parts -------------------------------------------------------------- */

typedef struct xm_st_part {
    char *path;
    char *temp;
    xr_str header;
    uint64_t size;
    int fd; /* -1: not open */
} xm_st_part;

struct xm_st_parts {
    char *dir; /* of a model, else the file */
    const xm_st_item *items;
    size_t item_count;
    uint64_t max_shard; /* 0: one file that is no model */
    size_t *part_of;    /* [item_count] */
    uint64_t *at;       /* [item_count] in its file */
    xm_st_part *parts;
    size_t count;
};

/* `items` outlive the parts. */
xray_status xm_st_parts_new(const char *dir, const xm_st_item *items,
                            size_t count, xr_err *err, xm_st_parts **out);
/* A file with items [first, end). */
xray_status xm_st_parts_add(xm_st_parts *parts, const char *path,
                            const xm_st_item *items, size_t first, size_t end,
                            const char *const *metadata, xr_err *err);
/* Closes the temporaries and gives them their names. */
xray_status xm_st_parts_rename(xm_st_parts *parts, xr_err *err);

#endif
