/* SPDX-License-Identifier: Apache-2.0
 *
 * A model's weights on a device: buckets, matrix handles, the published table.
 */
#ifndef XM_WEIGHTS_H
#define XM_WEIGHTS_H

#include <xray/setup.h>

#include "model/nn/layout.h"

typedef struct xm_weights {
    const xray_device_ops *device;
    void *device_self;
    const xm_layout *layout;
    float **buckets;       /* [bucket_count] device memory, fp32 */
    xray_weight **handles; /* [matrix_count] */
    xray_tensor *tensors;  /* [param_count], the published table */
    xray_weights table;
    uint64_t version; /* updates behind the values */
    uint32_t leases;
    uint32_t reserved;
} xm_weights;

/* Takes memory for the layout's buckets (tag WEIGHTS) and makes the handles.
 * The layout must outlive the result. `trainable`: gradients of inputs will be
 * asked for. */
xray_status xm_weights_create(const xm_layout *layout,
                              const xray_device_ops *device, void *device_self,
                              const char *owner, int trainable, xr_err *err,
                              xm_weights **out);
void xm_weights_destroy(xm_weights *weights); /* accepts NULL */

/* Fills all parameters from a model directory, turning what files have the
 * other way round; every tensor must be there with its shape (a value head that
 * is missing starts at 0; lm_head of a tied model is ignored), and tensors the
 * model does not have are an error, but for buffers that follow from the config
 * (rotary frequencies, GPT-2's masks). Names may lack "model." or
 * "transformer.", as in files of a model's body alone. */
xray_status xm_weights_load(xm_weights *weights, const char *dir, xr_err *err);

/* Draws matrices and learned positions from N(0, init_range^2) with Philox
 * keyed by (seed, name, element); norms multiply by 1, biases and the value
 * head are 0. Output projections of attention and MLP are scaled by
 * 1/sqrt(2 layers) (GPT-2's rule). */
xray_status xm_weights_random(xm_weights *weights, const xm_config *config,
                              uint64_t seed, xr_err *err);

/* Copies values of equal names and shapes from another table. */
xray_status xm_weights_import(xm_weights *weights, const xray_weights *from,
                              xr_err *err);

/* The values changed: packed copies are renewed, version becomes `version`. */
xray_status xm_weights_changed(xm_weights *weights, uint64_t version,
                               xr_err *err);

/* Writes all parameters into the directory, fp32, in HF names and as HF lays
 * them: model.safetensors, or shards of at most `max_shard` bytes and their
 * index (xm_st_write_model); XM_ST_SHARD_BYTES is the usual size. */
xray_status xm_weights_save(const xm_weights *weights, const char *dir,
                            uint64_t max_shard, xr_err *err);

/* Bytes of weights on the device, packed copies not counted. */
uint64_t xm_layout_bytes(const xm_layout *layout);
/* Room a device may take for matrices in the order its products read them: a
 * copy for forward, one more where gradients of inputs are asked for, runs of
 * 16 outputs padded. */
uint64_t xm_layout_packed_bytes(const xm_layout *layout, int trainable);

#endif
