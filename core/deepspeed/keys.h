/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys of a DeepSpeed JSON and what becomes of each.
 */
#ifndef XR_DEEPSPEED_KEYS_H
#define XR_DEEPSPEED_KEYS_H

#include <stddef.h>
#include <stdint.h>

enum {
    XR_DS_SET,    /* becomes [section] key */
    XR_DS_USED,   /* becomes something in another way, or is checked */
    XR_DS_IDLE,   /* without effect here, `why`; silent where it `agrees` */
    XR_DS_WANT,   /* refused, `why`, unless it `agrees` */
    XR_DS_OPEN,   /* an object whose members are in the table */
    XR_DS_UNUSED, /* an object without effect, `why` */
    XR_DS_OFF,    /* an object refused, `why`, unless empty or not enabled */
};

enum {
    XR_DS_BOOL = 1,
    XR_DS_INT = 2, /* 5e8 too */
    XR_DS_REAL = 4,
    XR_DS_STRING = 8,
    XR_DS_OBJECT = 16,
    XR_DS_LIST = 32,
    XR_DS_ANY = 63,
};

/* Sections of the job: [actor] and [actor.optim], or [sft] and [sft.optim]; and
 * that of the training backend. */
#define XR_DS_JOB "@"
#define XR_DS_OPTIM "@.optim"
#define XR_DS_TRAIN "@train"

typedef struct xr_ds_key {
    const char *path; /* "zero_optimization.stage" */
    uint32_t kind;    /* XR_DS_SET ... */
    uint32_t types;   /* XR_DS_BOOL ... */
    const char *section;
    const char *key;
    const char *agrees;  /* values that are what is done here, by spaces */
    const char *why;     /* ends "no effect here: " or "refused: " */
    const char *members; /* names between spaces; NULL: any */
    uint32_t warn;       /* IDLE, UNUSED: results or memory may differ */
    uint32_t reserved;
} xr_ds_key;

/* NULL past the last. */
const xr_ds_key *xr_ds_keys(size_t i);

#endif
