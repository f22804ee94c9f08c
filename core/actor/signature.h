/* SPDX-License-Identifier: Apache-2.0
 *
 * Signatures of methods, and the messages that carry their values.
 *
 * A message is a sequence of msgpack objects without nesting: kind, call, name
 * and the values. u i U I are integers, d is a float 64, s a str that ends with
 * its NUL, b a bin; m is two integers, 1 if the sender created the region and 0
 * if the receiver did, and its id; no region is nil. Decoding accepts any
 * bytes, allocates nothing, and its results point into the message.
 */
#ifndef XR_SIGNATURE_H
#define XR_SIGNATURE_H

#include "core/actor/actor.h"

#define XR_VALUES (XR_ACTOR_LETTERS + 1) /* a reply begins with its status */

typedef struct xr_signature {
    uint32_t in_count;
    uint32_t out_count;
    char in[XR_ACTOR_LETTERS + 1];
    char out[XR_ACTOR_LETTERS + 1];
} xr_signature;

xray_status xr_signature_parse(const char *text, xr_err *err,
                               xr_signature *out);

/* A region as messages name it. */
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
    XR_MESSAGE_RELEASE, /* ""; a region of the receiver */
    XR_MESSAGE_STOP,
    XR_MESSAGE_GATHER,       /* ""; milliseconds (0: no limit), bytes */
    XR_MESSAGE_GATHERED,     /* ""; the bytes of all actors */
    XR_MESSAGE_NOT_GATHERED, /* ""; status, text */
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

/* Writes the message to `out`, whose bytes are replaced. */
xray_status xr_message_encode(const xr_message *header, const char *letters,
                              const xr_value *values, xr_err *err, xr_str *out);
xray_status xr_message_header(const void *data, size_t size, xr_err *err,
                              xr_message *out);
/* Decodes the values; their number and types must be those of `letters`. */
xray_status xr_message_values(const xr_message *message, const char *letters,
                              xr_err *err, xr_value *out);

#endif
