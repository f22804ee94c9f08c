/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares what the readers and writers of safetensors share: element types,
 * headers and parts.
 */
#ifndef XM_SAFETENSORS_INTERNAL_H
#define XM_SAFETENSORS_INTERNAL_H

#include "core/base/json.h"
#include "core/base/map.h"
#include "core/base/str.h"
#include "model/hf/safetensors.h"

/* Returns XM_ST_*, or 0 for a name that the format does not know; sets the bits
 * of an element and a copy of the name with static lifetime. */
uint32_t xm_st_dtype(const char *name, uint32_t *out_bits,
                     const char **out_name);

/* Returns the name of a convertible type and sets its bits; NULL for other
 * types. */
const char *xm_st_dtype_name(uint32_t dtype, uint32_t *out_bits);

/* Computes the bytes of a tensor to write. */
xray_status xm_st_item_bytes(const char *path, const xm_st_item *item,
                             xr_err *err, uint64_t *out);

/* Makes a file's header: its length, JSON, and spaces up to a multiple of 8
 * bytes. */
xray_status xm_st_header(xr_str *header, const char *path,
                         const xm_st_item *items, size_t count,
                         const char *const *metadata, xr_err *err);

/* Lists the files that the "weight_map" of an index names, each once, in
 * `names`, which has room for one name per tensor. The names are borrowed from
 * the index; one that leads out of its folder is an error. */
xray_status xm_st_shard_names(const cJSON *map, const char *path, xr_err *err,
                              const char **names, size_t *count);
/* Checks that every tensor of the index is in the file that the index names;
 * `in` has the number of the file that holds a tensor. */
xray_status xm_st_check_index(const xr_map *in, const char *path,
                              const cJSON *map, const char *const *files,
                              xr_err *err);

/* ---- parts -------------------------------------------------------------- */

typedef struct xm_st_part {
    char *path;
    char *temp;
    xr_str header;
    uint64_t size;
    int fd; /* -1: not open */
} xm_st_part;

struct xm_st_parts {
    char *dir; /* of a model; otherwise the file */
    const xm_st_item *items;
    size_t item_count;
    uint64_t max_shard; /* 0: one file that is not a model's */
    size_t *part_of;    /* [item_count] */
    uint64_t *at;       /* [item_count] position of the item in its file */
    xm_st_part *parts;
    size_t count;
};

/* Makes parts without files. `items` must outlive them. */
xray_status xm_st_parts_new(const char *dir, const xm_st_item *items,
                            size_t count, xr_err *err, xm_st_parts **out);
/* Adds a file with items [first, end). */
xray_status xm_st_parts_add(xm_st_parts *parts, const char *path,
                            const xm_st_item *items, size_t first, size_t end,
                            const char *const *metadata, xr_err *err);
/* Renames the temporaries to their final names. */
xray_status xm_st_parts_rename(xm_st_parts *parts, xr_err *err);

#endif
