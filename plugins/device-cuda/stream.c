/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies, checksums, streams, events and graphs of the CUDA device. The handles
 * of streams and events are CUDA's own.
 */
#include "plugins/device-cuda/instance.h"

#include <stdlib.h>

#include <xray/numerics.h>

static cuda_device *get_device(void *self)
{
    return (cuda_device *)self;
}

/* Each thread has its own current device in CUDA, and a thread that has set
 * none would use GPU 0, so every call sets it. */
static xray_status select_device(const cuda_device *d, const char *where)
{
    return cuda_check(d, where, cudaSetDevice(d->index));
}

cudaStream_t cuda_stream(const cuda_device *d, xray_stream *stream)
{
    /* If this fails, so does the work on the stream. */
    (void)cudaSetDevice(d->index);
    return stream ? (cudaStream_t)(void *)stream : d->stream;
}

/* ---- copies -------------------------------------------------------------- */

/* By XRAY_COPY_*. */
static const enum cudaMemcpyKind copy_kinds[] = {
    cudaMemcpyDefault,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
};

xray_status cuda_copy(void *self, xray_stream *stream, void *to,
                      const void *from, uint64_t bytes, uint32_t kind)
{
    const cuda_device *d = get_device(self);
    if (bytes > 0 && (!to || !from))
        return cuda_fail(d, XRAY_E_ARG, "copy", "a pointer is NULL");
    if (kind < XRAY_COPY_TO_DEVICE || kind > XRAY_COPY_ON_DEVICE)
        return cuda_fail(d, XRAY_E_ARG, "copy", "unknown kind %u", kind);
    if (bytes == 0)
        return XRAY_OK;
    return cuda_check(d, "copy",
                      cudaMemcpyAsync(to, from, bytes, copy_kinds[kind],
                                      cuda_stream(d, stream)));
}

xray_status cuda_zero(void *self, xray_stream *stream, void *ptr,
                      uint64_t bytes)
{
    const cuda_device *d = get_device(self);
    if (bytes > 0 && !ptr)
        return cuda_fail(d, XRAY_E_ARG, "zero", "the pointer is NULL");
    if (bytes == 0)
        return XRAY_OK;
    return cuda_check(d, "zero",
                      cudaMemsetAsync(ptr, 0, bytes, cuda_stream(d, stream)));
}

/* The most bytes from a row to the next that cudaMemcpy2DAsync takes. */
#define PITCH_MOST ((uint64_t)INT32_MAX)

static xray_status copy_each_row(const cuda_device *d, cudaStream_t stream,
                                 const xray_copy_rows *r)
{
    xray_status status = XRAY_OK;
    unsigned char *to = (unsigned char *)r->to;
    const unsigned char *from = (const unsigned char *)r->from;
    for (uint64_t i = 0; i < r->rows && status == XRAY_OK; i++)
        status = cuda_check(d, "copy_rows",
                            cudaMemcpyAsync(to + i * r->to_pitch,
                                            from + i * r->from_pitch, r->bytes,
                                            copy_kinds[r->kind], stream));
    return status;
}

xray_status cuda_copy_rows(void *self, xray_stream *stream,
                           const xray_copy_rows *rows)
{
    const cuda_device *d = get_device(self);
    CUDA_CHECK(d, rows, "copy_rows", rows);
    if (rows->kind < XRAY_COPY_TO_DEVICE || rows->kind > XRAY_COPY_ON_DEVICE)
        return cuda_fail(d, XRAY_E_ARG, "copy_rows", "unknown kind %u",
                         rows->kind);
    if (rows->rows == 0 || rows->bytes == 0)
        return XRAY_OK;
    if (!rows->to || !rows->from)
        return cuda_fail(d, XRAY_E_ARG, "copy_rows", "a pointer is NULL");
    if (rows->rows > 1 &&
        (rows->to_pitch < rows->bytes || rows->from_pitch < rows->bytes))
        return cuda_fail(d, XRAY_E_ARG, "copy_rows",
                         "a pitch is shorter than the row");
    cudaStream_t on = cuda_stream(d, stream);
    if (rows->rows == 1 || rows->to_pitch > PITCH_MOST ||
        rows->from_pitch > PITCH_MOST)
        return copy_each_row(d, on, rows);
    return cuda_check(d, "copy_rows",
                      cudaMemcpy2DAsync(rows->to, rows->to_pitch, rows->from,
                                        rows->from_pitch, rows->bytes,
                                        rows->rows, copy_kinds[rows->kind],
                                        on));
}

