/* SPDX-License-Identifier: Apache-2.0
 *
 * AdamW over the buckets of a layout (Loshchilov and Hutter, "Decoupled weight
 * decay regularization", 2019). The fp32 weights serve as their own master
 * copy.
 */
#ifndef XM_TRAIN_ADAMW_H
#define XM_TRAIN_ADAMW_H

#include "core/base/services.h"
#include "model/nn/decoder.h"
#include "model/train/host_memory.h"
#include "model/train/moments.h"

#define XM_ADAMW_SENDERS 2u

typedef struct xm_adamw_options {
    double beta1;
    double beta2;
    double eps;
    double weight_decay; /* of matrices; norms and biases are not decayed */
    float *memory; /* memory for the moments, xm_adamw_state_bytes of it; NULL:
                    * they are allocated on the device */
    uint32_t all_elements; /* 1: this rank holds the moments of all elements,
                            * even where the layout is sharded */
    uint32_t streamed;     /* 1: the moments are in page-locked host memory, and
                            * each update takes them through the device */
} xm_adamw_options;

/* Consecutive elements of a bucket's range that share their weight decay. */
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
    float **m;         /* [bucket_count] [dev], exp_avg of each range; streamed
                        * ones are in host memory */
    float **v;         /* [bucket_count] likewise, exp_avg_sq of each range */
    xm_moments stream; /* of streamed moments */
    float *scalars;    /* [dev] [4], the scalars of xray_adamw */
    uint64_t *squares; /* [dev] [XRAY_SQUARES_WORDS], for xm_grad_squares */
    xm_adamw_run *runs;
    uint32_t run_count;
    uint32_t reserved;
    /* Set by the owner: updating, saving and restoring end when it says so; or
     * NULL. */
    const xray_call_service *calls;
    uint64_t steps; /* number of updates */
    double power1;  /* beta1^steps by repeated multiplication, which gives the
                     * same bits on every machine; pow() does not promise that */
    double power2;
    float host_scalars[4];
    /* Where the device copies them from, by turns, so that an update need not
     * wait for the one before it; without memory on a device that computes in
     * host memory. */
    xm_staging senders[XM_ADAMW_SENDERS];
    uint64_t sent;
} xm_adamw;

/* Allocates the moments of the rank's shares (tag OPTIMIZER) and sets them to
 * 0; frozen parameters have none. The layout must outlive the result. */
xray_status xm_adamw_create(const xm_layout *layout,
                            const xray_device_ops *device, void *device_self,
                            const xm_adamw_options *options, const char *owner,
                            xr_err *err, xm_adamw **out);
void xm_adamw_destroy(xm_adamw *adamw); /* accepts NULL */
/* Bytes of the moments alone, and of everything that xm_adamw_create allocates
 * on the device. Both are pure. */
uint64_t xm_adamw_state_bytes(const xm_layout *layout, uint32_t all_elements);
uint64_t xm_adamw_bytes(const xm_layout *layout, uint32_t all_elements);
/* The range of a bucket's elements that have moments on this rank. */
xm_range xm_adamw_range(const xm_layout *layout, uint32_t bucket,
                        uint32_t all_elements);

/* Performs one update with the gradients multiplied by `clip`. For each bucket,
 * `weights` and `grads` point at the first element of its range. The caller
 * must then call xm_weights_changed. */
xray_status xm_adamw_step(xm_adamw *adamw, float *const *weights,
                          float *const *grads, double lr, double clip,
                          xr_err *err);

/* Sets the number of updates, as a resume does. */
void xm_adamw_set_steps(xm_adamw *adamw, uint64_t steps);

#endif
