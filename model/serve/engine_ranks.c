/* SPDX-License-Identifier: Apache-2.0
 *
 * Serves engines of several ranks: they join their parts of each layer, gather
 * the logits, from which every rank draws the same tokens, and compare what
 * they were asked for.
 */
#include <inttypes.h>
#include <string.h>

#include "core/base/hash.h"
#include "model/serve/engine_internal.h"

static xray_status join_rows(void *ctx, uint32_t what, float *rows,
                             uint64_t tokens, uint64_t dim, xr_err *err)
{
    const xm_engine *self = ctx;
    xray_status status = xm_join_rows(&self->join, what, rows, tokens, dim);
    return status == XRAY_OK
               ? status
               : xr_fail(err, status,
                         "%s: the ranks could not join what they computed",
                         self->name);
}

xray_status xm_engine_join_ranks(xm_engine *self, const xray_world *world,
                                 xr_err *err)
{
    if (self->bounds.ranks < 2)
        return XRAY_OK;
    if (world->size != self->bounds.ranks || !world->comm)
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: an engine of %" PRIu32
                       " ranks was planned, but its world has %" PRIu32,
                       self->name, self->bounds.ranks, world->size);
    self->join = (xm_join){ .comm = world->comm,
                            .group = world->group,
                            .ranks = world->size,
                            .rank = world->rank };
    /* Counts of an engine are those of any of its ranks. */
    if (world->rank)
        self->metrics = NULL;
    return XRAY_OK;
}

xm_watch xm_engine_watch(xm_engine *self)
{
    return (xm_watch){ .ctx = self,
                       .calls = self->calls,
                       .join = self->bounds.ranks > 1 ? join_rows : NULL };
}

/* ---- logits -------------------------------------------------------------- */

float *xm_engine_own_logits(const xm_engine *self, uint32_t count,
                            uint64_t *out_stride)
{
    *out_stride = self->bounds.logits / self->bounds.ranks;
    return self->bounds.ranks > 1
               ? self->parts + self->join.rank * count * *out_stride
               : self->logits;
}

xray_status xm_engine_gather_logits(xm_engine *self, uint32_t count)
{
    uint32_t ranks = self->bounds.ranks;
    uint64_t width = 0;
    int32_t *order = self->host_arrays.order;
    if (ranks < 2)
        return XRAY_OK;
    const xm_parts gather = { .what = XM_PARTS_GATHER,
                              .in = xm_engine_own_logits(self, count, &width),
                              .out = self->parts,
                              .tokens = count,
                              .dim = width };
    xray_rows rows = {
        .header = XRAY_HEADER(xray_rows),
        .count = { .bound = (uint64_t)count * ranks },
        .index = self->device_arrays.order,
        .x = self->parts,
        .y = self->logits,
        .dim = width,
    };
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t r = 0; r < ranks; r++)
            order[i * ranks + r] = (int32_t)(r * count + i);
    xray_status status = xm_join_parts(&self->join, &gather);
    if (status == XRAY_OK)
        status = xm_engine_upload(self, self->device_arrays.order, order,
                                  (size_t)count * ranks * sizeof(*order));
    return status == XRAY_OK
               ? self->device->gather(self->device_self, NULL, &rows)
               : status;
}

/* ---- the same calls ------------------------------------------------------ */

void xm_engine_note_call(xm_engine *self, const void *data, size_t size)
{
    if (self->bounds.ranks > 1)
        self->told = xr_hash64(data, size, self->told);
}

static void note_ids(xm_engine *self, const int32_t *ids, uint32_t count)
{
    if (count)
        xm_engine_note_call(self, ids, count * sizeof(*ids));
}

static void note_lists(xm_engine *self, const xray_id_list *lists,
                       uint32_t count, uint32_t stride)
{
    for (uint32_t i = 0; i < count; i++) {
        const void *at = (const char *)lists + (size_t)i * stride;
        const xray_id_list *list = at;
        note_ids(self, list->ids, list->count);
    }
}

static void note_biases(xm_engine *self, const xray_request *request)
{
    for (uint32_t i = 0; i < request->bias_count; i++)
        xm_engine_note_call(self,
                            (const char *)request->biases +
                                (size_t)i * request->bias_stride,
                            sizeof(xray_bias));
}

void xm_engine_note_request(xm_engine *self, const xray_request *request)
{
    const xray_request *r = request;
    const uint64_t numbers[] = {
        r->id,           r->count,         r->first_sample,
        r->max_tokens,   r->seed,          r->step,
        r->prompt_id,    r->hold,          r->stream,
        r->id_count,     r->stop_count,    r->stop_list_count,
        r->repeat_size,  r->repeat_count,  r->min_tokens,
        r->bias_count,   r->allowed_count, r->banned_list_count,
        r->forced_count, r->top_count,     r->logp_id_count,
        r->prompt_logp
    };
    const float reals[] = { r->temperature,
                            r->top_p,
                            r->min_p,
                            (float)r->top_k,
                            r->repetition_penalty,
                            r->frequency_penalty,
                            r->presence_penalty };
    if (self->bounds.ranks < 2)
        return;
    xm_engine_note_call(self, numbers, sizeof(numbers));
    xm_engine_note_call(self, reals, sizeof(reals));
    note_ids(self, r->ids, r->id_count);
    note_ids(self, r->stop_ids, r->stop_count);
    note_ids(self, r->allowed_ids, r->allowed_count);
    note_ids(self, r->forced_ids, r->forced_count);
    note_ids(self, r->logp_ids, r->logp_id_count);
    note_lists(self, r->stop_lists, r->stop_list_count, r->stop_list_stride);
    note_lists(self, r->banned_lists, r->banned_list_count,
               r->banned_list_stride);
    note_biases(self, r);
}

xray_status xm_engine_agree(xm_engine *self, xr_err *err)
{
    const uint32_t ranks = self->bounds.ranks;
    float *host = self->host_arrays.digests;
    float *device = self->device_arrays.digests;
    const size_t size = XM_DIGEST_FLOATS * sizeof(float);
    const size_t own = (size_t)ranks * XM_DIGEST_FLOATS;
    if (ranks < 2)
        return XRAY_OK;
    const uint64_t mine[2] = { self->told, xm_engine_version(self) };
    memcpy(host + own, mine, size);
    xray_status status = xm_engine_upload(self, device + own, host + own, size);
    if (status == XRAY_OK)
        status =
            self->join.comm->all_gather(self->join.group, NULL, device + own,
                                        device, XM_DIGEST_FLOATS, XRAY_F32);
    if (status == XRAY_OK)
        status = xm_engine_download(self, host, device, ranks * size);
    if (status == XRAY_OK)
        status = self->device->sync(self->device_self, NULL);
    for (uint32_t r = 1; r < ranks && status == XRAY_OK; r++)
        if (memcmp(host + (size_t)r * XM_DIGEST_FLOATS, host, size) != 0)
            return xr_fail(err, XRAY_E_PEER,
                           "%s: rank %" PRIu32 " of %" PRIu32
                           " was given other requests or weights than rank 0",
                           self->name, r, ranks);
    return status == XRAY_OK
               ? status
               : xr_fail(err, status,
                         "%s: the ranks could not compare what they were given",
                         self->name);
}
