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
    float **buckets;       /* [bucket_count] device memory */
    xray_weight **handles; /* [matrix_count] */
    xray_tensor *tensors;  /* [param_count], the published table */
    xray_weights table;
    uint64_t version; /* updates behind the values */
    uint32_t leases;
    int32_t flags; /* XM_WEIGHTS_* */
} xm_weights;

#define XM_WEIGHTS_TRAINABLE 1 /* gradients of inputs will be asked for */
/* Matrices and look-up tables are kept as bf16, rounded to nearest even from
 * whatever fills them; vectors stay fp32. */
#define XM_WEIGHTS_BF16 2
/* Nothing asks for log-probs: files may lack lm_head, which is 0 then. */
#define XM_WEIGHTS_NO_LOGP 4

/* Takes memory for the layout's buckets (tag WEIGHTS) and makes the handles.
 * The layout must outlive the result. */
xray_status xm_weights_create(const xm_layout *layout,
                              const xray_device_ops *device, void *device_self,
                              const char *owner, int flags, xr_err *err,
                              xm_weights **out);
void xm_weights_destroy(xm_weights *weights); /* accepts NULL */

/* The rank's shares of the layout's buckets alone, without handles: the table
 * has the elements of each tensor that lie there. Loading, drawing and
 * importing fill them. `memory` [bucket_count] holds the shares and stays the
 * caller's. */
xray_status xm_weights_create_share(const xm_layout *layout,
                                    const xray_device_ops *device,
                                    void *device_self, float *const *memory,
                                    xr_err *err, xm_weights **out);
void xm_weights_destroy_share(xm_weights *weights); /* accepts NULL */
/* From a table on the same device that holds at least these elements. */
xray_status xm_weights_import_share(xm_weights *weights,
                                    const xray_weights *from, xr_err *err);

/* Fills all parameters from a model directory, turning what files have the
 * other way round; every tensor must be there with its shape (a value head that
 * is missing starts at 0; lm_head of a tied model is ignored), and tensors the
 * model does not have are an error, but for buffers that follow from the config
 * (rotary frequencies, GPT-2's masks). Names may lack "model." or
 * "transformer.", as in files of a model's body alone. A value that is not
 * finite is an error that names tensor and element. */
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
/* The same from a table that may hold some of the parameters; came[i] becomes 1
 * for each that it has. The version stays. */
xray_status xm_weights_import_part(xm_weights *weights,
                                   const xray_weights *from,
                                   unsigned char *came, xr_err *err);

/* The values changed: packed copies are renewed, version becomes `version`. */
xray_status xm_weights_changed(xm_weights *weights, uint64_t version,
                               xr_err *err);

/* Takes the memory of weights from xm_weights_create away, with the values, and
 * gives it back, zeroed. Values have to come then, and xm_weights_changed.
 * XRAY_E_UNSUPPORTED where the device cannot. */
xray_status xm_weights_evict(xm_weights *weights);
xray_status xm_weights_restore(xm_weights *weights);

/* Writes all parameters (not of XM_WEIGHTS_BF16) into the directory, fp32, in
 * HF names and as HF lays them: model.safetensors, or shards of at most
 * `max_shard` bytes and their index (xm_st_write_model); XM_ST_SHARD_BYTES is
 * the usual size. */
xray_status xm_weights_save(const xm_weights *weights, const char *dir,
                            uint64_t max_shard, xr_err *err);

/* What such files say of each parameter. */
struct xm_st_item;
void xm_layout_items(const xm_layout *layout, struct xm_st_item *out);

/* Bytes of fp32 weights on the device, packed copies not counted. */
uint64_t xm_layout_bytes(const xm_layout *layout);
/* The same of weights with XM_WEIGHTS_* flags, packed copies counted. */
uint64_t xm_weights_bytes(const xm_layout *layout, int flags);
/* Room a device may take for matrices in the order its products read them: a
 * copy for forward, one more where gradients of inputs are asked for, runs of
 * 16 outputs padded. */
uint64_t xm_layout_packed_bytes(const xm_layout *layout, int trainable);

#endif
