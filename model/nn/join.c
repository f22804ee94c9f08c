/* SPDX-License-Identifier: Apache-2.0
 *
 * Joins rows of tensor-parallel ranks: sums in the order of the tree, and
 * maxima.
 */
#include "model/nn/join.h"

xray_status xm_join_rows(const xm_join *join, uint32_t what, float *rows,
                         uint64_t tokens, uint64_t dim)
{
    return (what == XM_JOIN_TOP ? join->comm->all_reduce_max
                                : join->comm->all_reduce)(
        join->group, NULL, rows, tokens * dim, XRAY_F32);
}

/* Hands a chain on to the next rank, and the last rank's to all. */
static xray_status hand_on(const xm_join *join, void *data, uint64_t bytes)
{
    uint32_t last = join->ranks - 1;
    xray_status status = XRAY_OK;
    if (join->rank < last)
        status =
            join->comm->send(join->group, NULL, data, bytes, join->rank + 1);
    return status == XRAY_OK
               ? join->comm->broadcast(join->group, NULL, data, bytes, last)
               : status;
}

xray_status xm_join_parts(const xm_join *join, const xm_parts *call)
{
    uint64_t count = call->tokens * call->dim;
    uint64_t bytes = count * sizeof(float);
    switch (call->what) {
    case XM_PARTS_GATHER:
        return join->comm->all_gather(join->group, NULL, call->in, call->out,
                                      count,
                                      call->dtype ? call->dtype : XRAY_F32);
    case XM_PARTS_SUM:
        return join->comm->reduce_scatter(join->group, NULL, call->in,
                                          call->out, count, XRAY_F32);
    case XM_PARTS_CONTINUE:
        return join->rank ? join->comm->recv(join->group, NULL, call->out,
                                             bytes, join->rank - 1)
                          : XRAY_OK;
    default:
        return hand_on(join, call->out, bytes);
    }
}

xray_status xm_join_kv_grads(const xm_join *join, const xm_layout *layout,
                             uint32_t bucket, float *grads)
{
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; i < layout->param_count && status == XRAY_OK; i++) {
        const xm_param *param = &layout->params[i];
        uint64_t count = param->count - param->shared;
        if (param->bucket != bucket || count == 0)
            continue;
        /* v follows k, so both are one sum. */
        if (i + 1 < layout->param_count && param[1].joined) {
            count += param[1].count;
            i++;
        }
        status = join->comm->all_reduce(join->group, NULL,
                                        grads + param->offset + param->shared,
                                        count, XRAY_F32);
    }
    return status;
}
