/* SPDX-License-Identifier: Apache-2.0
 *
 * A device made of a few plain loops. It reports that the host cannot read its
 * memory, and shifts its pointers by a fixed distance, so that a host that
 * reads through them crashes at once.
 */
#include "tests/squares.h"
#include "tests/train/rig.h"

/* Far outside of what user space can map. */
#define DISTANCE ((uintptr_t)1 << 62)

static void *host_address(const void *pointer)
{
    return (void *)((uintptr_t)pointer - DISTANCE);
}

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
    memcpy(kind == XRAY_COPY_TO_HOST ? to : host_address(to),
           kind == XRAY_COPY_TO_DEVICE ? from : host_address(from), bytes);
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
                                         .copy = plain_copy,
                                         .zero = plain_zero,
                                         .sync = plain_sync,
                                         .sumsq = plain_sumsq };
    return (rig_device){ .ops = &ops };
}
