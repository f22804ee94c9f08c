/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimizer's state in a file, by Hugging Face name and global shape, so
 * that it loads into any sharding and any slice: <dir>/optim.safetensors holds
 * "<name>.exp_avg" and "<name>.exp_avg_sq", and "format", "step" and "version"
 * as metadata.
 */
#ifndef XM_TRAIN_CHECKPOINT_H
#define XM_TRAIN_CHECKPOINT_H

#include "model/train/adamw.h"
#include "model/train/save_shares.h"

#define XM_OPTIM_FILE "optim.safetensors"

/* Writes the file; `version` is the version of the weights. */
xray_status xm_optim_save(const xm_adamw *adamw, const char *dir,
                          uint64_t version, xr_err *err);

/* The same, called by all ranks as xm_weights_save_share is: each writes the
 * moments of its shares. [collective] */
xray_status xm_optim_save_share(const xm_adamw *adamw, const xm_layout *whole,
                                const char *dir, uint64_t version,
                                const xm_agreement *agreement, xr_err *err);

/* An open file that was found complete: it holds every moment of the trained
 * parameters of `whole`, the layout of all stages, in fp32 and in its shape,
 * and nothing else. */
typedef struct xm_optim xm_optim;
xray_status xm_optim_open(const xm_layout *whole, const char *dir, xr_err *err,
                          xm_optim **out);
void xm_optim_close(xm_optim *optim); /* accepts NULL */
uint64_t xm_optim_version(const xm_optim *optim);
/* Reads the moments of this rank's ranges, and sets the number of updates. */
xray_status xm_optim_restore(const xm_optim *optim, xm_adamw *adamw,
                             xr_err *err);

#endif
