/* SPDX-License-Identifier: Apache-2.0
 *
 * A fake CUDA driver on host memory: events, and streams that run their work in
 * order on a thread of their own. Its functions have the names and signatures
 * of the real ones, as far as comm-nccl uses them.
 */
#define _GNU_SOURCE
#include "tests/nccl/fake_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct item {
    struct item *next;
    void (*fn)(void *arg);
    _Alignas(16) char arg[FAKE_ARG];
} item;

typedef struct stream {
    pthread_mutex_t lock;
    pthread_cond_t more;
    pthread_cond_t idle;
    pthread_cond_t room;
    int held; /* pieces of work that wait */
    pthread_t thread;
    item *first;
    item *last;
    int busy;
    int ending;
} stream;

typedef struct event {
    struct event *next; /* in the list of destroyed events */
    _Atomic uint64_t recorded;
    _Atomic uint64_t reached;
    _Atomic(void *) stream; /* on which it was last recorded */
} event;

_Atomic int fake_codes[FAKE_KINDS];

FAKE_API void fake_fail(int kind, int code)
{
    atomic_store(&fake_codes[kind], code);
}

int fake_code(int kind)
{
    return atomic_load(&fake_codes[kind]);
}

/* ---- streams ------------------------------------------------------------ */

static void *run_stream(void *arg)
{
    stream *s = arg;
    (void)pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->first && !s->ending)
            (void)pthread_cond_wait(&s->more, &s->lock);
        if (!s->first)
            break;
        item *i = s->first;
        s->first = i->next;
        s->busy = 1;
        s->held--;
        (void)pthread_cond_broadcast(&s->room);
        (void)pthread_mutex_unlock(&s->lock);
        i->fn(i->arg);
        free(i);
        (void)pthread_mutex_lock(&s->lock);
        s->busy = 0;
        if (!s->first)
            (void)pthread_cond_broadcast(&s->idle);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

FAKE_API void *fake_stream_create(void)
{
    stream *s = calloc(1, sizeof(*s));
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->more, NULL);
    (void)pthread_cond_init(&s->idle, NULL);
    (void)pthread_cond_init(&s->room, NULL);
    (void)pthread_create(&s->thread, NULL, run_stream, s);
    return s;
}

FAKE_API void fake_stream_destroy(void *stream_)
{
    stream *s = stream_;
    (void)pthread_mutex_lock(&s->lock);
    s->ending = 1;
    (void)pthread_cond_signal(&s->more);
    (void)pthread_mutex_unlock(&s->lock);
    (void)pthread_join(s->thread, NULL);
    (void)pthread_cond_destroy(&s->more);
    (void)pthread_cond_destroy(&s->idle);
    (void)pthread_cond_destroy(&s->room);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}

/* With XRAY_FAKE_STREAMS=others the streams are those of another driver, which
 * have always finished: here, too, work is done before the call returns. */
static int are_streams_own(void)
{
    const char *set = getenv("XRAY_FAKE_STREAMS");
    return !set || strcmp(set, "others") != 0;
}

FAKE_API void fake_stream_call(void *stream_, void (*fn)(void *arg),
                               const void *arg, size_t bytes)
{
    stream *s = stream_;
    if (!are_streams_own()) {
        _Alignas(16) char copy[FAKE_ARG];
        memcpy(copy, arg, bytes);
        fn(copy);
        return;
    }
    item *i = calloc(1, sizeof(*i));
    i->fn = fn;
    memcpy(i->arg, arg, bytes);
    (void)pthread_mutex_lock(&s->lock);
    int most = fake_code(FAKE_QUEUE);
    while (most && s->held >= most)
        (void)pthread_cond_wait(&s->room, &s->lock);
    s->held++;
    if (s->first)
        s->last->next = i;
    else
        s->first = i;
    s->last = i;
    (void)pthread_cond_signal(&s->more);
    (void)pthread_mutex_unlock(&s->lock);
}

FAKE_API void fake_stream_sync(void *stream_)
{
    stream *s = stream_;
    (void)pthread_mutex_lock(&s->lock);
    while (s->first || s->busy)
        (void)pthread_cond_wait(&s->idle, &s->lock);
    (void)pthread_mutex_unlock(&s->lock);
}

