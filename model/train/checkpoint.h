/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimizer's state in a file, by HF name and global shape, so that it
 * loads into any layout: <dir>/optim.safetensors with "<name>.exp_avg" and
 * "<name>.exp_avg_sq", and "format", "step" and "version" as metadata.
 */
#ifndef XM_TRAIN_CHECKPOINT_H
#define XM_TRAIN_CHECKPOINT_H

#include "model/train/adamw.h"
#include "model/train/together.h"

#define XM_OPTIM_FILE "optim.safetensors"

/* Writes the file; `version` counts the updates behind the weights. */
xray_status xm_optim_save(const xm_adamw *adamw, const char *dir,
                          uint64_t version, xr_err *err);

/* The same by all ranks of the layout, each the moments of its shares. */
xray_status xm_optim_save_share(const xm_adamw *adamw, const char *dir,
                                uint64_t version, const xm_together *together,
                                xr_err *err);

/* A file that was found complete: every moment of the layout's parameters that
 * are not frozen is there, in fp32 and with its shape, and nothing else. */
typedef struct xm_optim xm_optim;
xray_status xm_optim_open(const xm_layout *layout, const char *dir, xr_err *err,
                          xm_optim **out);
void xm_optim_close(xm_optim *optim); /* accepts NULL */
uint64_t xm_optim_version(const xm_optim *optim);
/* Fills the moments that are here, and the step count. */
xray_status xm_optim_restore(const xm_optim *optim, xm_adamw *adamw,
                             xr_err *err);

#endif
