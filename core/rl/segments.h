/* SPDX-License-Identifier: Apache-2.0
 *
 * Divides mini-batches into segments ([run] layout_segments), which depend on
 * lengths alone, so that what is added up by segments has the same bits on any
 * number of replicas.
 */
#ifndef XR_SEGMENTS_H
#define XR_SEGMENTS_H

#include "core/roles/balance.h"
#include "core/roles/role_calls.h"

typedef struct xr_segments {
    uint32_t count; /* 0: mini-batches are not divided */
    uint32_t reserved;
    xr_balance balance;
    double *cost;    /* [rows] of each unit: its tokens */
    uint32_t *part;  /* [rows] segment of each unit */
    uint32_t *unit;  /* [rows] of each row */
    uint32_t *order; /* [rows] the rows before they are ordered */
    uint32_t *of;    /* [rows] segment of each row, once they are ordered */
    double *sums;    /* [count, names] of the loss's metrics */
    double *weights; /* [count, names] */
} xr_segments;

/* Prepares for up to `rows` rows, and for losses with `names` metrics. */
xray_status xr_segments_init(xr_segments *segments, uint64_t count,
                             uint64_t rows, uint64_t names, xr_err *err);
void xr_segments_free(xr_segments *segments);

/* Orders the rows `order` [first, first + count), a mini-batch, by segment, and
 * keeps their order within each. They are dealt by Karmarkar and Karp's method:
 * neighbours of one group go together unless `apart`. */
void xr_segments_order(xr_segments *segments, const xr_rows *rows,
                       const uint32_t range[2], int apart, uint32_t *order);

/* As xr_role_gradients. The sums of segments are added to those of the spec in
 * their order. */
xray_status xr_segments_gradients(xr_segments *segments, xr_roles *roles,
                                  uint32_t role, const xr_views *views,
                                  const xr_loss_spec *spec, xr_err *fault,
                                  xr_err *err);

#endif
