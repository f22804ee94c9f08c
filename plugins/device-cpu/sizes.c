/* SPDX-License-Identifier: Apache-2.0
 *
 * How much scratch memory an instance of the CPU device would take for given
 * works: for each of its parts the most that an operator reserves.
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
    size_t floats = 0;
    if (work->passes & XRAY_PASS_ROWS)
        floats = larger(floats, cpu_attend_floats(keys, dim, parents));
    if (work->passes & XRAY_PASS_GRADS)
        floats = larger(floats, cpu_attend_grad_floats(keys, dim, parents));
    if (work->passes & XRAY_PASS_CACHE)
        floats = larger(floats, cpu_attend_kv_floats(keys));
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

uint64_t cpu_plan_scratch(const void *config, uint32_t threads,
                          const xray_device_work *works, uint64_t count,
                          uint64_t stride)
{
    size_t each = CPU_FIRST_SCRATCH;
    size_t sums = 0;
    size_t logits = 0;
    (void)config;
    for (uint64_t i = 0; i < count; i++) {
        xray_device_work work;
        xr_element_read(works, stride, i, sizeof(work), &work);
        each = larger(each, count_thread_floats(&work));
        sums = larger(sums, cpu_sumsq_floats(work.elements));
        logits = larger(logits, count_chunk_floats(&work));
    }
    return (larger(each * cpu_pool_size(threads), sums) + logits) *
           sizeof(float);
}
