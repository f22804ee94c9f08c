/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the reader of a DeepSpeed JSON.
 */
#ifndef XR_DEEPSPEED_INTERNAL_H
#define XR_DEEPSPEED_INTERNAL_H

#include "core/base/json.h"
#include "core/config/internal.h"
#include "core/deepspeed/deepspeed.h"
#include "core/deepspeed/keys.h"

typedef struct ds_read {
    xr_config *config;
    xr_errors *errors;
    const cJSON *root;
    const char *file;
    const char *train;  /* section of the training backend */
    const char *option; /* its key that names the file */
    int sft;
    int refused; /* something was */
    uint32_t ranks;
    uint32_t reserved;
} ds_read;

XRAY_PRINTF(3, 4)
void xr_ds_refuse(ds_read *d, const char *path, const char *fmt, ...);
void xr_ds_note(ds_read *d, int warn, const char *path, const char *why);

/* 1 if `name` is one of `words` between spaces. */
int xr_ds_among(const char *name, const char *words);
/* The value at a path; NULL if it is missing, null or "auto". */
const cJSON *xr_ds_get(const ds_read *d, const char *path);
/* A number as an INI file has it; lives as long as the config. */
const char *xr_ds_number(ds_read *d, double value);
/* The real name of XR_DS_JOB, XR_DS_OPTIM and XR_DS_TRAIN. */
const char *xr_ds_section(const ds_read *d, const char *section);
const xr_entry *xr_ds_entry(const ds_read *d, const char *section,
                            const char *key);
/* Gives [section] key a value, unless a file set another: that is an error. */
void xr_ds_set(ds_read *d, const char *path, const char *section,
               const char *key, const char *text);

/* Keys that mean something together: batch, optimizer, schedule, precision,
 * offload. */
void xr_ds_combine(ds_read *d);

#endif
