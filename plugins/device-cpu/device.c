/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory blocks, scratch buffers and parallel loops of an instance of the CPU
 * device.
 */
#include "plugins/device-cpu/device.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "plugins/device-cpu/instance.h"

#define LINE 64u /* bytes of a cache line; every block is aligned to it */
/* Blocks of at least this many bytes come from the system, which zeroes a page
 * when it is first touched. */
#define LARGE ((size_t)4 << 20)
/* About a microsecond of work; below it one thread finishes sooner. */
#define INLINE_COST 1e4
/* With four tasks per thread a late thread costs a quarter of its work. */
#define TASKS_PER_THREAD 4u

xray_status cpu_fail(const cpu_device *d, xray_status status, const char *where,
                     const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    status = xr_host_vfail(d ? d->host : NULL, status, where, fmt, args);
    va_end(args);
    return status;
}

size_t cpu_count(const xray_extent *extent)
{
    if (!extent->live)
        return extent->bound;
    int32_t live = *extent->live;
    if (live < 0)
        return 0;
    return (uint64_t)live < extent->bound ? (size_t)live : extent->bound;
}

/* ---- memory ------------------------------------------------------------- */

/* Stands in the cache line before the memory that the caller sees. */
typedef struct block_header {
    uint64_t bytes;
    uint32_t tag;
    uint32_t evicted;
} block_header;

void cpu_count_block(cpu_device *d, uint32_t tag, uint64_t bytes)
{
    d->live[tag] += bytes;
    if (d->live[tag] > d->high[tag])
        d->high[tag] = d->live[tag];
    if (tag == CPU_TAG_HOST)
        return;
    d->live_all += bytes;
    if (d->live_all > d->high_all)
        d->high_all = d->live_all;
}

void cpu_uncount_block(cpu_device *d, uint32_t tag, uint64_t bytes)
{
    d->live[tag] -= bytes;
    if (tag != CPU_TAG_HOST)
        d->live_all -= bytes;
}

void *cpu_alloc(cpu_device *d, uint32_t tag, uint64_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        return NULL;
    size_t padded = (bytes + 2 * LINE - 1) / LINE * LINE;
    char *raw =
        bytes >= LARGE ? cpu_map_pages(padded) : aligned_alloc(LINE, padded);
    if (!raw)
        return NULL;
    if (bytes < LARGE)
        memset(raw, 0, padded);
    block_header *header = (block_header *)(void *)raw;
    *header = (block_header){ .bytes = bytes, .tag = tag };
    cpu_count_block(d, tag, bytes);
    return raw + LINE;
}

void cpu_free(cpu_device *d, void *ptr)
{
    if (!ptr)
        return;
    block_header *header = (block_header *)(void *)((char *)ptr - LINE);
    if (!header->evicted)
        cpu_uncount_block(d, header->tag, header->bytes);
    if (header->bytes >= LARGE)
        cpu_unmap_pages(header, (header->bytes + 2 * LINE - 1) / LINE * LINE);
    else
        free(header);
}

void cpu_block_evict(cpu_device *d, void *ptr)
{
    block_header *header = (block_header *)(void *)((char *)ptr - LINE);
    if (header->evicted)
        return;
    header->evicted = 1;
    cpu_uncount_block(d, header->tag, header->bytes);
    cpu_drop_pages(ptr, header->bytes);
}

void cpu_block_restore(cpu_device *d, void *ptr)
{
    block_header *header = (block_header *)(void *)((char *)ptr - LINE);
    if (!header->evicted)
        return;
    header->evicted = 0;
    cpu_count_block(d, header->tag, header->bytes);
}

xray_status cpu_scratch(cpu_device *d, uint32_t part, size_t floats,
                        float **out)
{
    if (floats > SIZE_MAX / 8)
        return cpu_fail(d, XRAY_E_NOMEM, "scratch", "scratch is too large");
    size_t bytes = floats * sizeof(float);
    if (bytes > d->scratch_bytes[part]) {
        if (d->frozen)
            return cpu_fail(d, XRAY_E_STATE, "scratch",
                            "%zu bytes of scratch are needed, but %zu were "
                            "reserved",
                            bytes, d->scratch_bytes[part]);
        cpu_free(d, d->scratch[part]);
        d->scratch_bytes[part] = 0;
        d->scratch[part] = cpu_alloc(d, XRAY_TAG_WORKSPACE, bytes);
        if (!d->scratch[part])
            return cpu_fail(d, XRAY_E_NOMEM, "scratch",
                            "no memory for %zu bytes of scratch", bytes);
        d->scratch_bytes[part] = bytes;
    }
    *out = d->scratch[part];
    return XRAY_OK;
}

xray_status cpu_thread_scratch(cpu_device *d, size_t *floats, float **out)
{
    *floats = (*floats + 15) / 16 * 16;
    return cpu_scratch(d, CPU_SCRATCH_THREADS,
                       *floats * cpu_pool_threads(d->pool), out);
}

/* ---- threads ------------------------------------------------------------ */

void cpu_parallel(cpu_device *d, size_t tasks, double cost, cpu_task *task,
                  void *ctx)
{
    if (cost >= INLINE_COST) {
        cpu_pool_run(d->pool, tasks, task, ctx);
        return;
    }
    for (size_t i = 0; i < tasks; i++)
        task(ctx, i, 0);
}

typedef struct range_job {
    cpu_range *range;
    void *ctx;
    size_t n;
    size_t step;
} range_job;

static void run_range_task(void *ctx, size_t task, size_t thread)
{
    (void)thread;
    const range_job *job = ctx;
    size_t first = task * job->step;
    size_t last = job->n - first > job->step ? first + job->step : job->n;
    job->range(job->ctx, first, last);
}

void cpu_ranges(cpu_device *d, size_t n, size_t grain, double cost_each,
                cpu_range *range, void *ctx)
{
    if (n == 0)
        return;
    double cost = cost_each * (double)n;
    size_t threads = cpu_pool_threads(d->pool);
    if (cost < INLINE_COST || threads == 1) {
        range(ctx, 0, n);
        return;
    }
    size_t parts = threads * TASKS_PER_THREAD;
    double enough = cost / (INLINE_COST / 8);
    if (enough < (double)parts)
        parts = (size_t)enough + 1;
    size_t step = (n + parts - 1) / parts;
    step = (step + grain - 1) / grain * grain;
    range_job job = { range, ctx, n, step };
    cpu_pool_run(d->pool, (n + step - 1) / step, run_range_task, &job);
}