xray_status cuda_checksum(void *self, const xray_checksum_rows *rows,
                          uint64_t *out)
{
    const cuda_device *d = get_device(self);
    CUDA_CHECK(d, rows, "checksum", rows);
    int empty = rows->rows == 0 || rows->bytes == 0;
    if (!out || (!empty && !rows->data))
        return cuda_fail(d, XRAY_E_ARG, "checksum", "a pointer is NULL");
    uint64_t sum = 0;
    /* Waits for all streams: the caller may have written the bytes on any of
     * them. */
    xray_status status = select_device(d, "checksum");
    if (status != XRAY_OK)
        return status;
    status = cuda_check(d, "checksum", cudaDeviceSynchronize());
    if (status != XRAY_OK)
        return status;
    status = cuda_check(d, "checksum",
                        cudaMemsetAsync(d->sum, 0, sizeof(*d->sum), d->stream));
    if (status != XRAY_OK)
        return status;
    if (!empty)
        status = cuda_checksum_run(d, rows, d->sum);
    if (status != XRAY_OK)
        return status;
    status = cuda_check(d, "checksum",
                        cudaMemcpyAsync(&sum, d->sum, sizeof(sum),
                                        cudaMemcpyDeviceToHost, d->stream));
    if (status != XRAY_OK)
        return status;
    status = cuda_check(d, "checksum", cudaStreamSynchronize(d->stream));
    if (status != XRAY_OK)
        return status;
    *out = sum + xray_checksum_length(rows->rows * rows->bytes);
    return XRAY_OK;
}

/* ---- streams, events ----------------------------------------------------- */

