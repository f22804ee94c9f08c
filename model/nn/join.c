/* SPDX-License-Identifier: Apache-2.0
 *
 * Joins rows of tensor-parallel ranks: sums in the order of the tree, and
 * maxima.
 */
#include "model/nn/join.h"

#include <stdlib.h>

#include "core/base/str.h"

/* Floats of a rank that are gathered at once. */
#define PIECE ((uint64_t)4096)

uint64_t xm_join_bytes(uint32_t ranks)
{
    return ranks < 2 ? 0 : ranks * PIECE * sizeof(float);
}

xray_status xm_join_open(xm_join *join, const char *owner, xr_err *err)
{
    uint64_t bytes = xm_join_bytes(join->ranks);
    void *memory = NULL;
    if (bytes == 0)
        return XRAY_OK;
    join->copy = malloc(bytes);
    if (!join->copy)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", owner);
    xray_status status = join->device->alloc(
        join->device_self, owner, XRAY_TAG_WORKSPACE, bytes, &memory);
    join->gathered = memory;
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status,
                         "%s: no device memory for the maxima of %u "
                         "tensor-parallel ranks",
                         owner, join->ranks);
}

void xm_join_close(xm_join *join)
{
    if (join->gathered)
        join->device->free(join->device_self, join->gathered);
    free(join->copy);
    join->gathered = join->copy = NULL;
}

static xray_status copy_floats(const xm_join *join, float *to,
                               const float *from, uint64_t count, uint32_t kind,
                               xr_err *err)
{
    xray_status status = join->device->copy(join->device_self, NULL, to, from,
                                            count * sizeof(float), kind);
    if (status == XRAY_OK)
        status = join->device->sync(join->device_self, NULL);
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status,
                         "copying the maxima of tensor-parallel ranks failed");
}

/* Keeps the largest of every rank's numbers in the first rank's place. */
static void compare_ranks(const xm_join *join, uint64_t count)
{
    float *most = join->copy;
    for (uint32_t r = 1; r < join->ranks; r++)
        for (uint64_t i = 0; i < count; i++) {
            float other = join->copy[r * count + i];
            most[i] = other > most[i] ? other : most[i];
        }
}

static xray_status join_most(const xm_join *join, float *rows, uint64_t count,
                             xr_err *err)
{
    xray_status status = join->comm->all_gather(
        join->group, NULL, rows, join->gathered, count, XRAY_F32);
    if (status == XRAY_OK)
        status = copy_floats(join, join->copy, join->gathered,
                             count * join->ranks, XRAY_COPY_TO_HOST, err);
    if (status != XRAY_OK)
        return status;
    compare_ranks(join, count);
    return copy_floats(join, rows, join->copy, count, XRAY_COPY_TO_DEVICE, err);
}

xray_status xm_join_rows(const xm_join *join, uint32_t what, float *rows,
                         uint64_t tokens, uint64_t dim, xr_err *err)
{
    uint64_t count = tokens * dim;
    xray_status status = XRAY_OK;
    if (what != XM_JOIN_TOP)
        return join->comm->all_reduce(join->group, NULL, rows, count, XRAY_F32);
    for (uint64_t at = 0; at < count && status == XRAY_OK; at += PIECE)
        status = join_most(join, rows + at,
                           count - at < PIECE ? count - at : PIECE, err);
    return status;
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

xray_status xm_join_parts(const xm_join *join, const xm_parts *call,
                          xr_err *err)
{
    uint64_t count = call->tokens * call->dim;
    uint64_t bytes = count * sizeof(float);
    (void)err;
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
