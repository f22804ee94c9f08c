/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes config.json and the results of one that is accepted: frequencies, the
 * list of parameters, the layout of weights.
 */
#include <math.h>

#include "model/nn/layout.h"
#include "tests/fuzz/fuzz.h"

static xray_status count_param(void *ctx, const xm_param_info *info)
{
    uint64_t *sum = ctx;
    FUZZ_CHECK(info->name && info->name[0]);
    *sum += info->rows * (info->cols ? info->cols : 1);
    return XRAY_OK;
}

static void check_rope(const xm_config *config, const xm_rope *rope)
{
    static double frequencies[XM_MAX_ROTARY];
    xm_rope_frequencies(config, rope, frequencies);
    for (uint32_t i = 0; i < config->rotary / 2; i++)
        FUZZ_CHECK(isfinite(frequencies[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static xm_config config;
    xr_err err = { "" };
    uint64_t sum = 0;
    xm_layout *layout = NULL;
    char *text = fuzz_text(data, size);
    if (xm_config_parse(text, "config.json", &err, &config)) {
        fuzz_said(&err);
        free(text);
        return 0;
    }
    free(text);
    if (!config.learned_positions) {
        check_rope(&config, &config.rope);
        check_rope(&config, &config.rope_local);
    }
    FUZZ_CHECK(xm_config_params(&config, count_param, &sum) == XRAY_OK);
    FUZZ_CHECK(sum == xm_config_param_count(&config));
    if (xm_layout_create(&config, 1, &err, &layout))
        fuzz_said(&err);
    xm_layout_destroy(layout);
    return 0;
}
