/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares the two layers of a file that torch.save wrote: a zip archive of
 * stored entries, and the pickle that says which tensors lie in them.
 */
#ifndef XM_TORCH_INTERNAL_H
#define XM_TORCH_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/map.h"
#include "model/hf/safetensors.h"

/* ---- the archive -------------------------------------------------------- */

typedef struct xm_zip_entry {
    const char *name; /* in the mapped file, without NUL */
    size_t name_size;
    const unsigned char *data;
    uint64_t size;
} xm_zip_entry;

typedef struct xm_zip {
    xm_zip_entry *entries;
    size_t count;
    xr_map *index; /* name to entry */
} xm_zip;

/* Reads the central directory, of zip64 as well. Every entry must be stored and
 * lie in the file. The caller calls xm_zip_free also after an error. */
xray_status xm_zip_read(const xr_map_file *file, const char *path, xr_err *err,
                        xm_zip *out);
void xm_zip_free(xm_zip *zip);
/* NULL if there is none. */
const xm_zip_entry *xm_zip_find(const xm_zip *zip, const char *name,
                                size_t size);

/* ---- the pickle --------------------------------------------------------- */

enum {
    XM_PICKLE_NONE,
    XM_PICKLE_BOOL,
    XM_PICKLE_INT,
    XM_PICKLE_REAL, /* its number is not kept */
    XM_PICKLE_TEXT,
    XM_PICKLE_TUPLE,
    XM_PICKLE_LIST, /* its items are not kept */
    XM_PICKLE_DICT,
    XM_PICKLE_GLOBAL,
    XM_PICKLE_STORAGE,
    XM_PICKLE_TENSOR,
    XM_PICKLE_MARK,
};

typedef struct xm_pickle_value {
    uint32_t kind;
    uint32_t size; /* of a text or tuple */
    union {
        int64_t number;
        const char *text; /* in the mapped file, without NUL */
        size_t index;     /* into the pool of the kind; of a tuple, the first
                           * of its items */
    } is;
} xm_pickle_value;

/* A member of a dict; `next` is the index + 1 of the member after it. */
typedef struct xm_pickle_pair {
    xm_pickle_value key;
    xm_pickle_value value;
    size_t next;
} xm_pickle_pair;

typedef struct xm_pickle_dict {
    size_t first; /* index + 1 of a pair; 0: empty */
    size_t last;
} xm_pickle_dict;

typedef struct xm_pickle_storage {
    xm_pickle_value key;
    uint32_t dtype; /* XM_ST_* */
    uint32_t width; /* bytes of an element */
    uint64_t count; /* elements */
} xm_pickle_storage;

typedef struct xm_pickle_tensor {
    size_t storage;
    uint64_t offset; /* in elements */
    uint32_t dims;
    uint64_t shape[XM_ST_DIMS];
    uint64_t stride[XM_ST_DIMS]; /* in elements */
} xm_pickle_tensor;

/* A growing array. */
typedef struct xm_pool {
    void *data;
    size_t count;
    size_t cap;
} xm_pool;

typedef struct xm_pickle {
    const char *where; /* "FILE: data.pkl" */
    xr_err *err;
    const unsigned char *start;
    const unsigned char *at;
    const unsigned char *end;
    xm_pool stack;    /* of xm_pickle_value */
    xm_pool memo;     /* of xm_pickle_value */
    xm_pool items;    /* of xm_pickle_value: those of tuples */
    xm_pool pairs;    /* of xm_pickle_pair */
    xm_pool dicts;    /* of xm_pickle_dict */
    xm_pool storages; /* of xm_pickle_storage */
    xm_pool tensors;  /* of xm_pickle_tensor */
    xm_pickle_value root;
} xm_pickle;

/* Runs the pickle of a state dict; `root` is its result. Memory is bounded by a
 * multiple of `size`. The caller calls xm_pickle_free also after an error. */
xray_status xm_pickle_read(const unsigned char *data, uint64_t size,
                           const char *where, xr_err *err, xm_pickle *out);
void xm_pickle_free(xm_pickle *pickle);
/* "an integer", for sentences. */
const char *xm_pickle_kind(uint32_t kind);

/* Appends a zeroed element; NULL when out of memory. */
void *xm_pool_add(xm_pool *pool, size_t size);
/* 1 if the value is this text. */
int xm_pickle_is(const xm_pickle_value *value, const char *text);

/* Carry out the two calls that do more than pass a value on: the reference to a
 * storage, and the tensor that lies in one. `args` is a tuple. */
xray_status xm_pickle_storage_of(xm_pickle *p, const xm_pickle_value *args,
                                 xm_pickle_value *out);
xray_status xm_pickle_tensor_of(xm_pickle *p, const xm_pickle_value *args,
                                xm_pickle_value *out);
/* Says that the pickle is refused, and at which byte. */
XRAY_PRINTF(2, 3)
xray_status xm_pickle_fail(xm_pickle *p, const char *fmt, ...);

/* A global that may be named. */
enum { XM_GLOBAL_DICT, XM_GLOBAL_TENSOR, XM_GLOBAL_PARAMETER, XM_GLOBAL_TYPE };
typedef struct xm_pickle_global {
    const char *module;
    const char *name;
    uint32_t is;    /* XM_GLOBAL_* */
    uint32_t dtype; /* of a type of storages */
    uint32_t width;
} xm_pickle_global;
/* The row of the table; NULL for a global that is refused. */
const xm_pickle_global *xm_pickle_global_at(size_t index);
/* The index of a global; SIZE_MAX if it is not one of the table. */
size_t xm_pickle_find_global(const xm_pickle_value *module,
                             const xm_pickle_value *name);

#endif
