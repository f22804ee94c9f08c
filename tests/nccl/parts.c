/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the devices of NCCL's tests over the cpu device and the fake CUDA
 * driver.
 */
#include "tests/nccl/parts.h"

#include "tests/testing.h"

const xray_plugin *xray_plugin_query_device_cpu(uint32_t host_abi);
const xray_plugin *xray_plugin_query_comm_nccl(uint32_t host_abi);

typedef struct device {
    const xray_device_ops *inner;
    void *self;
    uint32_t index;
    void *stream; /* the default stream */
} device;

/* An operation on its way through a stream. */
typedef struct step {
    device *dev;
    union {
        xray_cast cast;
        xray_axpby axpby;
        struct {
            void *to;
            const void *from;
            uint64_t bytes;
        } copy;
    } op;
} step;

static void *fake_stream_of(const device *d, xray_stream *stream)
{
    return stream ? (void *)stream : d->stream;
}

static void run_cast(void *arg)
{
    step *s = arg;
    (void)s->dev->inner->cast(s->dev->self, NULL, &s->op.cast);
}

static void run_axpby(void *arg)
{
    step *s = arg;
    (void)s->dev->inner->axpby(s->dev->self, NULL, &s->op.axpby);
}

static void run_copy(void *arg)
{
    step *s = arg;
    memmove(s->op.copy.to, s->op.copy.from, s->op.copy.bytes);
}

static xray_status device_cast(void *self, xray_stream *stream,
                               const xray_cast *op)
{
    step s = { .dev = self, .op.cast = *op };
    fake_stream_call(fake_stream_of(self, stream), run_cast, &s, sizeof(s));
    return XRAY_OK;
}

static xray_status device_axpby(void *self, xray_stream *stream,
                                const xray_axpby *op)
{
    step s = { .dev = self, .op.axpby = *op };
    fake_stream_call(fake_stream_of(self, stream), run_axpby, &s, sizeof(s));
    return XRAY_OK;
}

static xray_status device_copy(void *self, xray_stream *stream, void *to,
                               const void *from, uint64_t bytes, uint32_t kind)
{
    step s = { .dev = self, .op.copy = { to, from, bytes } };
    (void)kind;
    fake_stream_call(fake_stream_of(self, stream), run_copy, &s, sizeof(s));
    return XRAY_OK;
}

static xray_status device_sync(void *self, xray_stream *stream)
{
    fake_stream_sync(fake_stream_of(self, stream));
    return XRAY_OK;
}

static xray_status stream_create(void *self, xray_stream **out)
{
    (void)self;
    *out = fake_stream_create();
    return XRAY_OK;
}

static void stream_destroy(void *self, xray_stream *stream)
{
    (void)self;
    fake_stream_destroy(stream);
}

static xray_status device_alloc(void *self, const char *owner, uint32_t tag,
                                uint64_t bytes, void **out)
{
    device *d = self;
    return d->inner->alloc(d->self, owner, tag, bytes, out);
}

static void device_free(void *self, void *ptr)
{
    device *d = self;
    d->inner->free(d->self, ptr);
}

static uint32_t cuda_index(void *self)
{
    return ((device *)self)->index;
}

static void *cuda_stream(void *self, xray_stream *stream)
{
    return fake_stream_of(self, stream);
}

static const void *device_extension(void *self, const char *id)
{
    static const xray_cuda_ops cuda = { .header = XRAY_HEADER(xray_cuda_ops),
                                        .index = cuda_index,
                                        .stream = cuda_stream };
    (void)self;
    return strcmp(id, XRAY_EXT_CUDA) == 0 ? &cuda : NULL;
}

/* The index of a rank's device is the rank. */
static xray_status device_create(const xray_host *host, const void *config,
                                 uint32_t threads, void **out_self)
{
    const ranks_env *e = host->host_data;
    device *d = calloc(1, sizeof(*d));
    d->inner = xray_plugin_query_device_cpu(XRAY_ABI)->components[0]->ops;
    d->index = e->rank;
    d->stream = fake_stream_create();
    *out_self = d;
    xray_status status = d->inner->create(host, config, threads, &d->self);
    /* Allocates blocks from regions that are freed with the instance, so that a
     * test need not free them. */
    return status == XRAY_OK ? d->inner->shareable(d->self, 1) : status;
}

static void device_destroy(void *self)
{
    device *d = self;
    fake_stream_destroy(d->stream);
    d->inner->destroy(d->self);
    free(d);
}

static const xray_device_ops device_ops = {
    .header = XRAY_HEADER(xray_device_ops),
    .create = device_create,
    .destroy = device_destroy,
    .alloc = device_alloc,
    .free = device_free,
    .copy = device_copy,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .sync = device_sync,
    .cast = device_cast,
    .axpby = device_axpby,
    .extension = device_extension,
};

static nccl_config async; /* calls do not wait */

static void fill_async(void)
{
    async = parts_config;
    async.wait = 0;
}

void ranks_parts(ranks_env *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    e->dev = &device_ops;
    e->comm = xray_plugin_query_comm_nccl(XRAY_ABI)->components[0]->ops;
    e->comm_config = &parts_config;
    (void)pthread_once(&once, fill_async);
    e->other_config = &async;
    e->sends_copies = 1;
    e->compares_not = 1;
    e->brief = 1;
    e->serves = "cuda";
    e->refuses = "cpu";
}
