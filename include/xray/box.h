/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/box.h - functions for the boxes of tensors (xray_tensor): how much one
 * holds, and which part two of them have in common. They only compute; the
 * memory of a box is never touched.
 *
 * An engine takes what a table has of its own tensor like this:
 *
 *     if (xray_box_cut(&mine, theirs, &to) > 0) {
 *         xray_box_cut(theirs, &mine, &from);
 *         ...                         copy from `from` to `to`, row by row
 *     }
 */
#ifndef XRAY_BOX_H
#define XRAY_BOX_H

#include <xray/setup.h>

/* Bytes of an element; 0 for a type that no tensor has. */
static inline uint64_t xray_dtype_bytes(uint32_t dtype)
{
    return dtype == XRAY_F32                         ? 4u
           : dtype == XRAY_BF16 || dtype == XRAY_F16 ? 2u
                                                     : 0u;
}

/* Number of elements of the box. */
static inline uint64_t xray_box_count(const xray_tensor *t)
{
    uint64_t count = 1;
    for (uint32_t d = 0; d < t->dims && d < 4; d++)
        count *= t->extent[d];
    return count;
}

/* Number of elements of the global tensor. */
static inline uint64_t xray_shape_count(const xray_tensor *t)
{
    uint64_t count = 1;
    for (uint32_t d = 0; d < t->dims && d < 4; d++)
        count *= t->shape[d];
    return count;
}

/* 1: the box is the entire tensor. */
static inline int xray_box_is_complete(const xray_tensor *t)
{
    for (uint32_t d = 0; d < t->dims && d < 4; d++)
        if (t->lo[d] != 0 || t->extent[d] != t->shape[d])
            return 0;
    return 1;
}

/* 1: the elements of the box lie side by side, row-major. */
static inline int xray_box_is_packed(const xray_tensor *t)
{
    uint64_t run = 1;
    for (uint32_t d = t->dims < 4 ? t->dims : 4; d-- > 0;) {
        if (t->extent[d] > 1 && t->stride[d] != run)
            return 0;
        run *= t->extent[d];
    }
    return 1;
}

/* 1: `t` is the entire tensor, in one piece. */
static inline int xray_box_is_plain(const xray_tensor *t)
{
    return xray_box_is_complete(t) && xray_box_is_packed(t);
}

/* Makes `t`, whose dims and shape are set, the entire tensor in one piece. */
static inline void xray_box_make_plain(xray_tensor *t)
{
    uint64_t run = 1;
    for (uint32_t d = t->dims < 4 ? t->dims : 4; d-- > 0;) {
        t->lo[d] = 0;
        t->extent[d] = t->shape[d];
        t->stride[d] = run;
        run *= t->shape[d];
    }
}

/* Makes *out the part of `t` whose elements `by` has, too: a box of t's memory.
 * Returns the number of its elements. Both are boxes of one shape. */
static inline uint64_t xray_box_cut(const xray_tensor *t, const xray_tensor *by,
                                    xray_tensor *out)
{
    uint64_t skipped = 0;
    *out = *t;
    for (uint32_t d = 0; d < t->dims && d < 4; d++) {
        uint64_t end = t->lo[d] + t->extent[d];
        uint64_t by_end = by->lo[d] + by->extent[d];
        uint64_t lo = t->lo[d] > by->lo[d] ? t->lo[d] : by->lo[d];
        uint64_t hi = end < by_end ? end : by_end;
        out->lo[d] = lo;
        out->extent[d] = lo < hi ? hi - lo : 0;
        if (lo < hi)
            skipped += (lo - t->lo[d]) * t->stride[d];
    }
    uint64_t count = xray_box_count(out);
    out->data =
        count ? (unsigned char *)t->data + skipped * xray_dtype_bytes(t->dtype)
              : NULL;
    return count;
}

#endif
