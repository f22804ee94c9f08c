/* SPDX-License-Identifier: Apache-2.0
 *
 * AdamW over the buckets of a layout (Loshchilov and Hutter, "Decoupled weight
 * decay regularization", 2019). fp32 weights are their own masters.
 */
#ifndef XM_TRAIN_ADAMW_H
#define XM_TRAIN_ADAMW_H

#include "model/nn/decoder.h"

typedef struct xm_adamw_options {
    double beta1;
    double beta2;
    double eps;
    double weight_decay; /* of matrices; norms and biases have none */
    float *memory;       /* where moments live, xm_adamw_state_bytes of it, or
                          * NULL: on the device */
    uint32_t whole; /* 1: moments of all elements, though the layout is cut */
    uint32_t reserved;
} xm_adamw_options;

/* A stretch of a bucket's range whose parameters share their decay. */
typedef struct xm_adamw_run {
    uint64_t offset; /* from the range's first element */
    uint64_t count;
    uint32_t bucket;
    uint32_t decay;
} xm_adamw_run;

typedef struct xm_adamw {
    const xray_device_ops *device;
    void *device_self;
    const xm_layout *layout;
    xm_adamw_options options;
    float **m;       /* [bucket_count] [dev], exp_avg of the range */
    float **v;       /* [bucket_count] [dev], exp_avg_sq */
    float *scalars;  /* [dev] [4], of xray_adamw */
    double *scratch; /* [dev] [2], for xm_grad_norm */
    xm_adamw_run *runs;
    uint32_t run_count;
    uint32_t reserved;
    uint64_t steps; /* updates made */
    double power1;  /* beta1^steps, by repeated products: the same bits on
                     * every machine, which pow() does not promise */
    double power2;
    float host_scalars[4];
} xm_adamw;

/* Moments of the rank's shares, of what is not frozen, start at 0 (tag
 * OPTIMIZER). The layout must outlive the result. */
xray_status xm_adamw_create(const xm_layout *layout,
                            const xray_device_ops *device, void *device_self,
                            const xm_adamw_options *options, const char *owner,
                            xr_err *err, xm_adamw **out);
void xm_adamw_destroy(xm_adamw *adamw); /* accepts NULL */
/* Bytes of the moments alone, and all that takes on the device. Pure. */
uint64_t xm_adamw_state_bytes(const xm_layout *layout, uint32_t whole);
uint64_t xm_adamw_bytes(const xm_layout *layout, uint32_t whole);
/* The elements of a bucket that have moments. */
xm_range xm_adamw_range(const xm_layout *layout, uint32_t bucket,
                        uint32_t whole);

/* One update with gradients times `clip`. Of each bucket, `weights` and `grads`
 * point at the first element of its range. The caller then calls
 * xm_weights_changed. */
xray_status xm_adamw_step(xm_adamw *adamw, float *const *weights,
                          float *const *grads, double lr, double clip,
                          xr_err *err);

/* Sets the number of updates made, as a resume does. */
void xm_adamw_set_steps(xm_adamw *adamw, uint64_t steps);

#endif
