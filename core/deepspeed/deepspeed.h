/* SPDX-License-Identifier: Apache-2.0
 *
 * A DeepSpeed JSON as a layer of the configuration, between defaults and files.
 * The training backend's option that has XRAY_OPT_DEEPSPEED names it. What it
 * says of that backend's section, [actor], [actor.optim] and the like becomes
 * their values, whose origin is "ds.json: optimizer.params.lr"; what a file of
 * the user's sets otherwise is an error that names both. Environment and --set
 * stand above both.
 */
#ifndef XR_DEEPSPEED_H
#define XR_DEEPSPEED_H

#include <xray/plugin.h>

#include "core/config/config.h"

/* Reads the file, if the backend takes one and one is named. Goes before any
 * section but [run] is decoded. `sft`: the job is xray sft, whose sections are
 * [sft] and [sft.optim]. `ranks`: data-parallel ranks that train. Every key is
 * applied, noted as without effect, or an error. */
void xr_deepspeed_read(xr_config *config, const xray_component *train, int sft,
                       uint32_t ranks, xr_errors *errors);

/* What is no error but must be said, in order. */
typedef struct xr_note {
    struct xr_note *next; /* NULL: the last */
    const char *text;     /* one line, lives as long as the config */
    uint32_t level;       /* XRAY_LOG_WARN or XRAY_LOG_INFO */
    uint32_t reserved;
} xr_note;
const xr_note *xr_config_notes(const xr_config *config);

#endif
