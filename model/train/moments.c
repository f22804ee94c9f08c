/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams moments through slots of device memory, with a stream for each
 * direction and events between them and the stream that computes.
 */
#include "model/train/moments.h"

#include <inttypes.h>

#include "core/base/str.h"

#define PIECE ((uint64_t)XM_MOMENT_PIECE)

uint64_t xm_moments_bytes(void)
{
    return XM_MOMENT_SLOTS * 2 * PIECE * sizeof(float);
}

static xray_status create_order(xm_moments *m)
{
    const xray_device_ops *device = m->device;
    xray_status status = device->stream_create(m->device_self, &m->in);
    if (status == XRAY_OK)
        status = device->stream_create(m->device_self, &m->out);
    for (uint32_t s = 0; s < XM_MOMENT_SLOTS && status == XRAY_OK; s++) {
        status = device->event_create(m->device_self, &m->loaded[s]);
        if (status == XRAY_OK)
            status = device->event_create(m->device_self, &m->updated[s]);
        if (status == XRAY_OK)
            status = device->event_create(m->device_self, &m->stored[s]);
    }
    return status;
}

xray_status xm_moments_open(xm_moments *m, const xray_device_ops *device,
                            void *device_self, uint64_t bytes,
                            const char *owner, xr_err *err)
{
    void *at = NULL;
    *m = (xm_moments){ .device = device, .device_self = device_self };
    xray_status status = device->host_alloc(device_self, owner, bytes, &at);
    if (status != XRAY_OK)
        return xr_fail(err, status,
                       "%s: no %" PRIu64
                       " bytes of page-locked host memory for the moments",
                       owner, bytes);
    m->host = at;
    at = NULL;
    status = device->alloc(device_self, owner, XRAY_TAG_WORKSPACE,
                           xm_moments_bytes(), &at);
    m->slots = at;
    if (status == XRAY_OK)
        status = create_order(m);
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status,
                         "%s: no device memory to stream the moments through",
                         owner);
}

static void destroy_events(const xm_moments *m, xray_event *const *events)
{
    for (uint32_t s = 0; s < XM_MOMENT_SLOTS; s++)
        if (events[s])
            m->device->event_destroy(m->device_self, events[s]);
}

void xm_moments_close(xm_moments *m)
{
    const xray_device_ops *device = m->device;
    if (!device)
        return;
    if (m->out)
        (void)device->sync(m->device_self, m->out);
    destroy_events(m, m->loaded);
    destroy_events(m, m->updated);
    destroy_events(m, m->stored);
    if (m->in)
        device->stream_destroy(m->device_self, m->in);
    if (m->out)
        device->stream_destroy(m->device_self, m->out);
    device->free(m->device_self, m->slots);
    device->host_free(m->device_self, m->host);
    *m = (xm_moments){ 0 };
}

/* Enqueues on `stream` a copy of a piece's m and v, which waits for `after`
 * and is followed by `then`. */
static xray_status copy_piece(const xm_moments *m, xray_stream *stream,
                              xray_event *after, float *const to[2],
                              float *const from[2], uint64_t count,
                              uint32_t kind, xray_event *then)
{
    const xray_device_ops *device = m->device;
    xray_status status =
        after ? device->event_wait(m->device_self, stream, after) : XRAY_OK;
    for (int i = 0; i < 2 && status == XRAY_OK; i++)
        status = device->copy(m->device_self, stream, to[i], from[i],
                              count * sizeof(float), kind);
    return status == XRAY_OK
               ? device->event_record(m->device_self, stream, then)
               : status;
}

static xray_status update_piece(xm_moments *m, const xray_adamw *piece)
{
    const xray_device_ops *device = m->device;
    void *self = m->device_self;
    uint32_t slot = (uint32_t)(m->pieces % XM_MOMENT_SLOTS);
    xray_event *free_again =
        m->pieces >= XM_MOMENT_SLOTS ? m->stored[slot] : NULL;
    float *on_device[2] = { m->slots + 2 * slot * PIECE,
                            m->slots + (2 * slot + 1) * PIECE };
    float *on_host[2] = { piece->m, piece->v };
    xray_adamw own = *piece;
    own.m = on_device[0];
    own.v = on_device[1];
    xray_status status =
        copy_piece(m, m->in, free_again, on_device, on_host, piece->count,
                   XRAY_COPY_TO_DEVICE, m->loaded[slot]);
    if (status == XRAY_OK)
        status = device->event_wait(self, NULL, m->loaded[slot]);
    if (status == XRAY_OK)
        status = device->adamw(self, NULL, &own);
    if (status == XRAY_OK)
        status = device->event_record(self, NULL, m->updated[slot]);
    if (status == XRAY_OK)
        status = copy_piece(m, m->out, m->updated[slot], on_host, on_device,
                            piece->count, XRAY_COPY_TO_HOST, m->stored[slot]);
    m->pieces++;
    return status;
}

xray_status xm_moments_update(xm_moments *m, const xray_adamw *call)
{
    xray_status status = XRAY_OK;
    for (uint64_t at = 0; at < call->count && status == XRAY_OK; at += PIECE) {
        xray_adamw piece = *call;
        piece.count = call->count - at < PIECE ? call->count - at : PIECE;
        piece.p += at;
        piece.g += at;
        piece.m += at;
        piece.v += at;
        status = update_piece(m, &piece);
    }
    return status;
}

xray_status xm_moments_join(xm_moments *m)
{
    uint64_t last = m->pieces + XM_MOMENT_SLOTS - 1;
    return m->pieces ? m->device->event_wait(m->device_self, NULL,
                                             m->stored[last % XM_MOMENT_SLOTS])
                     : XRAY_OK;
}
