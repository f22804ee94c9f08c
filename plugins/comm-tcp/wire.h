/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks send each other these once they are connected, as bytes and as checks
 * of bytes that came from elsewhere. Two ranks have two lines: one for calls
 * and their data, which only the calling thread touches, and one for notes on
 * the state of ranks and groups, which a thread of the instance reads at any
 * time.
 *
 * On the first line everything is a frame, of which only those of data have a
 * payload. Two ranks make their common calls in the same order, so the next
 * frame that begins a call is the call that the rank makes with this one next,
 * or the ranks are in different calls.
 */
#ifndef TCP_WIRE_H
#define TCP_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define TCP_FRAME_MAGIC 0x46637458u /* in the byte order of the sender */
#define TCP_NOTE_MAGIC 0x4e637458u
#define TCP_PIECE 0x40000u /* most bytes of one frame's payload */

/* Kinds of frames. */
#define TCP_CALL 1u  /* begins a call of a group */
#define TCP_DATA 2u  /* bytes of a call or a message follow */
#define TCP_OFFER 3u /* begins a message: the rank sends or receives it */
#define TCP_DONE 4u  /* a message was received */
#define TCP_LEAVE 5u /* the instance was destroyed */

/* The forming of a group is compared like a call. */
#define TCP_FORM 100u

typedef struct tcp_frame {
    uint32_t magic;
    uint16_t kind;
    uint16_t lane;
    uint64_t channel; /* key of the group or of its message channel */
    uint64_t number;  /* of the call in its channel, from 1 */
    uint64_t bytes;   /* TCP_DATA: of the payload; otherwise of one part */
    uint64_t call_bytes;
    uint32_t call; /* XRAY_COMM_* or TCP_FORM */
    uint32_t dtype;
    uint32_t root;  /* index in the group, or the message's peer as a rank */
    uint32_t half;  /* 1: one of the two messages of an exchange with this
                     * rank alone */
    uint64_t extra; /* number of the sender's call; TCP_FORM: number that the
                     * sender would give the group */
} tcp_frame;

/* Tells what a rank does at the moment. */
typedef struct tcp_activity {
    uint64_t calls;
    uint64_t bytes;
    uint64_t from_bytes;
    uint64_t age; /* ns since the call began; on its own rank the time */
    uint32_t group;
    uint32_t call;
    uint32_t dtype;
    uint32_t other; /* root, peer, or where an exchange sends */
    uint32_t from;
    uint32_t state; /* as in xray_comm_trace */
} tcp_activity;

/* Kinds of notes. */
#define TCP_ASK 1u     /* asks for TCP_STATE */
#define TCP_STATE 2u   /* says what the sender does */
#define TCP_BREAK 3u   /* a channel is broken from a call on */
#define TCP_END 4u     /* the sender's instance is destroyed */
#define TCP_STOPPED 5u /* the sender was told to stop */

typedef struct tcp_note {
    uint32_t magic;
    uint32_t kind;
    uint64_t channel;
    uint64_t number;
    uint32_t cause;
    uint32_t origin; /* rank that found the cause first */
    tcp_activity activity;
} tcp_note;

_Static_assert(sizeof(tcp_frame) == 64 && sizeof(tcp_note) == 88, "no padding");

/* 1 if the bytes are a frame, or a note, that a rank of `size` ranks may
 * send. */
int tcp_frame_is_valid(const tcp_frame *frame);
int tcp_note_is_valid(const tcp_note *note, uint32_t size);

#endif
