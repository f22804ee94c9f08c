/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates an instance of the CPU device and implements its memory, copy and
 * stream callbacks. Operators run inside their call, so a stream never has
 * anything to wait for.
 */
#include "plugins/device-cpu/instance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xray/numerics.h>

#include "core/base/err.h"
#include "core/base/system_error.h"
#include "plugins/device-cpu/device.h"

struct xray_stream {
    uint64_t unused;
};

struct xray_event {
    uint64_t unused;
};

static int processor_has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi2");
}

static int processor_has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
}

static xray_status report_failure(const xray_host *host, xray_status status,
                                  const char *text)
{
    return host ? host->fail(host, status, "device cpu", text) : status;
}

static xray_status refuse_avx512(const xray_host *host)
{
    xr_err err;
    (void)xr_fail_key(&err, XRAY_E_CONFIG, NULL, "isa",
                      " = avx512, but this processor lacks AVX-512 F, BW, VL "
                      "or DQ; use isa = auto");
    return xr_host_tell(host, XRAY_E_CONFIG, "device cpu", &err);
}

static xray_status choose_kernels(const xray_host *host, int64_t isa,
                                  const cpu_kernels **out)
{
    if (!processor_has_avx2())
        return report_failure(
            host, XRAY_E_CONFIG,
            "this processor lacks AVX2, FMA or BMI2; the cpu device "
            "needs the x86-64-v3 instruction set");
    if (isa == CPU_ISA_AVX512 && !processor_has_avx512())
        return refuse_avx512(host);
    if (isa < CPU_ISA_AUTO || isa > CPU_ISA_SCALAR)
        return report_failure(host, XRAY_E_CONFIG, "isa has an unknown value");
    if (isa == CPU_ISA_SCALAR)
        *out = &cpu_kernels_scalar;
    else if (isa == CPU_ISA_AVX2 || !processor_has_avx512())
        *out = &cpu_kernels_avx2;
    else
        *out = &cpu_kernels_avx512;
    return XRAY_OK;
}

xray_status cpu_plan(const xray_host *host, const void *config,
                     xray_device_plan *out)
{
    const cpu_config *c = config;
    const cpu_kernels *kernels = NULL;
    if (!out)
        return report_failure(host, XRAY_E_ARG, "out is NULL");
    xray_status status =
        choose_kernels(host, c ? c->isa : CPU_ISA_AUTO, &kernels);
    if (status != XRAY_OK)
        return status;
    const xray_device_plan own = {
        .header = XRAY_HEADER(xray_device_plan),
        .memory_bytes = c && c->memory ? c->memory
                                       : cpu_memory_limit("/proc/self/cgroup",
                                                          "/sys/fs/cgroup",
                                                          cpu_memory_bytes()),
        .host_memory = 1,
    };
    xray_fill(out, &own);
    return XRAY_OK;
}

xray_status cpu_create(const xray_host *host, const void *config,
                       uint32_t threads, void **out_self)
{
    const cpu_config *c = config;
    const cpu_kernels *kernels = NULL;
    if (!out_self)
        return report_failure(host, XRAY_E_ARG, "out_self is NULL");
    xray_status status =
        choose_kernels(host, c ? c->isa : CPU_ISA_AUTO, &kernels);
    if (status != XRAY_OK)
        return status;
    cpu_device *d = calloc(1, sizeof(*d));
    if (!d)
        return report_failure(host, XRAY_E_NOMEM, "no memory for the instance");
    d->host = host;
    d->calls = xr_calls_of(host);
    d->k = kernels;
    d->share = c ? c->share : CPU_SHARE_AUTO;
    int bad = cpu_pool_create(threads, &d->pool);
    if (bad) {
        char text[128];
        (void)snprintf(text, sizeof(text), "the threads do not start: %s",
                       XR_SYSTEM_ERROR(bad));
        free(d);
        return report_failure(host, XRAY_E_NOMEM, text);
    }
    size_t floats = CPU_FIRST_SCRATCH;
    float *scratch;
    status = cpu_thread_scratch(d, &floats, &scratch);
    if (status == XRAY_OK && d->share == CPU_SHARE_ON)
        status = cpu_shareable(d, 1);
    if (status != XRAY_OK) {
        cpu_destroy(d);
        return status;
    }
    (void)snprintf(d->name, sizeof(d->name), "x86-64, %s, %u thread%s",
                   kernels->name, cpu_pool_threads(d->pool),
                   cpu_pool_threads(d->pool) == 1 ? "" : "s");
    *out_self = d;
    return XRAY_OK;
}

void cpu_destroy(void *self)
{
    cpu_device *d = self;
    if (!d)
        return;
    cpu_free(d, d->scratch[0]);
    cpu_free(d, d->scratch[1]);
    cpu_pool_destroy(d->pool);
    cpu_share_destroy(d);
    free(d);
}

