/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that the ranks of a layout write together, each its shares: no rank
 * holds more than it has, and the bytes are those that one rank would write.
 */
#ifndef XM_TRAIN_TOGETHER_H
#define XM_TRAIN_TOGETHER_H

#include "model/hf/safetensors.h"
#include "model/nn/weights.h"

/* How ranks agree: `agree` is called by all of them alike, waits for all, and
 * is XRAY_OK only where all gave XRAY_OK. */
typedef struct xm_together {
    void *ctx;
    xray_status (*agree)(void *ctx, xray_status mine, xr_err *err);
    uint32_t rank;
    uint32_t reserved;
} xm_together;

/* Elements of a tensor that this rank has. */
typedef struct xm_piece {
    const float *data; /* [dev], or host memory on a device with host memory */
    xm_range range;
    uint64_t rows; /* turned: of the matrix [rows, cols] on the device */
    uint64_t cols;
    uint32_t turned; /* 1: lies [cols, rows] in the file */
    uint32_t reserved;
} xm_piece;

typedef struct xm_share_out {
    const xray_device_ops *device;
    void *device_self;
    size_t count; /* tensors */
    const void *ctx;
    xm_piece (*piece)(const void *ctx, size_t i);
} xm_share_out;

/* Writes the files of `parts`; `ready` says whether this rank could make them
 * (else `parts` may be NULL and nothing is written). [collective] */
xray_status xm_share_save(const xm_share_out *from, xm_st_parts *parts,
                          xray_status ready, const xm_together *together,
                          xr_err *err);

/* xm_weights_save by all ranks of the layout: `weights` holds at least the
 * rank's shares. [collective] */
xray_status xm_weights_save_share(const xm_weights *weights, const char *dir,
                                  uint64_t max_shard,
                                  const xm_together *together, xr_err *err);

#endif
