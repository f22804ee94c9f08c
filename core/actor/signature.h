/* SPDX-License-Identifier: Apache-2.0
 *
 * Signatures of methods, values by their letters, and messages made of them.
 *
 * A message is a run of msgpack objects, none of them nested: kind, call,
 * name, then the values: u i U I as integers, d as float 64, s as str that ends
 * with its NUL, b as bin, m as two integers (1: the sender created it, 0: the
 * receiver; and its id) or nil for none. Decoding allocates nothing, takes any
 * bytes, and what it gives points into the message.
 */
#ifndef XR_SIGNATURE_H
#define XR_SIGNATURE_H

#include "core/actor/actor.h"

#define XR_VALUES (XR_ACTOR_LETTERS + 1) /* a reply has its status in front */

typedef struct xr_signature {
    uint32_t in_count;
    uint32_t out_count;
    char in[XR_ACTOR_LETTERS + 1];
    char out[XR_ACTOR_LETTERS + 1];
} xr_signature;

xray_status xr_signature_parse(const char *text, xr_err *err,
                               xr_signature *out);

/* A region as it goes over the wire. */
typedef struct xr_region_name {
    uint64_t id;
    uint32_t present; /* 0: none */
    uint32_t senders; /* 1: the sender of the message created it */
} xr_region_name;

typedef struct xr_bytes {
    const void *data;
    uint64_t size;
} xr_bytes;

typedef union xr_value {
    uint32_t u;
    int32_t i;
    uint64_t U;
    int64_t I;
    double d;
    const char *s;
    xr_bytes b;
    xr_region_name m;
} xr_value;

enum {
    XR_MESSAGE_CREATE,  /* class; name, index, count, text */
    XR_MESSAGE_CALL,    /* method; its ins */
    XR_MESSAGE_REPLY,   /* ""; status, the method's outs */
    XR_MESSAGE_ERROR,   /* ""; status, text */
    XR_MESSAGE_RELEASE, /* ""; the receiver's region */
    XR_MESSAGE_STOP,
    XR_MESSAGE_KINDS
};
#define XR_CREATE_LETTERS "suus"
#define XR_ERROR_LETTERS "is"

typedef struct xr_message {
    uint32_t kind;
    uint32_t reserved;
    uint64_t call;
    const char *name;
    const char *values; /* not decoded yet */
    size_t size;
} xr_message;

/* Replaces what is in `out`. */
xray_status xr_message_encode(const xr_message *header, const char *letters,
                              const xr_value *values, xr_err *err, xr_str *out);
xray_status xr_message_header(const void *data, size_t size, xr_err *err,
                              xr_message *out);
/* The values; one more, one less or another type than `letters` is an error. */
xray_status xr_message_values(const xr_message *message, const char *letters,
                              xr_err *err, xr_value *out);

#endif
