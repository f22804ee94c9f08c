/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks a device that does not run yet how much scratch memory the passes over a
 * decoder will take.
 */
#include "model/nn/internal.h"

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The longest bucket, or share of one, whose squares are summed at once. */
static uint64_t count_bucket_elements(const xm_layout *layout)
{
    uint64_t most = 0;
    for (uint32_t b = layout->frozen; b < layout->bucket_count; b++)
        most = larger(most, xm_bucket_share(layout, b).count);
    return most;
}

uint64_t xm_scratch_bytes(const xm_config *config, const xm_scratch *scratch,
                          const xray_workload *load)
{
    xm_dims d = xm_dims_of(config);
    xray_device_work work = { XRAY_HEADER(xray_device_work),
                              .tokens = scratch->tokens,
                              .row_tokens = scratch->row_tokens,
                              .width = larger(larger(d.hidden, d.qkv), d.up),
                              .sides = d.hidden + larger(d.qkv, d.up),
                              .vocab = config->vocab,
                              .hidden = d.hidden,
                              .heads = config->heads,
                              .kv_heads = config->kv_heads,
                              .head_dim = config->head_dim,
                              .passes = scratch->passes,
                              .threads = load->threads };
    if (!load->device)
        return 0;
    if (scratch->layout)
        work.elements = count_bucket_elements(scratch->layout);
    return load->device->plan_scratch(load->device_config, &work);
}
