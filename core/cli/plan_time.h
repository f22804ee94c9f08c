/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints how long a step is predicted to take, for xray plan.
 */
#ifndef XR_CLI_PLAN_TIME_H
#define XR_CLI_PLAN_TIME_H

#include "core/base/str.h"
#include "core/run/predict.h"

/* Appends the machine that is assumed and a line for each part of a step; says
 * so if the core does not know the model. */
void cli_put_time_text(const xr_machine *machine, const xr_prediction *p,
                       xr_str *out);
/* Appends the member "time". */
void cli_put_time_json(const xr_machine *machine, const xr_prediction *p,
                       xr_str *out);

#endif