xray_status cpu_info(void *self, xray_device_info *info)
{
    cpu_device *d = self;
    if (!info)
        return cpu_fail(d, XRAY_E_ARG, "info", "info is NULL");
    const xray_device_info own = { .header = XRAY_HEADER(xray_device_info),
                                   .name = d->name,
                                   .memory_bytes = cpu_memory_bytes(),
                                   .memory_free = cpu_memory_free(),
                                   .threads = cpu_pool_threads(d->pool),
                                   .host_memory = 1,
                                   .features = XRAY_DEVICE_PARENTS };
    xray_fill(info, &own);
    return XRAY_OK;
}

static xray_status refuse_bytes(const cpu_device *d, const char *where,
                                const char *owner, uint64_t bytes)
{
    return cpu_fail(d, XRAY_E_NOMEM, where, "%s: no memory for %llu bytes",
                    owner ? owner : where, (unsigned long long)bytes);
}

xray_status cpu_user_alloc(void *self, const char *owner, uint32_t tag,
                           uint64_t bytes, void **out)
{
    cpu_device *d = self;
    xr_err err;
    if (!out || tag >= XRAY_TAG_COUNT)
        return cpu_fail(d, XRAY_E_ARG, "alloc", "%s: %s",
                        owner ? owner : "alloc",
                        out ? "unknown memory tag" : "out is NULL");
    /* Zeroing takes long, and whoever allocates much does so block by block. */
    if (xr_stop_check(d->calls, &err) != XRAY_OK)
        return cpu_fail(d, XRAY_E_CANCELED, "alloc", "%s", err.text);
    void *ptr =
        d->sharing ? cpu_share_alloc(d, tag, bytes) : cpu_alloc(d, tag, bytes);
    if (!ptr)
        return refuse_bytes(d, "alloc", owner, bytes);
    *out = ptr;
    return XRAY_OK;
}

xray_status cpu_host_alloc(void *self, const char *owner, uint64_t bytes,
                           void **out)
{
    cpu_device *d = self;
    if (!out)
        return cpu_fail(d, XRAY_E_ARG, "host_alloc", "%s: out is NULL",
                        owner ? owner : "host_alloc");
    void *ptr = cpu_alloc(d, CPU_TAG_HOST, bytes);
    if (!ptr)
        return refuse_bytes(d, "host_alloc", owner, bytes);
    *out = ptr;
    return XRAY_OK;
}

void cpu_host_free(void *self, void *ptr)
{
    cpu_free(self, ptr);
}

void cpu_user_free(void *self, void *ptr)
{
    if (!cpu_share_free(self, ptr))
        cpu_free(self, ptr);
}

xray_status cpu_evict(void *self, void *ptr)
{
    if (!ptr)
        return cpu_fail(self, XRAY_E_ARG, "evict", "the pointer is NULL");
    if (!cpu_share_evict(self, ptr))
        cpu_block_evict(self, ptr);
    return XRAY_OK;
}

xray_status cpu_restore(void *self, void *ptr)
{
    xray_status status = XRAY_OK;
    if (!ptr)
        return cpu_fail(self, XRAY_E_ARG, "restore", "the pointer is NULL");
    if (!cpu_share_restore(self, ptr, &status))
        cpu_block_restore(self, ptr);
    return status;
}

xray_status cpu_memory(void *self, xray_memory_stats *stats)
{
    cpu_device *d = self;
    if (!stats)
        return cpu_fail(d, XRAY_E_ARG, "memory", "stats is NULL");
    xray_memory_stats own = { .header = XRAY_HEADER(xray_memory_stats),
                              .high_all = d->high_all,
                              .host_live = d->live[CPU_TAG_HOST],
                              .host_high = d->high[CPU_TAG_HOST] };
    memcpy(own.live, d->live, XRAY_TAG_COUNT * sizeof(*d->live));
    memcpy(own.high, d->high, XRAY_TAG_COUNT * sizeof(*d->high));
    xray_fill(stats, &own);
    return XRAY_OK;
}

xray_status cpu_copy(void *self, xray_stream *stream, void *to,
                     const void *from, uint64_t bytes, uint32_t kind)
{
    (void)stream;
    if (bytes > 0 && (!to || !from))
        return cpu_fail(self, XRAY_E_ARG, "copy", "a pointer is NULL");
    if (kind < XRAY_COPY_TO_DEVICE || kind > XRAY_COPY_ON_DEVICE)
        return cpu_fail(self, XRAY_E_ARG, "copy", "unknown kind %u", kind);
    if (bytes > 0)
        memmove(to, from, bytes);
    return XRAY_OK;
}

