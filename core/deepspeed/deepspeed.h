/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a DeepSpeed JSON as a layer of the configuration, between defaults and
 * files. The option of the training backend that is marked XRAY_OPT_DEEPSPEED
 * names the file. Its keys become values of the backend's section, [actor],
 * [actor.optim] and others, with origins such as "ds.json:
 * optimizer.params.lr". A different value in one of the user's files is an
 * error that names both. Environment and --set override both.
 */
#ifndef XR_DEEPSPEED_H
#define XR_DEEPSPEED_H

#include <xray/plugin.h>

#include "core/config/config.h"

/* Reads the file if the backend has such an option and it is set. Call this
 * before any section except [run] is decoded. `sft`: the job is xray sft, whose
 * sections are [sft] and [sft.optim]. `ranks`: data-parallel ranks that train.
 * Every key is applied, noted as without effect, or reported as an error. */
void xr_deepspeed_read(xr_config *config, const xray_component *train, int sft,
                       uint32_t ranks, xr_errors *errors);

/* Remarks that are not errors, in order. */
typedef struct xr_note {
    struct xr_note *next; /* NULL: the last */
    const char *text;     /* one line, lives as long as the config */
    uint32_t level;       /* XRAY_LOG_WARN or XRAY_LOG_INFO */
    uint32_t reserved;
} xr_note;
const xr_note *xr_config_notes(const xr_config *config);

#endif
