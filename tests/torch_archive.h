/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes files as torch.save does: the pickle of a state dict of protocol 2 or
 * 4, and a zip archive of stored entries.
 */
#ifndef XR_TEST_TORCH_ARCHIVE_H
#define XR_TEST_TORCH_ARCHIVE_H

#include <stdint.h>
#include <string.h>

#include "core/base/str.h"

/* ---- the archive -------------------------------------------------------- */

typedef struct torch_archive {
    xr_str file;
    xr_str directory;
    uint64_t count;
    uint64_t hole; /* bytes that `file` lacks before what comes now */
    /* Entries that are added have these fields. */
    unsigned method;
    unsigned flags;
    uint64_t more_size; /* added to the size that the directory tells */
    int wide;           /* 1: sizes in fields of zip64, as PyTorch has them */
} torch_archive;

static inline void torch_number(xr_str *s, uint64_t value, unsigned bytes)
{
    for (; bytes; bytes--, value >>= 8)
        xr_str_append(s, &(char){ (char)(value & 255) }, 1);
}

/* Sizes and position of an entry, narrow or in the extra field. */
static inline void torch_directory_entry(torch_archive *a, const char *name,
                                         uint64_t size, uint64_t at)
{
    xr_str *d = &a->directory;
    uint64_t narrow = a->wide ? 0xffffffffu : size;
    torch_number(d, 0x02014b50u, 4);
    torch_number(d, 0, 4);
    torch_number(d, a->flags, 2);
    torch_number(d, a->method, 2);
    torch_number(d, 0, 8);
    torch_number(d, narrow, 4);
    torch_number(d, narrow, 4);
    torch_number(d, strlen(name), 2);
    torch_number(d, a->wide ? 28 : 0, 2);
    torch_number(d, 0, 10);
    torch_number(d, a->wide ? 0xffffffffu : at, 4);
    xr_str_puts(d, name);
    if (!a->wide)
        return;
    torch_number(d, 1, 2);
    torch_number(d, 24, 2);
    torch_number(d, size, 8);
    torch_number(d, size, 8);
    torch_number(d, at, 8);
}

static inline void torch_add(torch_archive *a, const char *name,
                             const void *data, size_t size)
{
    uint64_t at = a->hole + a->file.size;
    torch_number(&a->file, 0x04034b50u, 4);
    torch_number(&a->file, 0, 22);
    torch_number(&a->file, strlen(name), 2);
    torch_number(&a->file, 3, 2);
    xr_str_puts(&a->file, name);
    xr_str_append(&a->file, "pad", 3);
    xr_str_append(&a->file, data, size);
    torch_directory_entry(a, name, size + a->more_size, at);
    a->count++;
}

/* Appends the directory and its records of the end. */
static inline void torch_finish(torch_archive *a)
{
    uint64_t at = a->hole + a->file.size;
    uint64_t size = a->directory.size;
    xr_str_append(&a->file, a->directory.data, a->directory.size);
    uint64_t end = a->hole + a->file.size;
    if (a->wide) {
        torch_number(&a->file, 0x06064b50u, 4);
        torch_number(&a->file, 44, 8);
        torch_number(&a->file, 0, 12);
        torch_number(&a->file, a->count, 8);
        torch_number(&a->file, a->count, 8);
        torch_number(&a->file, size, 8);
        torch_number(&a->file, at, 8);
        torch_number(&a->file, 0x07064b50u, 4);
        torch_number(&a->file, 0, 4);
        torch_number(&a->file, end, 8);
        torch_number(&a->file, 1, 4);
    }
    torch_number(&a->file, 0x06054b50u, 4);
    torch_number(&a->file, 0, 4);
    torch_number(&a->file, a->wide ? 0xffff : a->count, 2);
    torch_number(&a->file, a->wide ? 0xffff : a->count, 2);
    torch_number(&a->file, a->wide ? 0xffffffffu : size, 4);
    torch_number(&a->file, a->wide ? 0xffffffffu : at, 4);
    torch_number(&a->file, 0, 2);
}

static inline void torch_archive_free(torch_archive *a)
{
    xr_str_free(&a->file);
    xr_str_free(&a->directory);
}

/* ---- the pickle --------------------------------------------------------- */

typedef struct torch_tensor {
    const char *name;
    const char *type; /* "FloatStorage" */
    const char *key;
    int64_t elements; /* of the storage */
    int64_t offset;
    size_t dims;
    int64_t shape[9];
    int64_t stride[9];
} torch_tensor;

static inline void torch_text(xr_str *s, const char *text)
{
    xr_str_puts(s, "X");
    torch_number(s, strlen(text), 4);
    xr_str_puts(s, text);
}

/* Appends an integer as the long of any size that pickles know. */
static inline void torch_integer(xr_str *s, int64_t value)
{
    xr_str_append(s, "\x8a\x08", 2);
    torch_number(s, (uint64_t)value, 8);
}

static inline void torch_extents(xr_str *s, const int64_t *values, size_t count)
{
    xr_str_puts(s, "(");
    for (size_t i = 0; i < count; i++)
        torch_integer(s, values[i]);
    xr_str_puts(s, "t");
}

static inline void torch_put_tensor(xr_str *s, const torch_tensor *t)
{
    xr_str_puts(s, "ctorch._utils\n_rebuild_tensor_v2\n((");
    torch_text(s, "storage");
    xr_str_printf(s, "ctorch\n%s\n", t->type);
    torch_text(s, t->key);
    torch_text(s, "cpu");
    torch_integer(s, t->elements);
    xr_str_puts(s, "tQ");
    torch_integer(s, t->offset);
    torch_extents(s, t->shape, t->dims);
    torch_extents(s, t->stride, t->dims);
    xr_str_puts(s, "\x89"
                   "ccollections\nOrderedDict\n)RtR");
}

/* The pickle of an OrderedDict of tensors. */
static inline void torch_state(xr_str *s, const torch_tensor *tensors,
                               size_t count)
{
    xr_str_append(s,
                  "\x80\x02"
                  "ccollections\nOrderedDict\n)Rq\0(",
                  32);
    for (size_t i = 0; i < count; i++) {
        torch_text(s, tensors[i].name);
        torch_put_tensor(s, &tensors[i]);
    }
    xr_str_puts(s, "u.");
}

#endif
