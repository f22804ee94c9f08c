/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads safetensors files through memory maps, and writes them atomically.
 */
#ifndef XM_SAFETENSORS_H
#define XM_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/services.h"

/* Element types of the format, equal to XRAY_F32 etc. where those exist. */
#define XM_ST_F32 1u
#define XM_ST_BF16 2u
#define XM_ST_F16 3u
#define XM_ST_F64 4u
#define XM_ST_I64 5u
#define XM_ST_I32 6u
#define XM_ST_I16 7u
#define XM_ST_I8 8u
#define XM_ST_U8 9u
#define XM_ST_BOOL 10u
#define XM_ST_OTHER \
    15u /* known to the format but neither converted nor written */

#define XM_ST_DIMS 8

typedef struct xm_st_tensor {
    const char *name; /* owned by the file */
    const char *type; /* the format's name for `dtype` */
    uint32_t dtype;
    uint32_t dims;
    uint64_t shape[XM_ST_DIMS];
    uint64_t count; /* elements */
    uint64_t bytes;
    const void *data; /* in the mapped file; may be unaligned */
} xm_st_tensor;

typedef struct xm_st xm_st;

/* Opens one file, or all shards: `path` is a .safetensors file, or a model
 * directory with model.safetensors (which takes precedence) or
 * model.safetensors.index.json. Every malformed file is refused with one
 * sentence that names file and tensor. So is an index whose tensors are not in
 * the files it names, or that names files outside its folder. */
xray_status xm_st_open(const char *path, xr_err *err, xm_st **out);
void xm_st_close(xm_st *st); /* accepts NULL */
size_t xm_st_count(const xm_st *st);
const xm_st_tensor *xm_st_at(const xm_st *st, size_t i);
const xm_st_tensor *xm_st_find(const xm_st *st, const char *name);
/* The value of a key of __metadata__, or NULL. */
const char *xm_st_metadata(const xm_st *st, const char *key);

/* Reads elements [first, first + count) as floats. F32, BF16, F16 and F64 are
 * converted; other types are refused by tensor and type. `out` holds `count`
 * floats. */
xray_status xm_st_read_f32(const xm_st_tensor *tensor, uint64_t first,
                           uint64_t count, float *out, xr_err *err);

/* One tensor to write; `data` holds its elements in the type `dtype`. */
typedef struct xm_st_item {
    const char *name;
    uint32_t dtype;
    uint32_t dims;
    uint64_t shape[XM_ST_DIMS];
    const void *data;
} xm_st_item;

/* Supplies the data of item i when it is written; the data stays valid until
 * the next call. */
typedef struct xm_st_feed {
    xray_status (*data)(void *ctx, size_t i, xr_err *err,
                        const void **out_data);
    void *ctx;
    const xray_call_service *calls; /* NULL: writing never ends early */
} xm_st_feed;

/* Writes the tensors in the order given, the first at a multiple of 8 bytes.
 * The file is written under a temporary name, synced and renamed. `metadata` is
 * a list key, value, ..., NULL; or NULL. */
xray_status xm_st_write(const char *path, const xm_st_item *items, size_t count,
                        const char *const *metadata, xr_err *err);
/* The same with data supplied by `feed`. */
xray_status xm_st_write_fed(const char *path, const xm_st_item *items,
                            size_t count, const char *const *metadata,
                            const xm_st_feed *feed, xr_err *err);

/* The default limit of a shard's size. */
#define XM_ST_SHARD_BYTES UINT64_C(5000000000)

/* Writes the tensors as the weights of the model directory `dir`:
 * model.safetensors, or, where they take more than `max_shard` bytes, shards
 * model-00001-of-0000N.safetensors, cut between tensors in the order given, and
 * model.safetensors.index.json. The metadata key "format" is "pt". Data comes
 * from `feed`, one tensor at a time; `data` of the items is not read. Earlier
 * weights are removed. If the process is killed at any instant, the directory
 * holds the old weights, the new ones, or (when shards replace shards) neither,
 * but never a mixture. */
xray_status xm_st_write_model(const char *dir, const xm_st_item *items,
                              size_t count, uint64_t max_shard,
                              const xm_st_feed *feed, xr_err *err);

/* Files that several ranks write together, each writing the bytes it has. Every
 * rank makes the same parts from the same items, whose data is not read. One
 * rank begins: it creates temporaries of full size with their headers. After
 * that all ranks write and sync. After the last sync one rank commits (renames
 * the temporaries into place) or drops them. The files equal those of
 * xm_st_write and xm_st_write_model, byte for byte. */
typedef struct xm_st_parts xm_st_parts;
/* Parts of one file. */
xray_status xm_st_parts_file(const char *path, const xm_st_item *items,
                             size_t count, const char *const *metadata,
                             xr_err *err, xm_st_parts **out);
/* Parts of the weights of a model directory. */
xray_status xm_st_parts_model(const char *dir, const xm_st_item *items,
                              size_t count, uint64_t max_shard, xr_err *err,
                              xm_st_parts **out);
void xm_st_parts_close(xm_st_parts *parts); /* accepts NULL */
xray_status xm_st_parts_begin(xm_st_parts *parts, xr_err *err);
/* Writes bytes [at, at + size) of item i. */
xray_status xm_st_parts_write(xm_st_parts *parts, size_t i, uint64_t at,
                              const void *data, size_t size, xr_err *err);
xray_status xm_st_parts_sync(xm_st_parts *parts, xr_err *err);
xray_status xm_st_parts_commit(xm_st_parts *parts, xr_err *err);
void xm_st_parts_drop(xm_st_parts *parts); /* removes the temporaries */

/* Converts between fp32 and the 16-bit types, rounding to nearest even. */
float xm_bf16_to_f32(uint16_t bits);
float xm_f16_to_f32(uint16_t bits);
uint16_t xm_f32_to_bf16(float value);
uint16_t xm_f32_to_f16(float value);

#endif
