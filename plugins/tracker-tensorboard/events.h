/* SPDX-License-Identifier: Apache-2.0
 *
 * The events of TensorBoard, as records: numbers of fields and messages are
 * those of tensorboard/compat/proto (event.proto, summary.proto, tensor.proto)
 * and tensorboard/plugins/hparams/plugin_data.proto.
 */
#ifndef TB_EVENTS_H
#define TB_EVENTS_H

#include <xray/tracker.h>

#include "core/base/str.h"

/* The tag of the run's settings, which the page HPARAMS shows. */
#define TB_SETTINGS_TAG "_hparams_/session_start_info"

/* Appends the first event of a file, which names the format. */
void tb_event_version(double time, xr_str *out);
/* Appends the event that has readers drop what they have of `step` and later
 * steps. */
void tb_event_restart(double time, uint64_t step, xr_str *out);
void tb_event_settings(double time, const xray_track_setup *setup, xr_str *out);
/* Appends the one event that a step is. */
void tb_event_step(const xray_track_step *step, xr_str *out);

#endif
