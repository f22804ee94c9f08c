/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells in a plan which work the passes over a decoder give the device, which
 * decides how much scratch memory that takes.
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

void xm_tell_work(const xm_config *config, const xm_passes *passes,
                  const xray_workload *load)
{
    xm_dims d = xm_dims_of(config);
    xray_device_work own = { XRAY_HEADER(xray_device_work),
                             .tokens = passes->tokens,
                             .row_tokens = passes->row_tokens,
                             .width = larger(larger(d.hidden, d.qkv), d.up),
                             .sides = d.hidden + larger(d.qkv, d.up),
                             .vocab = config->vocab,
                             .hidden = d.hidden,
                             .heads = config->heads,
                             .kv_heads = config->kv_heads,
                             .head_dim = config->head_dim,
                             .passes = passes->passes,
                             .segments = xm_segments(config) };
    if (!load->device_work)
        return;
    if (passes->layout)
        own.elements = count_bucket_elements(passes->layout);
    xray_fill(load->device_work, &own);
}
