/* SPDX-License-Identifier: Apache-2.0
 *
 * Frequencies of the rotary pairs: Su et al. 2021 (RoFormer), section 3.2.2.
 */
#include <math.h>

#include "model/hf/config.h"

void xm_rope_frequencies(const xm_config *config, const xm_rope *rope,
                         double *out)
{
    for (uint32_t i = 0; i < config->rotary / 2; i++)
        out[i] = 1.0 / pow(rope->theta, 2.0 * i / config->rotary);
}
