/* SPDX-License-Identifier: Apache-2.0
 *
 * The built-in reward model: a sequence classifier with one label. The score of
 * a sample is the value head's output at its last token, whatever that token
 * is.
 */
#ifndef XR_ROLES_REWARD_MODEL_H
#define XR_ROLES_REWARD_MODEL_H

#include "core/roles/roles.h"
#include "core/run/reward_model.h"

/* Returns the operations of any reward of the run. */
const xray_reward_ops *xr_reward_ops(const xr_part *part);
/* Binds an instance of the built-in reward model to roles; before that it
 * scores nothing. */
void xr_reward_model_bind(void *self, xr_roles *roles);

#endif
