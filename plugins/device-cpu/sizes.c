/* SPDX-License-Identifier: Apache-2.0
 *
 * How much scratch memory an instance of the CPU device takes for given works:
 * for each of its parts the most that an operator asks for.
 */
#include "core/base/elements.h"
#include "plugins/device-cpu/attention.h"
#include "plugins/device-cpu/support.h"

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The most floats that an operator asks for per thread. */
static size_t count_thread_floats(const xray_device_work *work)
{
    size_t keys = work->row_tokens;
    size_t dim = work->head_dim;
    size_t logits = (work->vocab + 15) / 16 * 16;
    int parents = (work->passes & XRAY_PASS_PARENTS) != 0;
    int narrow = cpu_is_narrow(work->dtype);
    size_t floats = 0;
    if (work->segments > 1)
        floats = cpu_product_floats(work->segments, narrow);
    if (work->passes & XRAY_PASS_ROWS)
        floats = larger(floats, cpu_attend_floats(keys, dim, parents, narrow));
    if (work->passes & XRAY_PASS_GRADS)
        floats =
            larger(floats, cpu_attend_grad_floats(keys, dim, parents, narrow));
    if (work->passes & XRAY_PASS_CACHE)
        floats = larger(floats, cpu_attend_kv_floats(keys, dim));
    if (work->passes & XRAY_PASS_LOGITS)
        floats = larger(floats, logits);
    if (work->passes & XRAY_PASS_SAMPLE)
        floats = larger(floats, logits * (1 + CPU_SUPPORT_ROWS));
    return (floats + 15) / 16 * 16;
}

/* Floats of a chunk of logits. */
static size_t count_chunk_floats(const xray_device_work *work)
{
    size_t row = (work->vocab + 15) / 16 * 16;
    int chunk =
        (work->passes & XRAY_PASS_SAMPLE) ||
        ((work->passes & XRAY_PASS_LOGP) && !(work->passes & XRAY_PASS_LOGITS));
    return chunk && row ? cpu_logits_chunk(row) * row : 0;
}

/* Writes the floats of each part of the scratch memory. */
static void count_parts(size_t threads, const xray_device_work *works,
                        uint64_t count, uint64_t stride, size_t out[2])
{
    size_t each = CPU_FIRST_SCRATCH;
    size_t logits = 0;
    for (uint64_t i = 0; i < count; i++) {
        xray_device_work work;
        xr_element_read(works, stride, i, sizeof(work), &work);
        each = larger(each, count_thread_floats(&work));
        logits = larger(logits, count_chunk_floats(&work));
    }
    out[CPU_SCRATCH_THREADS] = each * threads;
    out[CPU_SCRATCH_LOGITS] = logits;
}

uint64_t cpu_plan_scratch(const void *config, uint32_t threads,
                          const xray_device_work *works, uint64_t count,
                          uint64_t stride)
{
    size_t floats[2];
    (void)config;
    count_parts(cpu_pool_size(threads), works, count, stride, floats);
    return (floats[0] + floats[1]) * sizeof(float);
}

xray_status cpu_reserve(void *self, const xray_device_work *works,
                        uint64_t count, uint64_t stride)
{
    cpu_device *d = self;
    size_t floats[2];
    xray_status status = XRAY_OK;
    count_parts(cpu_pool_threads(d->pool), works, count, stride, floats);
    for (uint32_t i = 0; i < 2 && status == XRAY_OK; i++) {
        float *data;
        status = cpu_scratch(d, i, floats[i], &data);
    }
    d->frozen = d->frozen || status == XRAY_OK;
    return status;
}
