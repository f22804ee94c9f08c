/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes and reads fields of protobuf messages.
 */
#include "plugins/tracker-tensorboard/protobuf.h"

#include <string.h>

/* ---- writing ------------------------------------------------------------- */

/* A varint has 7 bits in each byte, the lowest first. */
static size_t write_varint(unsigned char out[10], uint64_t value)
{
    size_t n = 0;
    while (value > 127) {
        out[n++] = (unsigned char)(value & 127u) | 128u;
        value >>= 7;
    }
    out[n++] = (unsigned char)value;
    return n;
}

static void put_varint(xr_str *out, uint64_t value)
{
    unsigned char bytes[10];
    xr_str_append(out, bytes, write_varint(bytes, value));
}

static void put_key(xr_str *out, uint32_t field, uint32_t wire)
{
    put_varint(out, (uint64_t)field << 3 | wire);
}

void tb_put_uint(xr_str *out, uint32_t field, uint64_t value)
{
    put_key(out, field, TB_VARINT);
    put_varint(out, value);
}

void tb_put_double(xr_str *out, uint32_t field, double value)
{
    put_key(out, field, TB_FIXED64);
    xr_str_append(out, &value, sizeof(value));
}

void tb_put_bytes(xr_str *out, uint32_t field, const void *data, size_t size)
{
    put_key(out, field, TB_BYTES);
    put_varint(out, size);
    xr_str_append(out, data, size);
}

void tb_put_text(xr_str *out, uint32_t field, const char *text)
{
    tb_put_bytes(out, field, text, strlen(text));
}

size_t tb_open(xr_str *out, uint32_t field)
{
    put_key(out, field, TB_BYTES);
    return out->size;
}

void tb_close(xr_str *out, size_t opened)
{
    unsigned char bytes[10];
    if (out->failed)
        return;
    const size_t size = out->size - opened;
    const size_t length = write_varint(bytes, size);
    xr_str_append(out, bytes, length); /* makes room for the length */
    if (out->failed)
        return;
    memmove(out->data + opened + length, out->data + opened, size);
    memcpy(out->data + opened, bytes, length);
}

/* ---- reading ------------------------------------------------------------- */

static int read_varint(const unsigned char *data, size_t size, size_t *at,
                       uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (*at == size)
            return -1;
        unsigned char byte = data[(*at)++];
        *out |= (uint64_t)(byte & 127u) << shift;
        if (!(byte & 128u))
            return 0;
    }
    return -1;
}

/* Reads what follows the key of a field. */
static int read_content(const unsigned char *data, size_t size, size_t *at,
                        tb_field *out)
{
    uint64_t length = 0;
    switch (out->wire) {
    case TB_VARINT:
        return read_varint(data, size, at, &out->value);
    case TB_FIXED64:
        length = 8;
        break;
    case TB_FIXED32:
        length = 4;
        break;
    case TB_BYTES:
        if (read_varint(data, size, at, &length))
            return -1;
        break;
    default:
        return -1;
    }
    if (length > size - *at)
        return -1;
    out->data = data + *at;
    out->size = (size_t)length;
    *at += (size_t)length;
    return 0;
}

int tb_next(const unsigned char *data, size_t size, size_t *at, tb_field *out)
{
    uint64_t key = 0;
    if (*at == size)
        return 0;
    if (read_varint(data, size, at, &key) || key >> 3 == 0 || key >> 32)
        return -1;
    *out = (tb_field){ .number = (uint32_t)(key >> 3),
                       .wire = (uint32_t)(key & 7u) };
    return read_content(data, size, at, out) ? -1 : 1;
}
