/* SPDX-License-Identifier: Apache-2.0
 *
 * The built-in reward "model", as far as its options go: core/roles/score.h has
 * what it does.
 */
#ifndef XR_SCORE_MODEL_H
#define XR_SCORE_MODEL_H

#include <xray/plugin.h>

#define XR_SCORE_NAME "model"

typedef struct xr_score_config {
    const char *path; /* folder of the model */
} xr_score_config;

/* Of interface xray.reward, without operations. */
extern const xray_component xr_score_component;

#endif
