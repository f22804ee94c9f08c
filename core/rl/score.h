/* SPDX-License-Identifier: Apache-2.0
 *
 * The built-in reward "model": a sequence classifier with one label. A sample's
 * score is the value head's output at its last token, whatever that token is.
 */
#ifndef XR_SCORE_H
#define XR_SCORE_H

#include "core/rl/session.h"

#define XR_SCORE_NAME "model"

typedef struct xr_score_config {
    const char *path; /* folder of the model */
} xr_score_config;

/* Of interface xray.reward; its instances score nothing before they are bound
 * to a session. */
extern const xray_component xr_score_component;
void xr_score_bind(void *self, xr_session *session);

/* Reads the reward model's config.json and sets its workload: `instance` is the
 * section that names it. Nothing happens where the session has none. */
void xr_score_prepare(xr_session *session, xr_errors *errors);

#endif
