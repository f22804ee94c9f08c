/* SPDX-License-Identifier: Apache-2.0
 *
 * The little of protobuf's wire format that event files need (Google's
 * "Encoding" page): messages are sequences of fields, each a number with a wire
 * type, then a varint, 8 bytes, or bytes after their length.
 */
#ifndef TB_PROTOBUF_H
#define TB_PROTOBUF_H

#include "core/base/str.h"

/* ---- writing ------------------------------------------------------------- */

void tb_put_uint(xr_str *out, uint32_t field, uint64_t value);
void tb_put_double(xr_str *out, uint32_t field, double value);
void tb_put_bytes(xr_str *out, uint32_t field, const void *data, size_t size);
void tb_put_text(xr_str *out, uint32_t field, const char *text);
/* Begins a message in a field, and ends it: what was appended in between is
 * its content. */
size_t tb_open(xr_str *out, uint32_t field);
void tb_close(xr_str *out, size_t opened);

/* ---- reading ------------------------------------------------------------- */

enum { TB_VARINT = 0, TB_FIXED64 = 1, TB_BYTES = 2, TB_FIXED32 = 5 };

typedef struct tb_field {
    uint32_t number;
    uint32_t wire;             /* TB_VARINT, ... */
    uint64_t value;            /* of a varint */
    const unsigned char *data; /* [size] of TB_BYTES */
    size_t size;
} tb_field;

/* Reads the field at data[*at] and moves *at behind it. Returns 1, 0 at the
 * end, or -1 where the bytes are no field. */
int tb_next(const unsigned char *data, size_t size, size_t *at, tb_field *out);

#endif
