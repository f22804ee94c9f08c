/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the names of an inference engine's capabilities.
 */
#include "core/base/infer_needs.h"

#include <stddef.h>

#include <xray/infer.h>

static const struct {
    uint64_t bit;
    const char *name;
} needs[] = {
    { XRAY_INFER_TRUNCATION, "top_p, min_p or top_k" },
    { XRAY_INFER_STREAM, "stream" },
    { XRAY_INFER_ABORT_SAMPLE, "the abort of one sample" },
    { XRAY_INFER_UPDATE_RUNNING, "an update under running requests" },
    { XRAY_INFER_STOP_LISTS, "stop_lists" },
    { XRAY_INFER_REPEATS, "repeat_size" },
    { XRAY_INFER_MIN_TOKENS, "min_tokens" },
    { XRAY_INFER_PENALTIES, "a penalty" },
    { XRAY_INFER_BIASES, "biases" },
    { XRAY_INFER_MASKS, "allowed_ids or banned_lists" },
    { XRAY_INFER_FORCED_IDS, "forced_ids" },
    { XRAY_INFER_TOP_LOGP, "top_count" },
    { XRAY_INFER_LOGP_IDS, "logp_ids" },
    { XRAY_INFER_PROMPT_LOGP, "prompt_logp" },
};

const char *xr_infer_need_name(uint64_t bits)
{
    for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++)
        if (bits & needs[i].bit)
            return needs[i].name;
    return NULL;
}
