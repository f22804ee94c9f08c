/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies, converts and sums the elements of boxes (xray_tensor) in the memory
 * of a device, as few pieces as their strides allow.
 */
#ifndef XR_BOX_H
#define XR_BOX_H

#include <xray/box.h>

/* A device with its instance. */
typedef struct xr_box_device {
    const xray_device_ops *ops;
    void *self;
} xr_box_device;

/* Copies the elements of `from` to those of `to`, which have the same type and
 * extents, on the default stream. `kind` is an XRAY_COPY_*. */
xray_status xr_box_copy(xr_box_device device, const xray_tensor *to,
                        const xray_tensor *from, uint32_t kind);
/* The same between two types, in memory of the device. */
xray_status xr_box_cast(xr_box_device device, const xray_tensor *to,
                        const xray_tensor *from);
/* The checksum of the elements by their place in the global tensor: those of
 * disjoint boxes add up. Empty boxes have 0. */
xray_status xr_box_checksum(xr_box_device device, const xray_tensor *t,
                            uint64_t *out);

/* Makes *out a box of the elements of `box` in packed memory at `data`. */
void xr_box_pack(const xray_tensor *box, uint32_t dtype, void *data,
                 xray_tensor *out);
#endif
