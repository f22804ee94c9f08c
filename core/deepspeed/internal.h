/* SPDX-License-Identifier: Apache-2.0
 *
 * Shares the state of the DeepSpeed reader and its helpers between the files of
 * this room.
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
    const char *option; /* its option that names the file */
    int sft;
    int refused; /* 1: a key was refused */
    uint32_t ranks;
    uint32_t reserved;
} ds_read;

XRAY_PRINTF(3, 4)
void xr_ds_refuse(ds_read *d, const char *path, const char *fmt, ...);
void xr_ds_note(ds_read *d, int warn, const char *path, const char *why);

/* 1 if `name` is one of `words`, which are separated by spaces. */
int xr_ds_among(const char *name, const char *words);
/* Returns the value at a path, or NULL if it is missing, null or "auto". */
const cJSON *xr_ds_get(const ds_read *d, const char *path);
/* Writes a number as in an INI file; the text lives as long as the config. */
const char *xr_ds_number(ds_read *d, double value);
/* Resolves XR_DS_JOB, XR_DS_OPTIM and XR_DS_TRAIN to section names. */
const char *xr_ds_section(const ds_read *d, const char *section);
const xr_entry *xr_ds_entry(const ds_read *d, const char *section,
                            const char *key);
/* Sets [section] key; an error if a file set it to another value. */
void xr_ds_set(ds_read *d, const char *path, const char *section,
               const char *key, const char *text);

/* Applies keys that are only meaningful together: batch, optimizer, schedule,
 * precision, offload. */
void xr_ds_combine(ds_read *d);

#endif
