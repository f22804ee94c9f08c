/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the group of the ranks that hold a model.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"
#include "model/train/group.h"

#define RECORD_FLOATS (sizeof(xm_group_record) / sizeof(float))
/* The other ranks see so much of the sentence of the rank that failed. */
#define REASON_BYTES (3 * sizeof(xm_group_record))

uint64_t xm_group_bytes(uint32_t size)
{
    return size > 1 ? (size + 1) * (uint64_t)sizeof(xm_group_record) : 0;
}

xray_status xm_group_open(const xray_setup *setup, const char *owner,
                          xr_err *err, xm_group *out)
{
    const xray_world *world = setup->world;
    void *records = NULL;
    *out = (xm_group){ .device = setup->device,
                       .device_self = setup->device_self,
                       .size = world && world->size ? world->size : 1 };
    out->all = xr_calloc(out->size, sizeof(*out->all));
    if (!out->all)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", owner);
    if (out->size < 2)
        return XRAY_OK;
    out->rank = world->rank;
    out->comm = world->comm;
    out->group = world->group;
    if (!world->comm || !world->group || world->rank >= world->size)
        return xr_fail(err, XRAY_E_CONFIG,
                       "rank %" PRIu32 " of %" PRIu32
                       " ranks has no collectives: [run] comm must name "
                       "them",
                       world->rank, world->size);
    xray_status status =
        out->device->stream_create(out->device_self, &out->stream);
    if (status == XRAY_OK)
        status = out->device->event_create(out->device_self, &out->computed);
    if (status == XRAY_OK)
        status = out->device->event_create(out->device_self, &out->moved);
    if (status == XRAY_OK)
        status = out->device->alloc(out->device_self, owner, XRAY_TAG_WORKSPACE,
                                    xm_group_bytes(out->size), &records);
    if (status != XRAY_OK) {
        xm_group_close(out);
        return xr_fail(err, status, "%s: no stream for collectives", owner);
    }
    out->records = records;
    return XRAY_OK;
}

void xm_group_close(xm_group *g)
{
    if (g->records)
        g->device->free(g->device_self, g->records);
    if (g->moved)
        g->device->event_destroy(g->device_self, g->moved);
    if (g->computed)
        g->device->event_destroy(g->device_self, g->computed);
    if (g->stream)
        g->device->stream_destroy(g->device_self, g->stream);
    free(g->all);
    *g = (xm_group){ 0 };
}

xray_status xm_group_wait_compute(const xm_group *g)
{
    if (!g->stream)
        return XRAY_OK;
    xray_status status =
        g->device->event_record(g->device_self, NULL, g->computed);
    return status == XRAY_OK
               ? g->device->event_wait(g->device_self, g->stream, g->computed)
               : status;
}

xray_status xm_group_wait_collectives(const xm_group *g)
{
    if (!g->stream)
        return XRAY_OK;
    xray_status status =
        g->device->event_record(g->device_self, g->stream, g->moved);
    return status == XRAY_OK
               ? g->device->event_wait(g->device_self, NULL, g->moved)
               : status;
}

xray_status xm_group_exchange(const xm_group *g, const xm_group_record *mine)
{
    if (g->size < 2) {
        g->all[0] = *mine;
        return XRAY_OK;
    }
    float *to = g->records;
    float *from = to + g->size * RECORD_FLOATS;
    xray_status status = g->device->copy(g->device_self, g->stream, from, mine,
                                         sizeof(*mine), XRAY_COPY_TO_DEVICE);
    if (status == XRAY_OK)
        status = g->comm->all_gather(g->group, g->stream, from, to,
                                     RECORD_FLOATS, XRAY_F32);
    if (status == XRAY_OK)
        status = g->device->copy(g->device_self, g->stream, g->all, to,
                                 g->size * sizeof(*g->all), XRAY_COPY_TO_HOST);
    return status == XRAY_OK ? g->device->sync(g->device_self, g->stream)
                             : status;
}

/* Passes the reason of rank `from` to those that have none of their own. All
 * ranks take part. "" if that fails, too. */
static void share_reason(const xm_group *g, uint32_t from, const xr_err *own,
                         char out[REASON_BYTES + 1])
{
    char text[REASON_BYTES + 1] = "";
    if (own)
        memcpy(text, own->text, strnlen(own->text, REASON_BYTES));
    memset(out, 0, REASON_BYTES + 1);
    for (size_t at = 0; at < REASON_BYTES; at += sizeof(xm_group_record)) {
        xm_group_record piece;
        memcpy(&piece, text + at, sizeof(piece));
        if (xm_group_exchange(g, &piece) != XRAY_OK) {
            out[0] = '\0';
            return;
        }
        memcpy(out + at, &g->all[from], sizeof(piece));
    }
}

/* The first rank that failed; `size` if none did. */
static uint32_t find_failed_rank(const xm_group *g, xray_status *out_code)
{
    uint32_t r = 0;
    while (r < g->size && g->all[r].code == XRAY_OK)
        r++;
    *out_code = r < g->size ? (xray_status)g->all[r].code : XRAY_OK;
    return r;
}

xray_status xm_group_agree_on(const xm_group *g, xray_status mine,
                              uint64_t digest, const char *what, xr_err *err)
{
    xm_group_record own = { .squares = { digest }, .code = mine };
    if (g->size < 2)
        return mine;
    xray_status status = xm_group_exchange(g, &own);
    if (status != XRAY_OK)
        return mine != XRAY_OK ? mine : status;
    xray_status code;
    uint32_t failed = find_failed_rank(g, &code);
    if (failed < g->size) {
        char why[REASON_BYTES + 1];
        share_reason(g, failed, mine == XRAY_OK ? NULL : err, why);
        return mine != XRAY_OK
                   ? mine
                   : xr_fail(err, code,
                             "rank %" PRIu32 " of %" PRIu32 " failed (%d)%s%s",
                             failed, g->size, (int)code, *why ? ": " : "", why);
    }
    for (uint32_t r = 1; r < g->size; r++)
        if (g->all[r].squares[0] != g->all[0].squares[0])
            return xr_fail(err, XRAY_E_CONFIG,
                           "rank %" PRIu32 " of %" PRIu32
                           " has other %s than rank 0, expected the same on "
                           "all ranks",
                           r, g->size, what);
    return XRAY_OK;
}

xray_status xm_group_agree(void *ctx, xray_status mine, xr_err *err)
{
    return xm_group_agree_on(ctx, mine, 0, "", err);
}
