/* SPDX-License-Identifier: Apache-2.0
 *
 * Says into how many segments the sums of a model are cut.
 */
#include <xray/operators.h>

#include "model/hf/config.h"

uint32_t xm_segments(const xm_config *config)
{
    uint32_t sizes = config->heads | config->kv_heads | config->ffn;
    uint32_t segments = 1;
    while (segments < XRAY_SEGMENTS && sizes % (2 * segments) == 0)
        segments *= 2;
    return segments;
}

uint64_t xm_vocab_segment(const xm_config *config)
{
    uint32_t segments = xm_segments(config);
    uint64_t padded = ((uint64_t)config->vocab + 127) / 128 * 128;
    return segments > 1 ? padded / segments : 0;
}
