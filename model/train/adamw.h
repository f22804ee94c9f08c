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
} xm_adamw_options;

/* A stretch of a bucket whose parameters share their decay. */
typedef struct xm_adamw_run {
    uint64_t offset;
    uint64_t count;
    uint32_t bucket;
    uint32_t decay;
} xm_adamw_run;

typedef struct xm_adamw {
    const xray_device_ops *device;
    void *device_self;
    const xm_layout *layout;
    xm_adamw_options options;
    float **m;       /* [bucket_count] [dev], exp_avg */
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

/* Moments start at 0 (tag OPTIMIZER). The layout must outlive the result. */
xray_status xm_adamw_create(const xm_layout *layout,
                            const xray_device_ops *device, void *device_self,
                            const xm_adamw_options *options, const char *owner,
                            xr_err *err, xm_adamw **out);
void xm_adamw_destroy(xm_adamw *adamw); /* accepts NULL */
/* Device bytes that takes. Pure. */
uint64_t xm_adamw_bytes(const xm_layout *layout);

/* One update of `weights` (buckets of the layout) with gradients times `clip`.
 * The caller then calls xm_weights_changed. */
xray_status xm_adamw_step(xm_adamw *adamw, float *const *weights,
                          const xm_grads *grads, double lr, double clip,
                          xr_err *err);

/* Sets the number of updates made, as a resume does. */
void xm_adamw_set_steps(xm_adamw *adamw, uint64_t steps);

#endif
