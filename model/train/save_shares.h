/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that all ranks write together: those of a layout, and those of all of
 * a model's slices and stages. Each rank writes what it holds first of all
 * ranks, so none holds more than it already has, and the bytes are those that a
 * single rank with the entire model would write.
 */
#ifndef XM_TRAIN_SAVE_SHARES_H
#define XM_TRAIN_SAVE_SHARES_H

#include "model/hf/safetensors.h"
#include "model/nn/weights.h"

/* How the ranks agree. All of them call `agree` alike; it waits for all and
 * returns XRAY_OK only where every rank passed XRAY_OK. */
typedef struct xm_agreement {
    void *ctx;
    xray_status (*agree)(void *ctx, xray_status mine, xr_err *err);
    uint32_t rank;
    uint32_t reserved;
} xm_agreement;

/* The elements of a tensor that this rank holds. */
typedef struct xm_piece {
    const float *data;     /* [dev], or host memory where the source says so */
    const xm_param *param; /* where its elements lie in the tensor */
    size_t tensor;         /* its number in the files */
    xm_range range;        /* of the parameter's elements */
    uint32_t transposed;   /* 1: the file holds the matrix as [cols, rows] */
    uint32_t reserved;
} xm_piece;

typedef struct xm_share_source {
    const xray_device_ops *device;
    void *device_self;
    size_t count; /* number of pieces, of different tensors */
    const void *ctx;
    xm_piece (*piece)(const void *ctx, size_t i);
    const xray_call_service *calls; /* NULL: writing never ends early */
    uint32_t on_host; /* 1: the pieces are in host memory on any device */
    uint32_t reserved;
} xm_share_source;

/* Writes the files of `parts`. `ready` is the rank's status after it tried to
 * prepare them; where that is not XRAY_OK, `parts` may be NULL and no rank
 * writes anything. [collective] */
xray_status xm_share_save(const xm_share_source *from, xm_st_parts *parts,
                          xray_status ready, const xm_agreement *agreement,
                          xr_err *err);

/* Does what xm_weights_save does, called by all ranks of the layout, and of all
 * slices and stages of a model. `weights` holds at least the rank's shares;
 * `whole` is the layout of all stages. [collective] */
xray_status xm_weights_save_share(const xm_weights *weights,
                                  const xm_layout *whole, const char *dir,
                                  uint64_t max_shard,
                                  const xm_agreement *agreement, xr_err *err);

#endif
