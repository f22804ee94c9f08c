/* SPDX-License-Identifier: Apache-2.0
 *
 * Estimates what a run needs, from the plugins' own plans: memory per instance
 * and tag, bytes of a checkpoint, and operations per step. Compares it with the
 * memory and the disk of the machine.
 */
#ifndef XR_RESOURCES_H
#define XR_RESOURCES_H

#include "core/base/str.h"
#include "core/run/run.h"

typedef struct xr_part_plan {
    const char *who;     /* "train.NAME", "reference", "critic", "reward",
                          * "infer.NAME", "device.NAME", "rows" */
    const xr_part *part; /* NULL: memory of the core */
    xray_plan plan;      /* of the rank that takes the most memory */
    uint64_t bytes;      /* sum over all tags, on that rank */
    uint64_t least;      /* the same on the rank that takes the least */
    uint32_t fullest;    /* number of that rank among those of the role */
    uint32_t ranks;      /* number of ranks that hold it */
    uint32_t role;       /* XRAY_ROLE_*; 0: the core, or the devices of all
                          * ranks */
    /* 1 << tag: offloaded while other models on its ranks compute */
    uint32_t movable;
    uint64_t tags[XR_MAX_RANKS][XRAY_TAG_COUNT]; /* on each of its ranks */
    xray_device_work works[XR_MAX_RANKS]; /* what it gives their devices */
} xr_part_plan;

#define XR_PLANS 7

/* Memory in use while one of the parts computes, or while weights go to the
 * engine. */
typedef struct xr_turn_plan {
    const char *who;
    uint64_t bytes;
} xr_turn_plan;

typedef struct xr_resources {
    xr_part_plan parts[XR_PLANS];
    size_t count;
    uint64_t tags[XRAY_TAG_COUNT]; /* sum over all parts: on all ranks of the
                                    * fullest host if they share its memory, or
                                    * else on the fullest rank; if parts take
                                    * turns, the largest turn */
    uint64_t bytes;                /* the same, summed over tags */
    xr_turn_plan turns[XR_PLANS + 1];
    size_t turn_count; /* 0: nothing is offloaded */
    xray_device_plan machine;
    uint64_t parameters;       /* 0: the core does not know the model */
    uint64_t checkpoint_bytes; /* weights and optimizer; 0: none is written */
} xr_resources;

/* "weights", "gradients", ... */
const char *xr_tag_name(size_t tag);
/* Formats a number of bytes for people: "1.5 GiB". */
#define XR_BYTES_CAP 32
const char *xr_bytes_text(uint64_t bytes, char *buffer);

/* Asks the plugins for their plans: device, train (as actor and, if the run has
 * them, as reference, critic and reward model) and infer, each for every rank.
 * Begins with xr_run_plan_layouts. The scratch memory of a device, which all
 * models on its rank share, is a part of its own. If the device uses host
 * memory, the rows of a step are added, which the core holds. Nothing is
 * created. Parts without options are skipped, since their faults were reported
 * before. Refusals go to `errors`. */
void xr_resources_plan(xr_run *run, xr_errors *errors, xr_resources *out);

/* Asks the plans of the models of a rank which work they give its device. Sets
 * *out_count to their number, or to 0 if one of them does not say. */
xray_status xr_resources_works(const xr_run *run, uint32_t rank,
                               xray_device_work *works, uint64_t *out_count);

/* Notes in the run what one rank takes of its host's memory, for an engine that
 * chooses the hosts. */
void xr_resources_note_place(xr_run *run, const xr_resources *r);

/* The part of xr_resources_plan that adds up the parts. If models take turns on
 * the device (core/roles/memory_turns.h), it offloads what each turn allows and
 * finds the largest turn. Memory that cannot be offloaded is an error. */
void xr_resources_turns(const xr_run *run, xr_errors *errors, xr_resources *r);

/* Compares the plan with the memory of the machine. Writes one sentence to
 * `out` and returns 2 if the run does not fit, or 1 if it takes more than 90 %;
 * returns 0 otherwise, with `out` empty. */
int xr_resources_check_memory(const xr_run *run, const xr_resources *r,
                              xr_err *out);

/* Checks that the folders of the run can be written, and that the file system
 * has space for the most checkpoints that exist at the same time. Creates
 * nothing. `steps`: steps of the run; 0: unknown. */
void xr_resources_check_disk(const xr_run *run, const xr_resources *r,
                             uint64_t steps, xr_errors *errors);
/* Checks the space for one checkpoint, which a run needs to start. */
void xr_resources_check_space(const xr_run *run, const xr_resources *plans,
                              xr_errors *errors);

/* The size of a step, computed from the INI. All numbers are upper bounds. */
typedef struct xr_step_size {
    uint64_t prompts; /* train: prompts; sft: rows */
    uint64_t samples; /* samples per prompt; sft: 1 */
    uint64_t rows;
    uint64_t row_tokens; /* the longest row: prompt and response */
    uint64_t tokens;     /* rows * row_tokens */
    /* Tokens in gradient passes; a shared prompt counts once. */
    uint64_t computed;
    uint64_t epochs;
    uint64_t mini_batches;    /* per epoch */
    uint64_t mini_rows;       /* per mini-batch */
    uint64_t micro_tokens;    /* per micro-batch */
    uint64_t micro_batches;   /* per mini-batch of longest rows */
    uint64_t prompt_tokens;   /* tokens that are computed once per prompt */
    uint64_t response_tokens; /* sampled tokens */
    double sampling_flops;    /* 2 * parameters * tokens */
    double reference_flops;   /* 2 * parameters * tokens */
    double critic_flops;      /* (2 + 6 * its epochs) * parameters * tokens */
    double update_flops;      /* 6 * parameters * computed * epochs */
} xr_step_size;
void xr_step_size_of(const xr_run *run, const xr_resources *r,
                     xr_step_size *out);

#endif
