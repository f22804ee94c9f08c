/* SPDX-License-Identifier: Apache-2.0
 *
 * The built-in reward "model", as far as its options go:
 * core/roles/reward_model.h has what it does.
 */
#ifndef XR_RUN_REWARD_MODEL_H
#define XR_RUN_REWARD_MODEL_H

#include <xray/plugin.h>

#define XR_REWARD_MODEL_NAME "model"

typedef struct xr_reward_model_config {
    const char *path; /* folder of the model */
} xr_reward_model_config;

/* Of interface xray.reward, without operations. */
extern const xray_component xr_reward_model_component;

#endif
