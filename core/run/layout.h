/* SPDX-License-Identifier: Apache-2.0
 *
 * How the ranks of a role hold its model: in replicas of `width` ranks, as the
 * plans of the backend say. The ranks of a role are numbered from 0; replica r
 * has the ranks r * width to (r + 1) * width - 1.
 */
#ifndef XR_LAYOUT_H
#define XR_LAYOUT_H

#include <xray/setup.h>

#define XR_AXIS_NAME_CAP 32
#define XR_NUMERICS_CAP 128

/* An axis within a replica; the first one varies fastest. */
typedef struct xr_axis {
    char name[XR_AXIS_NAME_CAP];
    uint32_t size;
} xr_axis;

typedef struct xr_layout {
    uint32_t width;    /* ranks of a replica; at least 1 */
    uint32_t replicas; /* at least 1 */
    uint32_t answers;  /* the rank of a replica that answers */
    uint32_t axis_count;
    xr_axis axes[XRAY_AXES];
    uint64_t micro_multiple; /* at least 1 */
    uint64_t token_multiple; /* at least 1 */
    uint32_t segments;       /* XRAY_SEGMENTS_*, or 0 */
    uint32_t reserved;
    /* Id of the numerics contract that the instance keeps with its options; "":
     * the one that its component names. */
    char numerics[XR_NUMERICS_CAP];
} xr_layout;

/* Writes the axes, "tp 2, pp 2", to `buffer` and returns it; "no axes" if there
 * are none. */
#define XR_AXES_CAP (XRAY_AXES * (XR_AXIS_NAME_CAP + 16))
const char *xr_axes_text(const xr_layout *layout, char *buffer);

#endif
