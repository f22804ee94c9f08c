/* SPDX-License-Identifier: Apache-2.0
 *
 * Connects the ranks that hold a model. Collectives run in one order on a
 * stream of their own, beside the computation, and all ranks exchange small
 * records, by which they agree that a call succeeded.
 */
#ifndef XM_TRAIN_GROUP_H
#define XM_TRAIN_GROUP_H

#include <xray/numerics.h>
#include <xray/setup.h>

#include "core/base/err.h"

typedef struct xm_group_record {
    uint64_t squares[XRAY_SQUARES_WORDS]; /* of the gradients' shares; or [0] is
                                           * a digest */
    uint32_t first; /* index of the first parameter that is not finite;
                     * UINT32_MAX: none */
    int32_t code;
} xm_group_record;
#define XM_GROUP_RANKS 1024u /* the most */

typedef struct xm_group {
    const xray_device_ops *device;
    void *device_self;
    const xray_comm_ops *comm;
    xray_comm_group *group;
    xray_stream *stream;  /* where collectives run; NULL on one rank */
    xray_event *computed; /* end of the computation that collectives wait for */
    xray_event *moved; /* end of the collectives that computation waits for */
    float *records;    /* [dev] [size + 1], the last one is this rank's own */
    xm_group_record *all; /* [size] on the host */
    uint32_t rank;
    uint32_t size;
} xm_group;

xray_status xm_group_open(const xray_setup *setup, const char *owner,
                          xr_err *err, xm_group *out);
void xm_group_close(xm_group *group);
/* Returns the bytes of `records` in a group of `size` ranks. */
uint64_t xm_group_bytes(uint32_t size);
/* Makes the collectives' stream wait for all computation so far. */
xray_status xm_group_wait_compute(const xm_group *group);
/* Makes computation wait for all collectives so far. */
xray_status xm_group_wait_collectives(const xm_group *group);
/* Gives every rank the records of all, in `all`. Waits for the device.
 * [collective] */
xray_status xm_group_exchange(const xm_group *group,
                              const xm_group_record *mine);
/* Returns XRAY_OK if all ranks pass it, so that all of them go on or none does;
 * otherwise `mine`, whose reason *err holds, or if that is XRAY_OK, the first
 * other rank's error with its reason. `ctx` is the group. [collective] */
xray_status xm_group_agree(void *ctx, xray_status mine, xr_err *err);
/* The same, where all ranks must pass the same digest of `what` as well.
 * [collective] */
xray_status xm_group_agree_on(const xm_group *group, xray_status mine,
                              uint64_t digest, const char *what, xr_err *err);

#endif