xray_status cuda_stream_create(void *self, xray_stream **out)
{
    const cuda_device *d = get_device(self);
    cudaStream_t s = NULL;
    if (!out)
        return cuda_fail(d, XRAY_E_ARG, "stream_create", "out is NULL");
    xray_status status = select_device(d, "stream_create");
    if (status != XRAY_OK)
        return status;
    status = cuda_check(d, "stream_create",
                        cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    if (status == XRAY_OK)
        *out = (xray_stream *)(void *)s;
    return status;
}

void cuda_stream_destroy(void *self, xray_stream *stream)
{
    if (!stream || select_device(get_device(self), "stream_destroy") != XRAY_OK)
        return;
    (void)cudaStreamDestroy(cuda_stream(get_device(self), stream));
}

xray_status cuda_sync(void *self, xray_stream *stream)
{
    const cuda_device *d = get_device(self);
    return cuda_check(d, "sync", cudaStreamSynchronize(cuda_stream(d, stream)));
}

xray_status cuda_event_create(void *self, xray_event **out)
{
    const cuda_device *d = get_device(self);
    cudaEvent_t e = NULL;
    if (!out)
        return cuda_fail(d, XRAY_E_ARG, "event_create", "out is NULL");
    xray_status status = select_device(d, "event_create");
    if (status != XRAY_OK)
        return status;
    status = cuda_check(d, "event_create",
                        cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    if (status == XRAY_OK)
        *out = (xray_event *)(void *)e;
    return status;
}

static cudaEvent_t get_event(xray_event *event)
{
    return (cudaEvent_t)(void *)event;
}

void cuda_event_destroy(void *self, xray_event *event)
{
    (void)self;
    if (event)
        (void)cudaEventDestroy(get_event(event));
}

xray_status cuda_event_record(void *self, xray_stream *stream,
                              xray_event *event)
{
    const cuda_device *d = get_device(self);
    if (!event)
        return cuda_fail(d, XRAY_E_ARG, "event_record", "event is NULL");
    return cuda_check(
        d, "event_record",
        cudaEventRecord(get_event(event), cuda_stream(d, stream)));
}

xray_status cuda_event_wait(void *self, xray_stream *stream, xray_event *event)
{
    const cuda_device *d = get_device(self);
    if (!event)
        return cuda_fail(d, XRAY_E_ARG, "event_wait", "event is NULL");
    return cuda_check(
        d, "event_wait",
        cudaStreamWaitEvent(cuda_stream(d, stream), get_event(event), 0));
}

xray_status cuda_event_query(void *self, xray_event *event)
{
    const cuda_device *d = get_device(self);
    if (!event)
        return cuda_fail(d, XRAY_E_ARG, "event_query", "event is NULL");
    xray_status status = select_device(d, "event_query");
    if (status != XRAY_OK)
        return status;
    cudaError_t error = cudaEventQuery(get_event(event));
    if (error != cudaErrorNotReady)
        return cuda_check(d, "event_query", error);
    (void)cudaGetLastError(); /* or the next launch would report it */
    return XRAY_AGAIN;
}

xray_status cuda_event_sync(void *self, xray_event *event)
{
    const cuda_device *d = get_device(self);
    if (!event)
        return cuda_fail(d, XRAY_E_ARG, "event_sync", "event is NULL");
    xray_status status = select_device(d, "event_sync");
    return status == XRAY_OK
               ? cuda_check(d, "event_sync",
                            cudaEventSynchronize(get_event(event)))
               : status;
}

/* ---- graphs -------------------------------------------------------------- */

struct xray_graph {
    cudaGraphExec_t ready;
    uint64_t scratch_moves; /* of the instance when it was recorded */
};

xray_status cuda_graph_begin(void *self, xray_stream *stream)
{
    cuda_device *d = get_device(self);
    if (d->capturing)
        return cuda_fail(d, XRAY_E_STATE, "graph_begin",
                         "a graph is being captured already");
    /* A refresh inside the capture would be repeated by every launch. */
    xray_status status = cuda_weights_refresh(d, cuda_stream(d, stream));
    if (status != XRAY_OK)
        return status;
    status =
        cuda_check(d, "graph_begin",
                   cudaStreamBeginCapture(cuda_stream(d, stream),
                                          cudaStreamCaptureModeThreadLocal));
    if (status == XRAY_OK)
        d->capturing = 1;
    return status;
}

xray_status cuda_graph_end(void *self, xray_stream *stream, xray_graph **out)
{
    cuda_device *d = get_device(self);
    cudaGraph_t graph = NULL;
    if (!out || !d->capturing)
        return cuda_fail(d, out ? XRAY_E_STATE : XRAY_E_ARG, "graph_end",
                         out ? "no graph is being captured" : "out is NULL");
    d->capturing = 0;
    xray_status status = cuda_check(
        d, "graph_end", cudaStreamEndCapture(cuda_stream(d, stream), &graph));
    if (status != XRAY_OK || !graph)
        return status != XRAY_OK ? status
                                 : cuda_fail(d, XRAY_E_STATE, "graph_end",
                                             "the capture produced no graph");
    xray_graph *g = (xray_graph *)calloc(1, sizeof(*g));
    if (g)
        status = cuda_check(d, "graph_end",
                            cudaGraphInstantiate(&g->ready, graph, 0));
    else
        status = cuda_fail(d, XRAY_E_NOMEM, "graph_end", "no memory");
    (void)cudaGraphDestroy(graph);
    if (status != XRAY_OK) {
        free(g);
        return status;
    }
    g->scratch_moves = d->scratch_moves;
    *out = g;
    return XRAY_OK;
}

xray_status cuda_graph_launch(void *self, xray_stream *stream,
                              xray_graph *graph)
{
    cuda_device *d = get_device(self);
    if (!graph)
        return cuda_fail(d, XRAY_E_ARG, "graph_launch", "graph is NULL");
    if (graph->scratch_moves != d->scratch_moves)
        return cuda_fail(d, XRAY_E_STATE, "graph_launch",
                         "the scratch memory has moved since the graph was "
                         "recorded; record it again");
    xray_status status = cuda_weights_refresh(d, cuda_stream(d, stream));
    if (status != XRAY_OK)
        return status;
    return cuda_check(d, "graph_launch",
                      cudaGraphLaunch(graph->ready, cuda_stream(d, stream)));
}

void cuda_graph_destroy(void *self, xray_graph *graph)
{
    (void)self;
    if (graph)
        (void)cudaGraphExecDestroy(graph->ready);
    free(graph);
}
