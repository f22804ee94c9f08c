/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors files: reading by memory map, writing whole.
 */
#ifndef XM_SAFETENSORS_H
#define XM_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

/* Element types as the format spells them; XRAY_F32 etc. where they match. */
#define XM_ST_F32 1u
#define XM_ST_BF16 2u
#define XM_ST_F16 3u
#define XM_ST_F64 4u
#define XM_ST_I64 5u
#define XM_ST_I32 6u
#define XM_ST_OTHER 15u /* known to the format, not converted */

#define XM_ST_DIMS 8

typedef struct xm_st_tensor {
    const char *name; /* owned by the file */
    uint32_t dtype;
    uint32_t dims;
    uint64_t shape[XM_ST_DIMS];
    uint64_t count; /* elements */
    uint64_t bytes;
    const void *data; /* in the map; may be unaligned */
} xm_st_tensor;

typedef struct xm_st xm_st;

/* Opens one file, or all shards: `path` is a .safetensors file, or a model
 * directory with model.safetensors or model.safetensors.index.json. Every
 * malformed file is refused with one sentence naming file and tensor. */
xray_status xm_st_open(const char *path, xr_err *err, xm_st **out);
void xm_st_close(xm_st *st); /* accepts NULL */
size_t xm_st_count(const xm_st *st);
const xm_st_tensor *xm_st_at(const xm_st *st, size_t i);
const xm_st_tensor *xm_st_find(const xm_st *st, const char *name);
/* Value of __metadata__, or NULL. */
const char *xm_st_metadata(const xm_st *st, const char *key);

/* Elements [first, first + count) as floats; F32, BF16, F16 and F64 convert,
 * others are refused by tensor and type. `out` holds `count` floats. */
xray_status xm_st_read_f32(const xm_st_tensor *tensor, uint64_t first,
                           uint64_t count, float *out, xr_err *err);

/* One tensor to write: `data` holds its elements in its type. */
typedef struct xm_st_item {
    const char *name;
    uint32_t dtype;
    uint32_t dims;
    uint64_t shape[XM_ST_DIMS];
    const void *data;
} xm_st_item;

/* Writes the tensors in the order given, the first at a multiple of 8 bytes,
 * through a temporary beside the file, synced and renamed. `metadata` is an
 * even list key, value, ..., NULL; or NULL. */
xray_status xm_st_write(const char *path, const xm_st_item *items, size_t count,
                        const char *const *metadata, xr_err *err);

/* Conversions between fp32 and the 16-bit types, to nearest even. */
float xm_bf16_to_f32(uint16_t bits);
float xm_f16_to_f32(uint16_t bits);
uint16_t xm_f32_to_bf16(float value);
uint16_t xm_f32_to_f16(float value);

#endif