/* ---- events ------------------------------------------------------------- */

typedef struct moment {
    event *event;
    uint64_t number;
} moment;

static _Atomic(void *) failing; /* stream */
static _Atomic int failure;

FAKE_API void fake_stream_fail(void *stream_, int code)
{
    atomic_store(&failing, stream_);
    atomic_store(&failure, code);
}

static void set_event(void *arg)
{
    moment *m = arg;
    atomic_store(&m->event->reached, m->number);
}

static void wait_for_event(void *arg)
{
    moment *m = arg;
    while (atomic_load(&m->event->reached) < m->number)
        fake_pause();
}

static _Thread_local void *current; /* context of this thread */

/* As with the real driver, an event is of the thread's context. */
FAKE_API int cuEventCreate(void **out, unsigned flags)
{
    if (!current)
        return 201;
    event *e = calloc(1, sizeof(*e));
    *out = e;
    return e && flags == 2 ? 0 : 1;
}

/* Streams may still wait for a destroyed event, as with the real driver, so it
 * is only put into a list. */
FAKE_API int cuEventDestroy_v2(void *e)
{
    static _Atomic(event *) gone;
    event *v = e;
    v->next = atomic_load(&gone);
    while (!atomic_compare_exchange_weak(&gone, &v->next, v))
        ;
    return 0;
}

FAKE_API int cuEventRecord(void *e, void *stream_)
{
    event *v = e;
    if (fake_code(FAKE_RECORD))
        return fake_code(FAKE_RECORD);
    moment m = { v, atomic_fetch_add(&v->recorded, 1) + 1 };
    atomic_store(&v->stream, stream_);
    fake_stream_call(stream_, set_event, &m, sizeof(m));
    return 0;
}

FAKE_API int cuEventQuery(void *e)
{
    event *v = e;
    if (fake_code(FAKE_EVENT))
        return fake_code(FAKE_EVENT);
    if (atomic_load(&failure) &&
        atomic_load(&v->stream) == atomic_load(&failing))
        return atomic_load(&failure);
    return atomic_load(&v->reached) >= atomic_load(&v->recorded) ? 0 : 600;
}

FAKE_API int cuStreamWaitEvent(void *stream_, void *e, unsigned flags)
{
    event *v = e;
    if (fake_code(FAKE_WAIT))
        return fake_code(FAKE_WAIT);
    moment m = { v, atomic_load(&v->recorded) };
    fake_stream_call(stream_, wait_for_event, &m, sizeof(m));
    return flags ? 1 : 0;
}

/* ---- devices ------------------------------------------------------------ */

FAKE_API int cuInit(unsigned flags)
{
    return flags ? 1 : fake_code(FAKE_DEVICE);
}

FAKE_API int cuDeviceGet(int *out, int index)
{
    *out = index;
    return 0;
}

/* XRAY_FAKE_DOMAIN tells the devices of hosts apart that are one machine. */
FAKE_API int cuDeviceGetPCIBusId(char *out, int bytes, int index)
{
    const char *domain = getenv("XRAY_FAKE_DOMAIN");
    int n = snprintf(out, (size_t)bytes, "%s:%02x:00.0",
                     domain ? domain : "0000", fake_code(FAKE_BUS) ? 0 : index);
    return n < bytes ? 0 : 1;
}

static _Atomic int contexts; /* retained contexts */

FAKE_API int cuDevicePrimaryCtxRetain(void **out, int device)
{
    (void)device;
    *out = &contexts;
    atomic_fetch_add(&contexts, 1);
    return 0;
}

FAKE_API int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    atomic_fetch_sub(&contexts, 1);
    return 0;
}

FAKE_API int fake_contexts(void)
{
    return atomic_load(&contexts);
}

FAKE_API int cuCtxSetCurrent(void *context)
{
    if (context != &contexts)
        return 201;
    current = context;
    return 0;
}

FAKE_API int cuGetErrorString(int error, const char **out)
{
    *out = error == 100   ? "no CUDA-capable device is detected"
           : error == 700 ? "an illegal memory access was encountered"
                          : NULL;
    return 0;
}
