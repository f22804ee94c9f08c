/* SPDX-License-Identifier: Apache-2.0
 *
 * AdamW's moments in page-locked memory of the host, for a device that computes
 * elsewhere. An update takes them through the device in pieces: one piece is
 * copied in while the one before it is computed and an earlier one is copied
 * out.
 */
#ifndef XM_TRAIN_MOMENTS_H
#define XM_TRAIN_MOMENTS_H

#include "core/base/err.h"

#include <xray/device.h>

#define XM_MOMENT_SLOTS 3u         /* pieces on the device */
#define XM_MOMENT_PIECE (4u << 20) /* most elements of a piece */

typedef struct xm_moments {
    const xray_device_ops *device;
    void *device_self;
    float *host;  /* all moments of the rank */
    float *slots; /* [dev] [XM_MOMENT_SLOTS][2][XM_MOMENT_PIECE] */
    xray_stream *in;
    xray_stream *out;
    xray_event *loaded[XM_MOMENT_SLOTS];
    xray_event *updated[XM_MOMENT_SLOTS];
    xray_event *stored[XM_MOMENT_SLOTS];
    uint64_t pieces; /* of all updates, so far */
} xm_moments;

/* Bytes of device memory (tag WORKSPACE) that xm_moments_open takes. Pure. */
uint64_t xm_moments_bytes(void);

/* Takes zeroed host memory of `bytes` and the slots. xm_moments_close in any
 * case. */
xray_status xm_moments_open(xm_moments *m, const xray_device_ops *device,
                            void *device_self, uint64_t bytes,
                            const char *owner, xr_err *err);
void xm_moments_close(xm_moments *m);

/* Performs `call` on the default stream with its m and v, which are in host
 * memory. They may be read after xm_moments_join and a sync of that stream. */
xray_status xm_moments_update(xm_moments *m, const xray_adamw *call);

/* Lets the default stream wait until all pieces are back in host memory. */
xray_status xm_moments_join(xm_moments *m);

#endif
