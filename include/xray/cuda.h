/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/cuda.h - extension "xray.cuda/0" of a device whose streams are CUDA
 * streams. It gives a comm plugin what it needs to enqueue its own work on
 * them.
 *
 *     const xray_cuda_ops *cuda = device->extension(self, XRAY_EXT_CUDA);
 *     cudaStream_t s = (cudaStream_t)cuda->stream(self, stream);
 *
 * No CUDA type crosses the interface.
 */
#ifndef XRAY_CUDA_H
#define XRAY_CUDA_H

#include <xray/abi.h>
#include <xray/device.h>

#define XRAY_EXT_CUDA "xray.cuda/0"

typedef struct xray_cuda_ops {
    xray_header header;
    /* The number of the instance's device, as the CUDA runtime counts devices
     * in this process. [any] */
    uint32_t (*index)(void *self);
    /* The cudaStream_t of `stream`; NULL gives the one of the instance's
     * default stream. [any] */
    void *(*stream)(void *self, xray_stream *stream);
} xray_cuda_ops;

#endif
