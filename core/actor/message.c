/* SPDX-License-Identifier: Apache-2.0
 *
 * Encodes and decodes messages between a caller and an actor as msgpack
 * objects.
 */
#include <msgpack.h>
#include <string.h>

#include "core/actor/signature.h"

static int append_packed(void *data, const char *bytes, size_t size)
{
    xr_str *out = data;
    xr_str_append(out, bytes, size);
    return out->failed ? -1 : 0;
}

static int pack_text(msgpack_packer *pk, const char *text)
{
    size_t size = strlen(text) + 1;
    return msgpack_pack_str(pk, size) || msgpack_pack_str_body(pk, text, size);
}

static int pack_region(msgpack_packer *pk, const xr_region_name *ref)
{
    if (!ref->present)
        return msgpack_pack_nil(pk);
    return msgpack_pack_uint32(pk, ref->senders) ||
           msgpack_pack_uint64(pk, ref->id);
}

static int pack_value(msgpack_packer *pk, char letter, const xr_value *value)
{
    switch (letter) {
    case 'u':
        return msgpack_pack_uint32(pk, value->u);
    case 'i':
        return msgpack_pack_int32(pk, value->i);
    case 'U':
        return msgpack_pack_uint64(pk, value->U);
    case 'I':
        return msgpack_pack_int64(pk, value->I);
    case 'd':
        return msgpack_pack_double(pk, value->d);
    case 's':
        return pack_text(pk, value->s);
    case 'b':
        return msgpack_pack_bin(pk, value->b.size) ||
               (value->b.size &&
                msgpack_pack_bin_body(pk, value->b.data, value->b.size));
    default:
        return pack_region(pk, &value->m);
    }
}

xray_status xr_message_encode(const xr_message *header, const char *letters,
                              const xr_value *values, xr_err *err, xr_str *out)
{
    msgpack_packer pk;
    out->size = 0;
    out->failed = 0;
    msgpack_packer_init(&pk, out, append_packed);
    int bad = msgpack_pack_uint32(&pk, header->kind) ||
              msgpack_pack_uint64(&pk, header->call) ||
              pack_text(&pk, header->name);
    for (size_t i = 0; !bad && letters[i]; i++) {
        if (letters[i] == 'b' && values[i].b.size > UINT32_MAX)
            return xr_fail(err, XRAY_E_RANGE,
                           "a message cannot carry %llu bytes: pass more than "
                           "4 GiB in a region",
                           (unsigned long long)values[i].b.size);
        bad = pack_value(&pk, letters[i], &values[i]);
    }
    if (bad)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for a message");
    return XRAY_OK;
}

/* The first byte gives the type. Arrays, maps and extensions are refused, since
 * msgpack-c would reserve memory for as many elements as they claim. */
static int is_scalar_type(unsigned char first)
{
    return first <= 0x7f || (first >= 0xa0 && first <= 0xc0) ||
           (first >= 0xc4 && first <= 0xc6) || first == 0xcb ||
           (first >= 0xcc && first <= 0xd3) ||
           (first >= 0xd9 && first <= 0xdb) || first >= 0xe0;
}

/* Reads the object at *at and moves past it; 0 if the bytes are no object of a
 * type that messages use. */
static int next_object(const char **at, size_t *size, msgpack_object *out)
{
    msgpack_unpacked one;
    size_t used = 0;
    if (!*size || !is_scalar_type((unsigned char)**at))
        return 0;
    msgpack_unpacked_init(&one);
    msgpack_unpack_return got = msgpack_unpack_next(&one, *at, *size, &used);
    *out = one.data;
    msgpack_unpacked_destroy(&one); /* a scalar points into the message */
    if (got != MSGPACK_UNPACK_SUCCESS)
        return 0;
    *at += used;
    *size -= used;
    return 1;
}

static int is_unsigned(const msgpack_object *object, uint64_t most)
{
    return object->type == MSGPACK_OBJECT_POSITIVE_INTEGER &&
           object->via.u64 <= most;
}

static int is_signed(const msgpack_object *object, int64_t least, int64_t most)
{
    if (object->type == MSGPACK_OBJECT_NEGATIVE_INTEGER)
        return object->via.i64 >= least;
    return is_unsigned(object, (uint64_t)most);
}

static int is_text(const msgpack_object *object)
{
    uint32_t size = object->via.str.size;
    return object->type == MSGPACK_OBJECT_STR && size &&
           memchr(object->via.str.ptr, 0, size) ==
               object->via.str.ptr + size - 1;
}

static int read_region_name(const char **at, size_t *size, xr_region_name *out)
{
    msgpack_object object;
    *out = (xr_region_name){ 0 };
    if (!next_object(at, size, &object))
        return 0;
    if (object.type == MSGPACK_OBJECT_NIL)
        return 1;
    if (!is_unsigned(&object, 1))
        return 0;
    out->present = 1;
    out->senders = (uint32_t)object.via.u64;
    if (!next_object(at, size, &object) || !is_unsigned(&object, UINT64_MAX))
        return 0;
    out->id = object.via.u64;
    return 1;
}

/* 1 and the value, or 0 if the object has another type. */
static int convert_value(const msgpack_object *object, char letter,
                         xr_value *out)
{
    switch (letter) {
    case 'u':
        out->u = (uint32_t)object->via.u64;
        return is_unsigned(object, UINT32_MAX);
    case 'i':
        out->i = (int32_t)object->via.i64;
        return is_signed(object, INT32_MIN, INT32_MAX);
    case 'U':
        out->U = object->via.u64;
        return is_unsigned(object, UINT64_MAX);
    case 'I':
        out->I = object->via.i64;
        return is_signed(object, INT64_MIN, INT64_MAX);
    case 'd':
        out->d = object->via.f64;
        return object->type == MSGPACK_OBJECT_FLOAT64;
    case 's':
        out->s = object->via.str.ptr;
        return is_text(object);
    default:
        out->b.data = object->via.bin.ptr;
        out->b.size = object->via.bin.size;
        return object->type == MSGPACK_OBJECT_BIN;
    }
}

static int read_value(const char **at, size_t *size, char letter, xr_value *out)
{
    msgpack_object object;
    if (letter == 'm')
        return read_region_name(at, size, &out->m);
    return next_object(at, size, &object) &&
           convert_value(&object, letter, out);
}

xray_status xr_message_header(const void *data, size_t size, xr_err *err,
                              xr_message *out)
{
    const char *at = data;
    xr_value kind;
    xr_value call;
    xr_value name;
    if (!read_value(&at, &size, 'u', &kind) ||
        !read_value(&at, &size, 'U', &call) ||
        !read_value(&at, &size, 's', &name) || kind.u >= XR_MESSAGE_KINDS)
        return xr_fail(err, XRAY_E_ARG,
                       "a message does not begin with kind, call and name");
    *out = (xr_message){ kind.u, 0, call.U, name.s, at, size };
    return XRAY_OK;
}

xray_status xr_message_values(const xr_message *message, const char *letters,
                              xr_err *err, xr_value *out)
{
    const char *at = message->values;
    size_t size = message->size;
    for (size_t i = 0; letters[i]; i++)
        if (!read_value(&at, &size, letters[i], &out[i]))
            return xr_fail(err, XRAY_E_ARG,
                           "value %zu of the message is not of type '%c' "
                           "(expected \"%s\")",
                           i + 1, letters[i], letters);
    if (size)
        return xr_fail(err, XRAY_E_ARG,
                       "%zu bytes of the message are left over "
                       "(expected \"%s\")",
                       size, letters);
    return XRAY_OK;
}
