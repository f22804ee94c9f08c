/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of the elements of several ranks in the order that <xray/comm.h>
 * defines, for every implementation of xray.comm that adds on the host.
 */
#ifndef XR_SUMS_H
#define XR_SUMS_H

#include <xray/comm.h>

#define XR_SUM_MOST 256u /* sources of one sum */

/* Sums elements first .. first + n - 1: dst[*][i] = sum of src in order, or the
 * largest of them. A destination may be one of the sources. */
typedef struct xr_sum {
    void *const *dst;
    const void *const *src;
    uint64_t src_at; /* element of each source at index 0 */
    uint64_t dst_at;
    uint32_t dst_count;
    uint32_t src_count;
    uint32_t dtype;  /* of the sources: XRAY_F32 or XRAY_BF16 */
    uint32_t to;     /* of the destinations; 0: the same */
    uint32_t stream; /* 1: results bypass the caches */
    uint32_t max;    /* 1: the largest instead of the sum */
} xr_sum;

void xr_sum_run(const xr_sum *s, uint64_t first, uint64_t n);

#endif
