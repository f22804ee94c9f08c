/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares the table of DeepSpeed's keys and their treatment.
 */
#ifndef XR_DEEPSPEED_KEYS_H
#define XR_DEEPSPEED_KEYS_H

#include <stddef.h>
#include <stdint.h>

enum {
    XR_DS_SET,    /* becomes [section] key */
    XR_DS_USED,   /* becomes a value in another way, or is checked */
    XR_DS_IDLE,   /* without effect here because of `why`; silent if it
                   * `agrees` */
    XR_DS_WANT,   /* refused because of `why`, unless it `agrees` */
    XR_DS_OPEN,   /* an object whose members are in the table */
    XR_DS_UNUSED, /* an object without effect because of `why` */
    XR_DS_OFF,    /* an object refused because of `why`, unless empty or
                   * disabled */
};

enum {
    XR_DS_BOOL = 1,
    XR_DS_INT = 2, /* also 5e8 */
    XR_DS_REAL = 4,
    XR_DS_STRING = 8,
    XR_DS_OBJECT = 16,
    XR_DS_LIST = 32,
    XR_DS_ANY = 63,
};

/* Placeholders for the sections of the job, [actor] and [actor.optim] or [sft]
 * and [sft.optim], and for the section of the training backend. */
#define XR_DS_JOB "@"
#define XR_DS_OPTIM "@.optim"
#define XR_DS_TRAIN "@train"

typedef struct xr_ds_key {
    const char *path; /* "zero_optimization.stage" */
    uint32_t kind;    /* XR_DS_SET ... */
    uint32_t types;   /* XR_DS_BOOL ... */
    const char *section;
    const char *key;
    const char *agrees;  /* values that match this program's behaviour,
                          * separated by spaces */
    const char *why;     /* ends "no effect here: " or "refused: " */
    const char *members; /* names separated by spaces; NULL: any */
    uint32_t warn;       /* for IDLE and UNUSED: results or memory may differ */
    uint32_t reserved;
} xr_ds_key;

/* Returns NULL after the last key. */
const xr_ds_key *xr_ds_keys(size_t i);

#endif
