/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/cuda.h - extension "xray.cuda/0" of a device whose streams are CUDA's:
 * what a comm plugin needs to enqueue its own work on them. Found through
 * xray_device_ops.extension. No CUDA type crosses the interface.
 */
#ifndef XRAY_CUDA_H
#define XRAY_CUDA_H

#include <xray/abi.h>
#include <xray/device.h>

#define XRAY_EXT_CUDA "xray.cuda/0"

typedef struct xray_cuda_ops {
    xray_header header;
    /* Number of the instance's device as the CUDA runtime of this process
     * counts. [any] */
    uint32_t (*index)(void *self);
    /* The cudaStream_t behind `stream`; that of the instance's default stream
     * for NULL. [any] */
    void *(*stream)(void *self, xray_stream *stream);
} xray_cuda_ops;

#endif
