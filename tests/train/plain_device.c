/* SPDX-License-Identifier: Apache-2.0
 *
 * A device made of a few plain loops. It reports that the host cannot read its
 * memory, and shifts its pointers by a fixed distance, so that a host that
 * reads through them crashes at once. It copies page-locked memory as late as a
 * device may: values for the host come when it waits, and values of the host
 * must not have changed by then.
 */
#include "tests/squares.h"
#include "tests/train/rig.h"

/* Far outside of what user space can map. */
#define DISTANCE ((uintptr_t)1 << 62)

static void *host_address(const void *pointer)
{
    return (void *)((uintptr_t)pointer - DISTANCE);
}

/* ---- copies that the host has not waited for ----------------------------- */

/* Page-locked memory. */
typedef struct locked {
    struct locked *next;
    char *at;
    uint64_t bytes;
} locked;

/* A copy that is not done, with the values that it is to copy. */
typedef struct late_copy {
    struct late_copy *next;
    void *host;
    void *values;
    uint64_t bytes;
    uint64_t number; /* 1 for the first one of the process */
    uint32_t kind;
} late_copy;

struct xray_event {
    uint64_t covers; /* copies before it */
};

static locked *blocks;
static late_copy *late;
static late_copy **late_end = &late;
static uint64_t late_count;

static int is_locked(const void *host)
{
    for (const locked *b = blocks; b; b = b->next)
        if ((const char *)host >= b->at &&
            (const char *)host < b->at + b->bytes)
            return 1;
    return 0;
}

static void add_late_copy(void *host, const void *values, uint64_t bytes,
                          uint32_t kind)
{
    late_copy *c = calloc(1, sizeof(*c));
    assert_non_null(c);
    *c =
        (late_copy){ NULL, host, malloc(bytes + 1), bytes, ++late_count, kind };
    assert_non_null(c->values);
    memcpy(c->values, values, bytes);
    *late_end = c;
    late_end = &c->next;
}

/* The host waits for the first `count` copies. */
static void finish_copies(uint64_t count)
{
    while (late && late->number <= count) {
        late_copy *c = late;
        if (c->kind == XRAY_COPY_TO_HOST)
            memcpy(c->host, c->values, c->bytes);
        else
            assert_memory_equal(c->host, c->values, c->bytes);
        late = c->next;
        if (!late)
            late_end = &late;
        free(c->values);
        free(c);
    }
}

static xray_status plain_host_alloc(void *self, const char *owner,
                                    uint64_t bytes, void **out)
{
    (void)self;
    (void)owner;
    locked *b = calloc(1, sizeof(*b));
    char *at = calloc(1, bytes + 1);
    assert_true(b && at);
    *b = (locked){ blocks, at, bytes };
    blocks = b;
    *out = at;
    return XRAY_OK;
}

static void plain_host_free(void *self, void *pointer)
{
    locked **link = &blocks;
    (void)self;
    if (!pointer)
        return;
    finish_copies(late_count);
    while (*link && (*link)->at != pointer)
        link = &(*link)->next;
    locked *b = *link;
    assert_non_null(b);
    *link = b->next;
    free(b->at);
    free(b);
}

static xray_status plain_event_create(void *self, xray_event **out)
{
    (void)self;
    *out = calloc(1, sizeof(**out));
    return *out ? XRAY_OK : XRAY_E_NOMEM;
}

static void plain_event_destroy(void *self, xray_event *event)
{
    (void)self;
    free(event);
}

static xray_status plain_event_record(void *self, xray_stream *stream,
                                      xray_event *event)
{
    (void)self;
    (void)stream;
    event->covers = late_count;
    return XRAY_OK;
}

static xray_status plain_event_wait(void *self, xray_stream *stream,
                                    xray_event *event)
{
    (void)self;
    (void)stream;
    (void)event;
    return XRAY_OK;
}

static xray_status plain_event_sync(void *self, xray_event *event)
{
    (void)self;
    finish_copies(event->covers);
    return XRAY_OK;
}

/* ---- memory -------------------------------------------------------------- */

static xray_status plain_info(void *self, xray_device_info *info)
{
    (void)self;
    info->name = "plain";
    info->threads = 1;
    info->host_memory = 0;
    return XRAY_OK;
}

static xray_status plain_alloc(void *self, const char *owner, uint32_t tag,
                               uint64_t bytes, void **out)
{
    (void)self;
    (void)owner;
    (void)tag;
    void *memory = calloc(1, bytes);
    if (!memory)
        return XRAY_E_NOMEM;
    *out = (void *)((uintptr_t)memory + DISTANCE);
    return XRAY_OK;
}

static void plain_free(void *self, void *pointer)
{
    (void)self;
    if (pointer)
        free(host_address(pointer));
}

static xray_status plain_copy(void *self, xray_stream *stream, void *to,
                              const void *from, uint64_t bytes, uint32_t kind)
{
    (void)self;
    (void)stream;
    void *at = kind == XRAY_COPY_TO_HOST ? to : host_address(to);
    const void *values =
        kind == XRAY_COPY_TO_DEVICE ? from : host_address(from);
    if (kind == XRAY_COPY_TO_HOST && is_locked(to)) {
        add_late_copy(to, values, bytes, kind);
        return XRAY_OK;
    }
    memcpy(at, values, bytes);
    if (kind == XRAY_COPY_TO_DEVICE && is_locked(from))
        add_late_copy((void *)(uintptr_t)from, from, bytes, kind);
    return XRAY_OK;
}

static xray_status plain_zero(void *self, xray_stream *stream, void *pointer,
                              uint64_t bytes)
{
    (void)self;
    (void)stream;
    memset(host_address(pointer), 0, bytes);
    return XRAY_OK;
}

static xray_status plain_sync(void *self, xray_stream *stream)
{
    (void)self;
    (void)stream;
    finish_copies(late_count);
    return XRAY_OK;
}

static xray_status plain_sumsq(void *self, xray_stream *stream,
                               const xray_sumsq *call)
{
    (void)self;
    (void)stream;
    const float *x = host_address(call->x);
    uint64_t *result = host_address(call->result);
    for (uint64_t i = 0; i < call->count; i++)
        squares_add(result, x[i]);
    return XRAY_OK;
}

rig_device plain_device_open(void)
{
    static const xray_device_ops ops = { .header = XRAY_HEADER(xray_device_ops),
                                         .info = plain_info,
                                         .alloc = plain_alloc,
                                         .free = plain_free,
                                         .host_alloc = plain_host_alloc,
                                         .host_free = plain_host_free,
                                         .copy = plain_copy,
                                         .zero = plain_zero,
                                         .sync = plain_sync,
                                         .event_create = plain_event_create,
                                         .event_destroy = plain_event_destroy,
                                         .event_record = plain_event_record,
                                         .event_wait = plain_event_wait,
                                         .event_sync = plain_event_sync,
                                         .sumsq = plain_sumsq };
    return (rig_device){ .ops = &ops };
}
