/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks frames and notes, whose senders have proved that they belong to the
 * run, but may be of another version or damaged.
 */
#include "plugins/mesh/wire.h"

#include <xray/comm.h>

#include "plugins/mesh/mesh.h"

#define MOST_BYTES (UINT64_MAX / 4 / 4096)

int mesh_frame_is_valid(const mesh_frame *frame)
{
    if (frame->magic != MESH_FRAME_MAGIC || frame->kind < MESH_CALL ||
        frame->kind > MESH_LEAVE || frame->lane >= MESH_LANES)
        return 0;
    if (frame->kind == MESH_DATA)
        return frame->bytes > 0 && frame->bytes <= MESH_PIECE;
    if (frame->kind == MESH_OFFER && frame->call != XRAY_COMM_SEND &&
        frame->call != XRAY_COMM_RECV)
        return 0;
    return frame->bytes <= MOST_BYTES && frame->call_bytes <= MOST_BYTES;
}

int mesh_note_is_valid(const mesh_note *note, uint32_t size)
{
    return note->magic == MESH_NOTE_MAGIC && note->kind >= MESH_ASK &&
           note->kind <= MESH_STOPPED && note->origin < size &&
           (note->kind != MESH_BREAK ||
            (note->cause >= MESH_LATE && note->cause <= MESH_GARBLED));
}
