/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of the built-in reward model; core/roles/reward_model.h
 * implements it.
 */
#ifndef XR_RUN_REWARD_MODEL_H
#define XR_RUN_REWARD_MODEL_H

#include <xray/plugin.h>

#define XR_REWARD_MODEL_NAME "model"

typedef struct xr_reward_model_config {
    const char *path; /* folder of the model */
} xr_reward_model_config;

/* A component of the interface xray.reward, without operations. */
extern const xray_component xr_reward_model_component;

#endif