xray_status cpu_zero(void *self, xray_stream *stream, void *ptr, uint64_t bytes)
{
    (void)stream;
    if (bytes > 0 && !ptr)
        return cpu_fail(self, XRAY_E_ARG, "zero", "the pointer is NULL");
    if (bytes > 0)
        memset(ptr, 0, bytes);
    return XRAY_OK;
}

xray_status cpu_copy_rows(void *self, xray_stream *stream,
                          const xray_copy_rows *rows)
{
    (void)stream;
    CPU_CHECK(self, rows, "copy_rows", rows);
    if (rows->kind < XRAY_COPY_TO_DEVICE || rows->kind > XRAY_COPY_ON_DEVICE)
        return cpu_fail(self, XRAY_E_ARG, "copy_rows", "unknown kind %u",
                        rows->kind);
    if (rows->rows == 0 || rows->bytes == 0)
        return XRAY_OK;
    if (!rows->to || !rows->from)
        return cpu_fail(self, XRAY_E_ARG, "copy_rows", "a pointer is NULL");
    if (rows->rows > 1 &&
        (rows->to_pitch < rows->bytes || rows->from_pitch < rows->bytes))
        return cpu_fail(self, XRAY_E_ARG, "copy_rows",
                        "a pitch is shorter than the row");
    unsigned char *to = rows->to;
    const unsigned char *from = rows->from;
    for (uint64_t i = 0; i < rows->rows; i++)
        memcpy(to + i * rows->to_pitch, from + i * rows->from_pitch,
               rows->bytes);
    return XRAY_OK;
}

/* The sum over the bytes of one row, which are numbered from `at`. Words of
 * which the row has only a part hold 0 elsewhere. */
static uint64_t sum_row(const unsigned char *p, uint64_t bytes, uint64_t at)
{
    uint64_t sum = 0;
    uint64_t word = 0;
    uint64_t head = at % 8;
    if (head) {
        uint64_t count = 8 - head < bytes ? 8 - head : bytes;
        memcpy((unsigned char *)&word + head, p, count);
        sum = xray_checksum_word(at / 8, word);
        p += count;
        bytes -= count;
        at += count;
    }
    uint64_t i = at / 8;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        memcpy(&word, p, 8);
        sum += xray_checksum_word(i++, word);
    }
    word = 0;
    memcpy(&word, p, bytes);
    return bytes ? sum + xray_checksum_word(i, word) : sum;
}

xray_status cpu_checksum(void *self, const xray_checksum_rows *rows,
                         uint64_t *out)
{
    CPU_CHECK(self, rows, "checksum", rows);
    if (!out || (rows->rows && rows->bytes && !rows->data))
        return cpu_fail(self, XRAY_E_ARG, "checksum", "a pointer is NULL");
    const unsigned char *p = rows->data;
    uint64_t sum = xray_checksum_length(rows->rows * rows->bytes);
    for (uint64_t i = 0; i < rows->rows && rows->bytes; i++)
        sum += sum_row(p + i * rows->pitch, rows->bytes,
                       rows->at + i * rows->at_pitch);
    *out = sum;
    return XRAY_OK;
}

xray_status cpu_stream_create(void *self, xray_stream **out)
{
    xray_stream *s = calloc(1, sizeof(*s));
    if (!s)
        return cpu_fail(self, XRAY_E_NOMEM, "stream", "no memory");
    *out = s;
    return XRAY_OK;
}

void cpu_stream_destroy(void *self, xray_stream *stream)
{
    (void)self;
    free(stream);
}

xray_status cpu_sync(void *self, xray_stream *stream)
{
    (void)self;
    (void)stream;
    return XRAY_OK;
}

xray_status cpu_event_create(void *self, xray_event **out)
{
    xray_event *e = calloc(1, sizeof(*e));
    if (!e)
        return cpu_fail(self, XRAY_E_NOMEM, "event", "no memory");
    *out = e;
    return XRAY_OK;
}

void cpu_event_destroy(void *self, xray_event *event)
{
    (void)self;
    free(event);
}

xray_status cpu_event_record(void *self, xray_stream *stream, xray_event *event)
{
    (void)stream;
    return event ? XRAY_OK
                 : cpu_fail(self, XRAY_E_ARG, "event_record", "event is NULL");
}

xray_status cpu_event_wait(void *self, xray_stream *stream, xray_event *event)
{
    (void)stream;
    return event ? XRAY_OK
                 : cpu_fail(self, XRAY_E_ARG, "event_wait", "event is NULL");
}

xray_status cpu_event_query(void *self, xray_event *event)
{
    return event ? XRAY_OK
                 : cpu_fail(self, XRAY_E_ARG, "event_query", "event is NULL");
}

xray_status cpu_event_sync(void *self, xray_event *event)
{
    return event ? XRAY_OK
                 : cpu_fail(self, XRAY_E_ARG, "event_sync", "event is NULL");
}
