/* SPDX-License-Identifier: Apache-2.0
 *
 * Defines training backends as the reader of a DeepSpeed JSON sees them: only
 * by their option tables.
 */
#ifndef XR_DEEPSPEED_BACKEND_H
#define XR_DEEPSPEED_BACKEND_H

#include <xray/plugin.h>
#include <xray/train.h>

typedef struct ds_backend_config {
    const char *deepspeed_config;
    const char *zero_file;
    int64_t stage;
} ds_backend_config;

/* Its section, [train.zero3], belongs to the backend that comes with xray. */
static const xray_option ds_backend_options[] = {
    XRAY_INT(ds_backend_config, stage, "3", 0, 3, NULL, 0u, "0.1", "A stage."),
    XRAY_PATH(ds_backend_config, deepspeed_config, "", XRAY_OPT_DEEPSPEED,
              "0.1", "A file."),
};
static const xray_component ds_backend = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_TRAIN,
    .name = "zero3",
    .options = ds_backend_options,
    .option_count = sizeof(ds_backend_options) / sizeof(ds_backend_options[0]),
    .option_stride = sizeof(ds_backend_options[0]),
    .config_size = sizeof(ds_backend_config),
};

#endif
