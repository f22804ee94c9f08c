/* SPDX-License-Identifier: Apache-2.0
 *
 * The options and the callbacks of the tracker tensorboard.
 */
#ifndef TB_TENSORBOARD_H
#define TB_TENSORBOARD_H

#include <xray/tracker.h>

typedef struct tb_config {
    const char *dir; /* "": the folder "tensorboard" of the run */
} tb_config;

extern const xray_tracker_ops tb_ops;

#endif
