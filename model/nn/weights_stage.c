/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills weights on a device. Threads write pieces of a parameter to the device
 * where the host can access its memory, and to a buffer elsewhere, of which one
 * half is filled while the other is copied.
 */
#include "model/nn/weights_internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/hf/safetensors.h"

/* Elements in half of the buffer, and those between two looks at the stop. */
#define HALF_COUNT ((uint64_t)1 << 21)

/* Elements that one thread produces at a time. */
#define PIECE ((uint64_t)1 << 16)

#define MAX_THREADS 16u

xray_status xm_stage_open(const xm_weights *w, xr_err *err, xm_stage *out)
{
    xray_device_info info = { .header = XRAY_HEADER(xray_device_info) };
    xray_status status = w->device->info(w->device_self, &info);
    if (status != XRAY_OK)
        return xr_fail(err, status, "the device could not describe itself");
    *out = (xm_stage){ .device = w->device,
                       .device_self = w->device_self,
                       .direct = info.host_memory != 0,
                       .thread_limit = info.threads };
    return XRAY_OK;
}

void xm_stage_close(xm_stage *s)
{
    for (int i = 0; i < 2; i++) {
        if (s->busy[i])
            (void)s->device->event_sync(s->device_self, s->copied[i]);
        if (s->copied[i])
            s->device->event_destroy(s->device_self, s->copied[i]);
    }
    if (s->buffer)
        s->device->host_free(s->device_self, s->buffer);
    xm_threads_destroy(s->threads);
    free(s->scratch);
    *s = (xm_stage){ 0 };
}

xray_status xm_stage_copy_bytes(const xm_stage *s, void *to, const void *from,
                                uint64_t bytes, uint32_t kind)
{
    xray_status status =
        s->device->copy(s->device_self, NULL, to, from, bytes, kind);
    return status == XRAY_OK ? s->device->sync(s->device_self, NULL) : status;
}

xray_status xm_stage_copy_floats(const xm_stage *s, void *to, const void *from,
                                 uint64_t count, uint32_t kind)
{
    return xm_stage_copy_bytes(s, to, from, count * sizeof(float), kind);
}

/* ---- what filling needs -------------------------------------------------- */

static uint64_t count_most_held(const xm_weights *w)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < w->layout->param_count; i++)
        if (w->held[i].count > most)
            most = w->held[i].count;
    return most;
}

/* The threads that the device computes with on the host, or one per core. */
static uint32_t count_threads(const xm_stage *s, uint64_t pieces)
{
    uint64_t threads = s->thread_limit;
    if (!s->direct || threads == 0) {
        long cores = sysconf(_SC_NPROCESSORS_ONLN);
        threads = cores > 0 ? (uint64_t)cores : 1;
    }
    if (threads > pieces)
        threads = pieces;
    return threads < MAX_THREADS ? (uint32_t)threads : MAX_THREADS;
}

static xray_status create_buffer(xm_stage *s, uint64_t most, xr_err *err)
{
    void *at = NULL;
    s->half = most < HALF_COUNT ? most : HALF_COUNT;
    xray_status status = s->device->host_alloc(
        s->device_self, "weights", 2 * s->half * sizeof(float), &at);
    s->buffer = at;
    for (int i = 0; i < 2 && status == XRAY_OK; i++)
        status = s->device->event_create(s->device_self, &s->copied[i]);
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status,
                         "weights: no page-locked memory to copy them from");
}

/* Makes, at the first parameter, what the largest will need. */
static xray_status prepare_stage(const xm_weights *w, xm_stage *s, xr_err *err)
{
    if (s->threads)
        return XRAY_OK;
    uint64_t most = count_most_held(w);
    uint32_t threads =
        s->serial ? 1 : count_threads(s, (most + PIECE - 1) / PIECE);
    s->threads = xm_threads_create(threads);
    if (w->flags & XM_WEIGHTS_BF16)
        s->scratch = malloc(MAX_THREADS * PIECE * sizeof(float));
    if (!s->threads || ((w->flags & XM_WEIGHTS_BF16) && !s->scratch))
        return xr_fail(err, XRAY_E_NOMEM, "weights: out of memory");
    return s->direct ? XRAY_OK : create_buffer(s, most, err);
}

/* ---- pieces -------------------------------------------------------------- */

/* Elements [first, first + count) of what weights have of a parameter, of which
 * task i produces piece i. */
typedef struct fill {
    const xm_param *param;
    xm_source from;
    void *ctx;
    uint64_t first;
    uint64_t count;
    void *to;
    float *scratch; /* PIECE floats of each thread; NULL: fp32 is wanted */
    pthread_mutex_t lock;      /* guards `status` and `err` */
    _Atomic uint64_t bad_task; /* the first that failed; UINT64_MAX: none */
    xray_status status;
    xr_err err;
} fill;

static void round_to_bf16(const float *values, uint64_t count, void *out)
{
    unsigned char *to = out;
    for (uint64_t i = 0; i < count; i++) {
        uint16_t half = xm_f32_to_bf16(values[i]);
        memcpy(to + 2 * i, &half, sizeof half);
    }
}

/* Produces elements [first, first + count) of what weights have of a parameter.
 */
