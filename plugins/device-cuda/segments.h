/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums in segments that a balanced tree joins (XRAY_SEGMENTS), for kernels
 * whose threads have N sums each, one segment after the other.
 *
 * The tree's left parts are complete, so segment s completes as many of them as
 * s ends in ones in binary, and as many sums wait for it as s has ones. They
 * lie in local or shared memory, which is touched only where a segment ends.
 */
#ifndef CUDA_SEGMENTS_H
#define CUDA_SEGMENTS_H

#include "plugins/device-cuda/cu.h"

#define SEGMENT_LEVELS 3

static_assert(1u << SEGMENT_LEVELS == XRAY_SEGMENTS,
              "the sums of all segments but the last wait in these levels");

/* Ends a part of a segment that has several parts, whose sums are in c: c
 * becomes the sums of the parts so far if it is the last of them, and 0
 * otherwise. `whole` has the sums of the parts before. */
template <int N>
CU_FN void end_part(float whole[N], float c[N], uint32_t part, uint32_t parts)
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        c[i] = part > 0 ? whole[i] + c[i] : c[i];
        whole[i] = c[i];
        c[i] = part + 1 < parts ? 0.0f : c[i];
    }
}

/* Ends the segment whose sums are in c, which with it are `ended` of
 * `segments`: c becomes the sums of the next one, 0, or after the last one
 * those of all. `open` has the sums that wait. */
template <int N>
CU_FN void end_segment(float (*open)[N], float c[N], uint32_t ended,
                       uint32_t segments)
{
    uint32_t s = ended - 1;
    uint32_t count = (uint32_t)__popc(s);
    int last = ended == segments;
    for (uint32_t b = s; count > 0 && (last || b & 1); b /= 2) {
        count--;
#pragma unroll
        for (int i = 0; i < N; i++)
            c[i] = open[count][i] + c[i];
    }
    if (last)
        return;
#pragma unroll
    for (int i = 0; i < N; i++) {
        open[count][i] = c[i];
        c[i] = 0.0f;
    }
}

#endif
