/* SPDX-License-Identifier: Apache-2.0
 *
 * Walks two boxes of the same extents at once. Axes that continue each other in
 * both memories are merged, so that a box in one piece is a single run, and a
 * column cut of a matrix is one call for all of its rows.
 */
#include "core/base/box.h"

/* Runs of `run` elements, one after the other along each of three axes, the
 * innermost first, with the strides of both sides. */
typedef struct box_walk {
    uint64_t run;
    uint64_t count[3];
    uint64_t to[3];
    uint64_t from[3];
} box_walk;

/* Adds an axis outside of those before: to the run, to the last axis, or as a
 * new one. `used` counts the axes so far. */
static void add_axis(box_walk *w, uint32_t *used, uint64_t count,
                     const uint64_t stride[2])
{
    uint32_t at = *used;
    if (count == 1)
        return;
    if (at == 0 && stride[0] == w->run && stride[1] == w->run) {
        w->run *= count;
    } else if (at > 0 && stride[0] == w->to[at - 1] * w->count[at - 1] &&
               stride[1] == w->from[at - 1] * w->count[at - 1]) {
        w->count[at - 1] *= count;
    } else {
        w->count[at] = count;
        w->to[at] = stride[0];
        w->from[at] = stride[1];
        *used = at + 1;
    }
}

/* Every box has at most three axes besides its last, whose stride is 1. */
static box_walk make_walk(const xray_tensor *box, const uint64_t *to,
                          const uint64_t *from)
{
    box_walk w = { .run = 1, .count = { 1, 1, 1 } };
    uint32_t used = 0;
    for (uint32_t d = box->dims; d-- > 0;)
        add_axis(&w, &used, box->extent[d],
                 (const uint64_t[2]){ to[d], from[d] });
    return w;
}

static unsigned char *move_pointer(const void *base, uint64_t bytes)
{
    union {
        const void *in;
        unsigned char *out;
    } at = { base };
    return at.out + bytes;
}

/* Rows of the two outer axes: the offsets, in elements, of step `i`. */
static uint64_t outer_offset(const box_walk *w, const uint64_t *stride,
                             uint64_t i)
{
    return i / w->count[1] * stride[2] + i % w->count[1] * stride[1];
}

xray_status xr_box_copy(xr_box_device device, const xray_tensor *to,
                        const xray_tensor *from, uint32_t kind)
{
    uint64_t size = xray_dtype_bytes(to->dtype);
    box_walk w = make_walk(to, to->stride, from->stride);
    xray_status status = XRAY_OK;
    if (xray_box_count(to) == 0)
        return XRAY_OK;
    if (w.count[0] == 1)
        return device.ops->copy(device.self, NULL, to->data, from->data,
                                w.run * size, kind);
    xray_copy_rows rows = { .header = XRAY_HEADER(xray_copy_rows),
                            .rows = w.count[0],
                            .bytes = w.run * size,
                            .to_pitch = w.to[0] * size,
                            .from_pitch = w.from[0] * size,
                            .kind = kind };
    for (uint64_t i = 0; i < w.count[1] * w.count[2] && status == XRAY_OK;
         i++) {
        rows.to = move_pointer(to->data, outer_offset(&w, w.to, i) * size);
        rows.from =
            move_pointer(from->data, outer_offset(&w, w.from, i) * size);
        status = device.ops->copy_rows(device.self, NULL, &rows);
    }
    return status;
}

xray_status xr_box_cast(xr_box_device device, const xray_tensor *to,
                        const xray_tensor *from)
{
    uint64_t to_size = xray_dtype_bytes(to->dtype);
    uint64_t from_size = xray_dtype_bytes(from->dtype);
    box_walk w = make_walk(to, to->stride, from->stride);
    xray_cast cast = { .header = XRAY_HEADER(xray_cast),
                       .count = w.run,
                       .x_dtype = from->dtype,
                       .y_dtype = to->dtype,
                       .rows = w.count[0],
                       .x_stride = w.from[0],
                       .y_stride = w.to[0] };
    xray_status status = XRAY_OK;
    if (xray_box_count(to) == 0)
        return XRAY_OK;
    for (uint64_t i = 0; i < w.count[1] * w.count[2] && status == XRAY_OK;
         i++) {
        cast.y = move_pointer(to->data, outer_offset(&w, w.to, i) * to_size);
        cast.x =
            move_pointer(from->data, outer_offset(&w, w.from, i) * from_size);
        status = device.ops->cast(device.self, NULL, &cast);
    }
    return status;
}

/* The strides of the global tensor, and the index of the box's first element
 * in it. */
static uint64_t place_in_tensor(const xray_tensor *t, uint64_t *stride)
{
    uint64_t run = 1;
    uint64_t at = 0;
    for (uint32_t d = t->dims; d-- > 0;) {
        stride[d] = run;
        at += t->lo[d] * run;
        run *= t->shape[d];
    }
    return at;
}

xray_status xr_box_checksum(xr_box_device device, const xray_tensor *t,
                            uint64_t *out)
{
    uint64_t stride[4] = { 0 };
    uint64_t size = xray_dtype_bytes(t->dtype);
    uint64_t at = place_in_tensor(t, stride);
    box_walk w = make_walk(t, t->stride, stride);
    xray_checksum_rows rows = { .header = XRAY_HEADER(xray_checksum_rows),
                                .rows = w.count[0],
                                .bytes = w.run * size,
                                .pitch = w.to[0] * size,
                                .at_pitch = w.from[0] * size };
    xray_status status = XRAY_OK;
    *out = 0;
    if (xray_box_count(t) == 0)
        return XRAY_OK;
    for (uint64_t i = 0; i < w.count[1] * w.count[2] && status == XRAY_OK;
         i++) {
        uint64_t sum = 0;
        rows.data = move_pointer(t->data, outer_offset(&w, w.to, i) * size);
        rows.at = (at + outer_offset(&w, w.from, i)) * size;
        status = device.ops->checksum(device.self, &rows, &sum);
        *out += sum;
    }
    return status;
}

void xr_box_pack(const xray_tensor *box, uint32_t dtype, void *data,
                 xray_tensor *out)
{
    uint64_t run = 1;
    *out = *box;
    out->dtype = dtype;
    out->data = data;
    out->weight = NULL;
    out->weight_row = 0;
    for (uint32_t d = box->dims; d-- > 0;) {
        out->stride[d] = run;
        run *= box->extent[d];
    }
}
