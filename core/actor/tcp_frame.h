/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames between a run and its Workhorses on other hosts: what the bytes of a
 * TCP connection mean once its two ends have greeted each other
 * (core/actor/tcp_hello.h). The functions are pure; all numbers are
 * little-endian.
 *
 * A frame is a header and its payload. A message is a sequence of frames: first
 * those of its opening, which names the regions that it carries and holds the
 * bytes of the message itself, and then those with the bytes of the regions.
 */
#ifndef XR_ACTOR_TCP_FRAME_H
#define XR_ACTOR_TCP_FRAME_H

#include <stddef.h>
#include <stdint.h>

/* The most bytes of a payload. Powers of two are slower (docs/performance.md).
 */
#define XR_TCP_PIECE (UINT64_C(96) << 10)
#define XR_TCP_OPENING (UINT64_C(1) << 31) /* the most bytes of an opening */
#define XR_TCP_PARTS 64u                   /* the most regions of a message */

enum {
    XR_TCP_WELCOME,  /* to an actor, the first; value: bytes of a record */
    XR_TCP_MESSAGE,  /* a piece of a message */
    XR_TCP_RECORD,   /* the actor's record */
    XR_TCP_WORD,     /* value: the word of `notify` */
    XR_TCP_UNREGION, /* value: id of a region that the sender destroyed */
    XR_TCP_BEAT,     /* the actor is alive */
    XR_TCP_LEAVE,    /* the actor's instance ended in order */
    XR_TCP_MEMORY,   /* with a descriptor; value: id of the sender's region of
                      * `rest` bytes, or 0: the page that SHARES answers */
    XR_TCP_SHARES,   /* value: the first word of that page, or 0: it cannot be
                      * mapped */
    XR_TCP_KINDS
};

typedef struct xr_tcp_frame {
    uint32_t magic;
    uint32_t kind;
    uint64_t size;  /* bytes of the payload */
    uint64_t rest;  /* MESSAGE: bytes of the same message in later frames;
                     * MEMORY: of the region */
    uint64_t value; /* MESSAGE: bytes of the opening, in its first frame */
    uint64_t sum;   /* of the members above and the payload */
} xr_tcp_frame;

/* An opening is a head, the parts, and the bytes of the message. */
typedef struct xr_tcp_head {
    uint64_t size; /* bytes of the message */
    uint64_t part_count;
} xr_tcp_head;

/* The bytes `first` to `first + count` of a region. */
typedef struct xr_tcp_part {
    uint64_t id;
    uint64_t size; /* of the whole region */
    uint64_t first;
    uint64_t count;
    uint64_t receivers; /* 1: the receiver created the region */
} xr_tcp_part;

/* A frame without payload. Its sum is set by xr_tcp_seal. */
xr_tcp_frame xr_tcp_frame_of(uint32_t kind, uint64_t value);
/* Sets the sum of a frame whose payload is at `data`. */
void xr_tcp_seal(xr_tcp_frame *frame, const void *data);
/* 1 if the sum is right. */
int xr_tcp_is_whole(const xr_tcp_frame *frame, const void *data);
/* 1 if these bytes can be the header of a frame. */
int xr_tcp_is_frame(const xr_tcp_frame *frame);

/* The parts of an opening, or NULL if its `size` bytes are none. *out_carried
 * is the number of bytes that they have together. */
const xr_tcp_part *xr_tcp_opening(const void *bytes, uint64_t size,
                                  xr_tcp_head *out_head, uint64_t *out_carried);

#endif
