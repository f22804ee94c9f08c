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

void xm_tell_work(const xm_config *config, const xm_passes *passes,
                  const xray_workload *load)
{
    xm_dims d = xm_dims_of(config);
    /* Each rank of a slice draws from the logits of all. */
    int draws = (passes->passes & XRAY_PASS_SAMPLE) != 0;
    xray_device_work own = { XRAY_HEADER(xray_device_work),
                             .tokens = passes->tokens,
                             .row_tokens = passes->row_tokens,
                             .width = larger(larger(d.hidden, d.qkv), d.up),
                             .sides = d.hidden + larger(d.qkv, d.up),
                             .vocab = draws ? xm_config_vocab(config)
                                            : config->vocab,
                             .hidden = d.hidden,
                             .heads = config->heads,
                             .kv_heads = config->kv_heads,
                             .head_dim = config->head_dim,
                             .passes = passes->passes,
                             .segments = xm_segments(config),
                             .dtype = config->dtype };
    if (load->device_work)
        xray_fill(load->device_work, &own);
}
