/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes and checks frames.
 */
#include "core/actor/tcp_frame.h"

#include <string.h>

#include "core/actor/tcp_sum.h"
#include "core/base/hash.h"

#define MAGIC UINT32_C(0x63707478)
#define HEADER offsetof(xr_tcp_frame, sum)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "frames are little-endian");
_Static_assert(sizeof(xr_tcp_frame) == 40 && sizeof(xr_tcp_part) == 40,
               "frames have no padding");

static uint64_t sum_frame(const xr_tcp_frame *frame, const void *data)
{
    const uint64_t header = xr_hash64(frame, HEADER, 0);
    return frame->size ? xr_tcp_sum(data, frame->size, header) : header;
}

xr_tcp_frame xr_tcp_frame_of(uint32_t kind, uint64_t value)
{
    return (xr_tcp_frame){ .magic = MAGIC, .kind = kind, .value = value };
}

void xr_tcp_seal(xr_tcp_frame *frame, const void *data)
{
    frame->sum = sum_frame(frame, data);
}

int xr_tcp_is_whole(const xr_tcp_frame *frame, const void *data)
{
    return frame->sum == sum_frame(frame, data);
}

int xr_tcp_is_frame(const xr_tcp_frame *frame)
{
    if (frame->magic != MAGIC || frame->kind >= XR_TCP_KINDS ||
        frame->size > XR_TCP_PIECE)
        return 0;
    if (frame->kind == XR_TCP_MESSAGE)
        return frame->size && frame->rest <= UINT64_MAX - frame->size;
    if (frame->kind == XR_TCP_UNREGION && !frame->value)
        return 0; /* no region has this id */
    if (frame->kind == XR_TCP_MEMORY)
        return frame->rest && !frame->size;
    return !frame->rest && (frame->kind == XR_TCP_RECORD || !frame->size);
}

const xr_tcp_part *xr_tcp_opening(const void *bytes, uint64_t size,
                                  xr_tcp_head *out_head, uint64_t *out_carried)
{
    const xr_tcp_part *parts =
        (const xr_tcp_part *)(const void *)((const char *)bytes +
                                            sizeof(*out_head));
    uint64_t carried = 0;
    if (size < sizeof(*out_head))
        return NULL;
    memcpy(out_head, bytes, sizeof(*out_head));
    size -= sizeof(*out_head);
    if (out_head->part_count > XR_TCP_PARTS ||
        out_head->part_count > size / sizeof(*parts) ||
        out_head->size != size - out_head->part_count * sizeof(*parts))
        return NULL;
    for (uint64_t i = 0; i < out_head->part_count; i++) {
        const xr_tcp_part *part = &parts[i];
        if (!part->size || part->receivers > 1 || part->first > part->size ||
            part->count > part->size - part->first ||
            part->count > UINT64_MAX - carried)
            return NULL;
        carried += part->count;
    }
    *out_carried = carried;
    return parts;
}
