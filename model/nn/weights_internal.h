/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares what the functions that fill, import and save weights share: copies
 * between host and device, and how to find and check the tensor of a parameter.
 */
#ifndef XM_WEIGHTS_INTERNAL_H
#define XM_WEIGHTS_INTERNAL_H

#include "model/nn/internal.h"
#include "model/nn/weights_threads.h"

/* How values reach a device: the host writes them there itself, or through a
 * buffer if it cannot access the device's memory. The members after
 * `thread_limit` are made when the first parameter is filled. */
typedef struct xm_stage {
    const xray_device_ops *device;
    void *device_self;
    int direct; /* the host can write device memory */
    int serial; /* sources use a device, so only the caller's thread may */
    uint32_t thread_limit; /* of the device; 0: not known */
    int busy[2];           /* the half is being copied */
    xm_threads *threads;
    float *scratch; /* where threads produce what is then rounded */
    float *buffer;  /* page-locked, two halves; NULL if `direct` */
    uint64_t half;  /* elements */
    xray_event *copied[2];
} xm_stage;

xray_status xm_stage_open(const xm_weights *weights, xr_err *err,
                          xm_stage *out);
void xm_stage_close(xm_stage *stage); /* accepts a zeroed one */
/* Copy bytes, or floats, and wait until they have arrived. `kind` is an
 * XRAY_COPY_*. */
xray_status xm_stage_copy_bytes(const xm_stage *stage, void *to,
                                const void *from, uint64_t bytes,
                                uint32_t kind);
xray_status xm_stage_copy_floats(const xm_stage *stage, void *to,
                                 const void *from, uint64_t count,
                                 uint32_t kind);

/* Produces elements [first, first + count) of a parameter's entire tensor, in
 * the order they have on the device. Called by several threads at once unless
 * the stage is serial. */
typedef xray_status (*xm_source)(void *ctx, uint64_t first, uint64_t count,
                                 float *out, xr_err *err);
/* Fills the elements of a parameter that these weights hold, all or a shard,
 * with what `from` produces. */
xray_status xm_stage_fill(const xm_weights *weights, const xm_param *param,
                          xm_stage *stage, xm_source from, void *ctx,
                          xr_err *err);

/* Draws elements [first, first + count) of an endless sequence of normal
 * numbers with this standard deviation; and the same one pair at a time. */
void xm_draw_normals(uint64_t key, double deviation, uint64_t first,
                     uint64_t count, float *out);
void xm_draw_normals_plain(uint64_t key, double deviation, uint64_t first,
                           uint64_t count, float *out);

/* Returns what the weights hold of a parameter. */
static inline const xm_held *xm_param_held(const xm_weights *weights,
                                           const xm_param *param)
{
    return &weights->held[param - weights->layout->params];
}

/* Returns XRAY_E_STATE while readers hold leases on the weights. */
xray_status xm_weights_check_unleased(const xm_weights *weights, xr_err *err);

/* Fails if a tensor's shape is not the parameter's; with `on_disk`, not the one
 * in which files store the parameter. */
xray_status xm_param_check_shape(const xm_param *param, int on_disk,
                                 const uint64_t *shape, uint32_t dims,
                                 const char *where, xr_err *err);

/* Returns the first box of this name, or NULL. */
const xray_tensor *xm_find_tensor(const xray_weights *table, const char *name);
/* Returns the next box of the same tensor, or NULL. */
const xray_tensor *xm_next_box(const xray_weights *table,
                               const xray_tensor *box);
/* Finds the first box of a parameter, and checks its shape. */
xray_status xm_find_param_tensor(const xray_weights *table,
                                 const xm_param *param, xr_err *err,
                                 const xray_tensor **out);

#endif
