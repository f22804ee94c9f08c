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
#ifndef MESH_WIRE_H
#define MESH_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define MESH_FRAME_MAGIC 0x46637458u /* in the byte order of the sender */
#define MESH_NOTE_MAGIC 0x4e637458u
/* Most bytes of one frame's payload. Powers of two are slower
 * (docs/performance.md). */
#define MESH_PIECE 0x18000u

/* Kinds of frames. */
#define MESH_CALL 1u  /* begins a call of a group */
#define MESH_DATA 2u  /* bytes of a call or a message follow */
#define MESH_OFFER 3u /* begins a message: the rank sends or receives it */
#define MESH_DONE 4u  /* a message was received */
#define MESH_LEAVE 5u /* the instance was destroyed */

/* The forming of a group is compared like a call. */
#define MESH_FORM 100u

typedef struct mesh_frame {
    uint32_t magic;
    uint16_t kind;
    uint16_t lane;
    uint64_t channel; /* key of the group or of its message channel */
    uint64_t number;  /* of the call in its channel, from 1 */
    uint64_t bytes;   /* MESH_DATA: of the payload; otherwise of one part */
    uint64_t call_bytes;
    uint32_t call; /* XRAY_COMM_* or MESH_FORM */
    uint32_t dtype;
    uint32_t root;  /* index in the group, or the message's peer as a rank */
    uint32_t half;  /* 1: one of the two messages of an exchange with this
                     * rank alone */
    uint64_t extra; /* number of the sender's call; MESH_FORM: number that the
                     * sender would give the group */
} mesh_frame;

/* Tells what a rank does at the moment. */
typedef struct mesh_activity {
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
} mesh_activity;

/* Kinds of notes. */
#define MESH_ASK 1u     /* asks for MESH_STATE */
#define MESH_STATE 2u   /* says what the sender does */
#define MESH_BREAK 3u   /* a channel is broken from a call on */
#define MESH_END 4u     /* the sender's instance is destroyed */
#define MESH_STOPPED 5u /* the sender was told to stop */

typedef struct mesh_note {
    uint32_t magic;
    uint32_t kind;
    uint64_t channel;
    uint64_t number;
    uint32_t cause;
    uint32_t origin; /* rank that found the cause first */
    mesh_activity activity;
} mesh_note;

_Static_assert(sizeof(mesh_frame) == 64 && sizeof(mesh_note) == 88,
               "no padding");

/* 1 if the bytes are a frame, or a note, that a rank of `size` ranks may
 * send. */
int mesh_frame_is_valid(const mesh_frame *frame);
int mesh_note_is_valid(const mesh_note *note, uint32_t size);

#endif
