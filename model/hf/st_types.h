/* SPDX-License-Identifier: Apache-2.0
 *
 * Element types of safetensors by name.
 */
#ifndef XM_ST_TYPES_H
#define XM_ST_TYPES_H

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

#endif
