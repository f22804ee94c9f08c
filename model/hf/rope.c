/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the frequencies of rotary pairs: Su et al. 2021 (RoFormer), section
 * 3.2.2; YaRN: Peng et al. 2023, section 3.2; llama3: as published with Llama
 * 3.1.
 */
#include <math.h>

#include "model/hf/config.h"

#define TWO_PI 6.283185307179586476925286766559

/* Divides low frequencies by `factor`, keeps high ones, and blends those
 * between by how many turns fit into the original context. */
static double llama3_frequency(const xm_rope *rope, double plain)
{
    double turns = rope->original_positions * plain / TWO_PI;
    if (turns < rope->low_freq_factor)
        return plain / rope->factor;
    if (turns > rope->high_freq_factor)
        return plain;
    double smooth = (turns - rope->low_freq_factor) /
                    (rope->high_freq_factor - rope->low_freq_factor);
    return (1 - smooth) * plain / rope->factor + smooth * plain;
}

/* Twice the index, as a real number, of the pair that makes `turns` full turns
 * in the original context. */
static double yarn_dimension(const xm_rope *rope, double turns, uint32_t rotary)
{
    return rotary * log(rope->original_positions / (turns * TWO_PI)) /
           (2 * log(rope->theta));
}

static void yarn_ramp_range(const xm_rope *rope, uint32_t rotary,
                            double *out_low, double *out_high)
{
    double low = yarn_dimension(rope, rope->beta_fast, rotary);
    double high = yarn_dimension(rope, rope->beta_slow, rotary);
    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    *out_low = low > 0 ? low : 0;
    *out_high = high < rotary - 1.0 ? high : rotary - 1.0;
    if (*out_low == *out_high)
        *out_high += 0.001;
}

void xm_rope_frequencies(const xm_config *config, const xm_rope *rope,
                         double *out)
{
    double low = 0;
    double high = 1;
    if (rope->kind == XM_ROPE_YARN)
        yarn_ramp_range(rope, config->rotary, &low, &high);
    for (uint32_t i = 0; i < config->rotary / 2; i++) {
        double plain = 1.0 / pow(rope->theta, 2.0 * i / config->rotary);
        double ramp = (i - low) / (high - low);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        switch (rope->kind) {
        case XM_ROPE_LINEAR:
            out[i] = plain / rope->factor;
            break;
        case XM_ROPE_LLAMA3:
            out[i] = llama3_frequency(rope, plain);
            break;
        case XM_ROPE_YARN:
            out[i] = plain / rope->factor * ramp + plain * (1 - ramp);
            break;
        default:
            out[i] = plain;
        }
    }
}
