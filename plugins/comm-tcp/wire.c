/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks frames and notes, whose senders have proved that they belong to the
 * run, but may be of another version or damaged.
 */
#include "plugins/comm-tcp/wire.h"

#include <xray/comm.h>

#include "plugins/comm-tcp/tcp.h"

#define MOST_BYTES (UINT64_MAX / 4 / 4096)

int tcp_frame_is_valid(const tcp_frame *frame)
{
    if (frame->magic != TCP_FRAME_MAGIC || frame->kind < TCP_CALL ||
        frame->kind > TCP_LEAVE || frame->lane >= TCP_LANES)
        return 0;
    if (frame->kind == TCP_DATA)
        return frame->bytes > 0 && frame->bytes <= TCP_PIECE;
    if (frame->kind == TCP_OFFER && frame->call != XRAY_COMM_SEND &&
        frame->call != XRAY_COMM_RECV)
        return 0;
    return frame->bytes <= MOST_BYTES && frame->call_bytes <= MOST_BYTES;
}

int tcp_note_is_valid(const tcp_note *note, uint32_t size)
{
    return note->magic == TCP_NOTE_MAGIC && note->kind >= TCP_ASK &&
           note->kind <= TCP_STOPPED && note->origin < size &&
           (note->kind != TCP_BREAK ||
            (note->cause >= TCP_LATE && note->cause <= TCP_GARBLED));
}
