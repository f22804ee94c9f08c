/* SPDX-License-Identifier: Apache-2.0
 *
 * Holds a model's weights on a device: buckets, matrix handles and the
 * published table.
 */
#ifndef XM_WEIGHTS_H
#define XM_WEIGHTS_H

#include <xray/box.h>

#include "core/base/services.h"
#include "model/nn/layout.h"

/* The elements [first, first + count) of a parameter that weights hold, in one
 * piece. */
typedef struct xm_held {
    uint64_t first;
    uint64_t count;
    void *data;
    const xray_tensor *boxes; /* [piece_count] of the published table; of shares
                               * NULL */
    uint32_t dtype;
    uint32_t reserved;
} xm_held;

typedef struct xm_weights {
    const xray_device_ops *device;
    void *device_self;
    const xm_layout *layout;
    float **buckets;       /* [bucket_count] device memory */
    xray_weight **handles; /* [matrix_count] */
    xm_held *held;         /* [param_count] */
    xray_tensor *tensors;  /* the published table: one box for each piece of a
                            * parameter, of shares up to XM_SHARE_BOXES */
    xray_weights table;
    uint64_t version; /* number of updates that led to these values */
    /* Set by the owner: filling and saving end with XRAY_E_CANCELED when it
     * says so. A canceled fill leaves the values undefined. NULL: never. */
    const xray_call_service *calls;
    uint32_t leases;
    int32_t flags; /* XM_WEIGHTS_* */
} xm_weights;

/* The most boxes that a range of a matrix makes: the end of a row, rows of each
 * piece, and the beginning of another row. */
#define XM_SHARE_BOXES (XM_PIECES + 2u)

#define XM_WEIGHTS_TRAINABLE 1 /* gradients of inputs are needed */
/* Matrices and embedding tables are kept as bf16, rounded to nearest even when
 * they are filled; vectors stay fp32. */
#define XM_WEIGHTS_BF16 2
/* Log-probabilities are never asked for, so files may lack lm_head, which is
 * then 0. */
#define XM_WEIGHTS_NO_LOGP 4

/* Allocates the layout's buckets (tag WEIGHTS) and makes the handles. The
 * layout must outlive the result. */
xray_status xm_weights_create(const xm_layout *layout,
                              const xray_device_ops *device, void *device_self,
                              const char *owner, int flags, xr_err *err,
                              xm_weights **out);
void xm_weights_destroy(xm_weights *weights); /* accepts NULL */

/* Creates weights that hold only the rank's shares of the layout's buckets,
 * without handles. The table publishes the elements of each tensor that lie in
 * the shares. Loading, random
 * initialization and importing fill them. `memory` [bucket_count] holds the
 * shares and remains the caller's. */
xray_status xm_weights_create_share(const xm_layout *layout,
                                    const xray_device_ops *device,
                                    void *device_self, float *const *memory,
                                    xr_err *err, xm_weights **out);
void xm_weights_destroy_share(xm_weights *weights); /* accepts NULL */
/* Describes the elements `own` of a parameter, which lie at `data`, as boxes of
 * fp32 in out[XM_SHARE_BOXES], and returns their number; without elements that
 * is one empty box. */
uint32_t xm_range_boxes(const xm_param *param, xm_range own, float *data,
                        xray_tensor *out);
/* Imports from a table on the same device that holds at least these elements.
 */
xray_status xm_weights_import_share(xm_weights *weights,
                                    const xray_weights *from, xr_err *err);

/* Fills all parameters from a model directory, transposing matrices that files
 * store the other way round. Every tensor must be present with its shape, but a
 * missing value head starts at 0 and lm_head of a tied model is ignored.
 * Tensors that the model does not have are an error, except for buffers that
 * follow from the config (rotary frequencies, GPT-2's masks); for a stage
 * other tensors are those of other stages. Names may lack
 * "model." or "transformer.", as in files that hold only a model's body. A
 * value that is not finite is an error that names tensor and element. */
xray_status xm_weights_load(xm_weights *weights, const char *dir, xr_err *err);

/* `config` is that of the entire model. Draws matrices and learned positions
 * from N(0, init_range^2) with Philox
 * keyed by (seed, name, element). Norms multiply by 1, and biases and the value
 * head are 0. Output projections of attention and MLP are scaled by 1/sqrt(2
 * layers) (GPT-2's rule). */
xray_status xm_weights_random(xm_weights *weights, const xm_config *config,
                              uint64_t seed, xr_err *err);

/* Copies values of equal names and shapes from another table. */
xray_status xm_weights_import(xm_weights *weights, const xray_weights *from,
                              xr_err *err);
/* The same from a table that may lack some parameters or hold boxes of them;
 * came[i] grows by the number of elements of each. The version does not change.
 */
xray_status xm_weights_import_part(xm_weights *weights,
                                   const xray_weights *from, uint64_t *came,
                                   xr_err *err);

/* Declares that the values changed: the device's packed copies are renewed, and
 * the version becomes `version`. */
xray_status xm_weights_changed(xm_weights *weights, uint64_t version,
                               xr_err *err);

/* Evict the memory of weights made by xm_weights_create, values included, and
 * restore it zeroed. The caller then fills in values and calls
 * xm_weights_changed. XRAY_E_UNSUPPORTED where the device cannot. */
xray_status xm_weights_evict(xm_weights *weights);
xray_status xm_weights_restore(xm_weights *weights);

/* Writes all parameters into the directory as fp32, with HF names and layouts:
 * model.safetensors, or shards of at most `max_shard` bytes and their index
 * (xm_st_write_model). XM_ST_SHARD_BYTES is the usual size. Weights kept as
 * bf16 and those of a slice or a stage are refused. */
xray_status xm_weights_save(const xm_weights *weights, const char *dir,
                            uint64_t max_shard, xr_err *err);

/* Describes the tensor of each parameter as such files do; a slice has a part
 * of each. */
struct xm_st_item;
void xm_layout_items(const xm_layout *layout, struct xm_st_item *out);

/* Bytes of fp32 weights on the device, packed copies not counted. */
uint64_t xm_layout_bytes(const xm_layout *layout);
/* The same of weights with XM_WEIGHTS_* flags, with the packed copies that
 * load->device makes of them. */
uint64_t xm_weights_bytes(const xm_layout *layout, int flags,
                          const xray_workload *load);
/* Bytes of the packed copies alone. */
uint64_t xm_packed_bytes(const xm_layout *layout, int flags,
                         const xray_workload *load);

#endif
