/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run takes, from the plugins' own plans: memory by instance and tag,
 * bytes of a checkpoint, arithmetic of a step; and whether the machine and the
 * disk have it.
 */
#ifndef XR_RESOURCES_H
#define XR_RESOURCES_H

#include "core/base/str.h"
#include "core/run/run.h"

typedef struct xr_part_plan {
    const char *who;     /* "train.NAME", "reference", "critic", "reward",
                          * "infer.NAME", "rows" */
    const xr_part *part; /* NULL: the core's own */
    xray_plan plan;      /* of one rank */
    uint64_t bytes;      /* of all tags, on one rank */
    uint64_t ranks;      /* that hold it */
    uint32_t role;       /* XRAY_ROLE_*; 0: the core's own */
    uint32_t goes;       /* 1 << tag: away while others on its ranks compute */
} xr_part_plan;

#define XR_PLANS 6

/* What is there at once while one of the parts computes, or weights go to the
 * engine. */
typedef struct xr_turn_plan {
    const char *who;
    uint64_t bytes;
} xr_turn_plan;

typedef struct xr_resources {
    xr_part_plan parts[XR_PLANS];
    size_t count;
    uint64_t tags[XRAY_TAG_COUNT]; /* of all parts, and of all ranks where they
                                    * share the host's memory; where parts take
                                    * turns, the most of a turn */
    uint64_t bytes;                /* the same, of all tags */
    xr_turn_plan turns[XR_PLANS + 1];
    size_t turn_count; /* 0: nothing goes away */
    xray_device_plan machine;
    uint64_t parameters;       /* 0: the core does not know the model */
    uint64_t checkpoint_bytes; /* weights and optimizer; 0: none is written */
} xr_resources;

/* "weights", "gradients", ... */
const char *xr_tag_name(size_t tag);
/* Bytes as people read them: "1.5 GiB". */
#define XR_BYTES_CAP 32
const char *xr_bytes_text(uint64_t bytes, char *buffer);

/* Asks device, train (as actor and, where the run has them, as reference,
 * critic and reward model) and infer for their plans and adds, where the
 * device's memory is the host's, the rows of a step that the core holds;
 * nothing is created. Parts without options are passed over: what is wrong with
 * them was said. Refusals go to `errors`. */
void xr_resources_plan(xr_run *run, xr_errors *errors, xr_resources *out);

/* The part of xr_resources_plan for models that take turns
 * (core/roles/memory_turns.h): what each of them leaves, and the most of it.
 * What cannot go is an error. */
void xr_resources_turns(const xr_run *run, xr_errors *errors, xr_resources *r);

/* The plan against the machine: one sentence in `out` (cleared first), and 2
 * where it does not fit, 1 above 90 %, 0 (nothing said) where it fits. */
int xr_resources_check_memory(const xr_run *run, const xr_resources *r,
                              xr_err *out);

/* Checks that default_local_dir and rollout_data_dir can be written, and that
 * the file system has room for the checkpoints that are there at once; makes
 * nothing. `steps`: of the run, 0 where it is not known. */
void xr_resources_check_disk(const xr_run *run, const xr_resources *r,
                             uint64_t steps, xr_errors *errors);
/* Room for one checkpoint: what a run asks for when it starts. */
void xr_resources_check_space(const xr_run *run, const xr_resources *plans,
                              xr_errors *errors);

/* The arithmetic of a step, worked out of the INI: at most so many. */
typedef struct xr_step_size {
    uint64_t prompts; /* train; sft: rows */
    uint64_t samples; /* of a prompt; sft: 1 */
    uint64_t rows;
    uint64_t row_tokens; /* longest: prompt and response */
    uint64_t tokens;     /* rows * row_tokens */
    uint64_t computed;   /* of those in gradients: a shared prompt once */
    uint64_t epochs;
    uint64_t mini_batches;    /* of an epoch */
    uint64_t mini_rows;       /* of a mini-batch */
    uint64_t micro_tokens;    /* of a micro-batch */
    uint64_t micro_batches;   /* of a mini-batch of longest rows */
    uint64_t prompt_tokens;   /* computed once a prompt */
    uint64_t response_tokens; /* sampled */
    double sampling_flops;    /* 2 * parameters * tokens */
    double reference_flops;   /* 2 * parameters * tokens */
    double critic_flops;      /* (2 + 6 * its epochs) * parameters * tokens */
    double update_flops;      /* 6 * parameters * computed * epochs */
} xr_step_size;
void xr_step_size_of(const xr_run *run, const xr_resources *r,
                     xr_step_size *out);

#endif
