/* SPDX-License-Identifier: Apache-2.0
 *
 * Validation: greedy decoding over the complete set, and sampled mean@n if it
 * is asked for.
 */
#ifndef XR_VALIDATE_H
#define XR_VALIDATE_H

#include "core/monitor/monitor.h"
#include "core/monitor/sample_texts.h"
#include "core/roles/samples.h"

typedef struct xr_validation {
    xr_roles *roles;
    const xr_dataset *set;
    xr_samples samples;
    const xr_row **rows; /* [batch] */
    double *sums; /* [sources, 2] sums of one pass: mean and best score */
    const char **sources; /* [source_count] distinct data sources */
    uint32_t *source_of;  /* [rows of the set] */
    uint64_t *counts;     /* [sources] */
    uint32_t source_count;
    uint32_t batch;         /* data rows per call of the engine */
    uint64_t step;          /* steps made before; names the file of samples */
    uint64_t shown;         /* greedy samples for `table` and `texts` */
    int prints;             /* 1: they are added to the table */
    xr_sample_texts *texts; /* that they are added to, or NULL; borrowed */
    size_t number;          /* of those that were added */
    xr_str table;           /* of the last validation, for the console */
} xr_validation;

xray_status xr_validation_init(xr_validation *validation, xr_roles *roles,
                               const xr_dataset *set, xr_err *err);
void xr_validation_free(xr_validation *validation);

/* Puts val-core/<source>/reward/mean@1 (greedy), .../mean@n and, with n > 1,
 * val-aux/<source>/reward/best@n into `metrics`. The greedy mean over all rows
 * goes to *out_score. With [trainer] validation_data_dir the samples are
 * written there, to one file per step. */
xray_status xr_validation_run(xr_validation *validation, xr_metrics *metrics,
                              double *out_score, xr_err *err);

#endif