static xray_status produce_values(const fill *f, uint64_t first, uint64_t count,
                                  float *out, xr_err *err)
{
    xray_status status = XRAY_OK;
    for (uint64_t done = 0; done < count && status == XRAY_OK;) {
        uint64_t at = 0;
        uint64_t run = xm_param_run(f->param, first + done, &at);
        if (run > count - done)
            run = count - done;
        status = f->from(f->ctx, at, run, out + done, err);
        done += run;
    }
    return status;
}

/* Keeps the error of the first piece that failed, so that it does not depend on
 * the threads. */
static void keep_error(fill *f, uint64_t task, xray_status status,
                       const xr_err *err)
{
    (void)pthread_mutex_lock(&f->lock);
    if (task < atomic_load(&f->bad_task)) {
        atomic_store(&f->bad_task, task);
        f->status = status;
        f->err = *err;
    }
    (void)pthread_mutex_unlock(&f->lock);
}

static void fill_piece(void *ctx, uint64_t task, uint32_t thread)
{
    fill *f = ctx;
    xr_err err = { "" };
    uint64_t at = task * PIECE;
    uint64_t count = f->count - at < PIECE ? f->count - at : PIECE;
    if (task > atomic_load(&f->bad_task))
        return;
    float *out = f->scratch ? f->scratch + thread * PIECE : (float *)f->to + at;
    xray_status status = produce_values(f, f->first + at, count, out, &err);
    if (status != XRAY_OK)
        keep_error(f, task, status, &err);
    else if (f->scratch)
        round_to_bf16(out, count, (unsigned char *)f->to + 2 * at);
}

static xray_status run_fill(const xm_stage *s, fill *f, xr_err *err)
{
    atomic_init(&f->bad_task, UINT64_MAX);
    f->status = XRAY_OK;
    (void)pthread_mutex_init(&f->lock, NULL);
    xm_threads_run(s->threads, (f->count + PIECE - 1) / PIECE, fill_piece, f);
    (void)pthread_mutex_destroy(&f->lock);
    if (f->status != XRAY_OK && err)
        *err = f->err;
    return f->status;
}

/* ---- parameters ---------------------------------------------------------- */

static xray_status wait_for_half(xm_stage *s, uint32_t half)
{
    if (!s->busy[half])
        return XRAY_OK;
    s->busy[half] = 0;
    return s->device->event_sync(s->device_self, s->copied[half]);
}

static xray_status copy_half(xm_stage *s, uint32_t half, void *to,
                             uint64_t bytes)
{
    xray_status status =
        s->device->copy(s->device_self, NULL, to, s->buffer + half * s->half,
                        bytes, XRAY_COPY_TO_DEVICE);
    if (status == XRAY_OK)
        status = s->device->event_record(s->device_self, NULL, s->copied[half]);
    s->busy[half] = status == XRAY_OK;
    return status;
}

static xray_status fail_copy(const xm_param *param, xray_status status,
                             xr_err *err)
{
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status, "%s: copy to the device failed",
                         param->name);
}

/* Fills the elements of `f` and, through a half of the buffer, those at `to` on
 * the device. */
static xray_status fill_half(const xm_weights *w, xm_stage *s, fill *f,
                             uint32_t half, void *to, xr_err *err)
{
    f->to = s->direct ? to : s->buffer + half * s->half;
    xray_status status = fail_copy(f->param, wait_for_half(s, half), err);
    if (status == XRAY_OK)
        status = xr_stop_check(w->calls, err);
    if (status == XRAY_OK)
        status = run_fill(s, f, err);
    if (status != XRAY_OK || s->direct)
        return status;
    uint64_t size = f->scratch ? 2 : sizeof(float);
    return fail_copy(f->param, copy_half(s, half, to, f->count * size), err);
}

xray_status xm_stage_fill(const xm_weights *w, const xm_param *param,
                          xm_stage *s, xm_source from, void *ctx, xr_err *err)
{
    const xm_held *held = xm_param_held(w, param);
    int narrow = held->dtype == XRAY_BF16;
    uint64_t size = narrow ? 2 : sizeof(float);
    uint32_t half = 0;
    if (held->count == 0)
        return XRAY_OK;
    xray_status status = prepare_stage(w, s, err);
    fill f = { .param = param,
               .from = from,
               .ctx = ctx,
               .scratch = narrow ? s->scratch : NULL };
    for (uint64_t first = 0; first < held->count && status == XRAY_OK;
         first += HALF_COUNT, half = !half) {
        uint64_t left = held->count - first;
        f.count = left < HALF_COUNT ? left : HALF_COUNT;
        f.first = held->first + first;
        status = fill_half(w, s, &f, half,
                           (unsigned char *)held->data + first * size, err);
    }
    for (half = 0; half < 2 && status == XRAY_OK; half++)
        status = fail_copy(param, wait_for_half(s, half), err);
    return status;
}

xray_status xm_weights_check_unleased(const xm_weights *w, xr_err *err)
{
    if (w->leases == 0)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_STATE,
                   "the weights cannot change while %u reader%s hold%s them",
                   w->leases, w->leases == 1 ? "" : "s",
                   w->leases == 1 ? "s" : "");
}
