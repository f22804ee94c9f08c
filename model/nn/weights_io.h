/* SPDX-License-Identifier: Apache-2.0
 *
 * What the sources and sinks of weights share.
 */
#ifndef XM_WEIGHTS_IO_H
#define XM_WEIGHTS_IO_H

#include "model/nn/internal.h"

/* The way of values to a device: straight, or through a buffer where the host
 * cannot reach its memory. */
typedef struct xm_stage {
    const xray_device_ops *device;
    void *device_self;
    int direct;    /* the host writes device memory itself */
    float *buffer; /* NULL where values need no stop on their way */
} xm_stage;

xray_status xm_stage_open(const xm_weights *weights, xr_err *err,
                          xm_stage *out);
void xm_stage_close(xm_stage *stage); /* accepts a zeroed one */
/* Copies and waits. */
xray_status xm_stage_move(const xm_stage *stage, void *to, const void *from,
                          uint64_t count, uint32_t kind);

/* Gives elements [first, first + count) of a parameter, in the order they have
 * on the device. */
typedef xray_status (*xm_source)(void *ctx, uint64_t first, uint64_t count,
                                 float *out, xr_err *err);
/* Fills the elements of a parameter that the table holds. */
xray_status xm_stage_fill(const xm_weights *weights, const xm_param *param,
                          const xm_stage *stage, xm_source from, void *ctx,
                          xr_err *err);

/* A parameter's entry in the published table: where it lies on the device. */
static inline const xray_tensor *xm_param_tensor(const xm_weights *weights,
                                                 const xm_param *param)
{
    return &weights->tensors[param - weights->layout->params];
}

/* XRAY_E_STATE while readers hold the weights. */
xray_status xm_weights_check_unleased(const xm_weights *weights, xr_err *err);

/* The shape of a tensor against a parameter's; `on_disk`: as files have it. */
xray_status xm_param_check_shape(const xm_param *param, int on_disk,
                                 const uint64_t *shape, uint32_t dims,
                                 const char *where, xr_err *err);

/* A tensor of a table, or NULL; and the one of a parameter, whole or a part,
 * after a look at its shape. */
const xray_tensor *xm_tensor_named(const xray_weights *table, const char *name);
xray_status xm_tensor_shaped(const xray_weights *table, const xm_param *param,
                             xr_err *err, const xray_tensor **out);

#endif
