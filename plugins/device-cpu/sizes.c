/* SPDX-License-Identifier: Apache-2.0
 *
 * How much scratch memory an instance of the CPU device would take for a given
 * work: the sum of what the operators reserve.
 */
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
    size_t floats = CPU_FIRST_SCRATCH;
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

uint64_t cpu_plan_scratch(const void *config, const xray_device_work *work)
{
    (void)config;
    if (!work || work->header.size < sizeof(*work))
        return 0;
    size_t row = (work->vocab + 15) / 16 * 16;
    size_t floats =
        larger(count_thread_floats(work) * cpu_pool_size(work->threads),
               cpu_sumsq_floats(work->elements));
    int chunk =
        (work->passes & XRAY_PASS_SAMPLE) ||
        ((work->passes & XRAY_PASS_LOGP) && !(work->passes & XRAY_PASS_LOGITS));
    if (chunk && row)
        floats += cpu_logits_chunk(row) * row;
    return floats * sizeof(float);
}
