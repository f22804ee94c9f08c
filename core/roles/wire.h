/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout of memory shared with a Workhorse: a batch with the outputs of a
 * model, or prompts with their samples.
 */
#ifndef XR_WIRE_H
#define XR_WIRE_H

#include "core/roles/losses.h"
#include "core/roles/samples.h"
#include "core/run/rows.h"

/* The header of a region with a batch. */
typedef struct xr_wire_header {
    uint32_t row_cap; /* capacities, from which the layout follows */
    uint32_t token_cap;
    uint64_t names;
    uint64_t context_size;
    uint32_t rows;
    uint32_t tokens;
    uint32_t views;   /* micro-batches, including empty ones at the end */
    uint32_t outputs; /* XRAY_OUTPUT_* */
    uint32_t loss;    /* XR_LOSS_* */
    uint32_t prompts; /* XR_PROMPTS_* */
    /* Of the mini-batch, each with `sums` and `weights` of its own; 0: none. */
    uint32_t segments;
    uint32_t spans;  /* of all rows; also their capacity */
    uint32_t ratios; /* of the names: xr_loss_spec */
    uint32_t reserved;
} xr_wire_header;

typedef struct xr_wire {
    xr_wire_header *header;
    uint32_t *index;   /* [row_cap] number of each row in the complete batch */
    uint32_t *segment; /* [row_cap] that each row is of */
    unsigned char *context;
    xr_rows rows;
    double *sums;    /* [slots, names]: xr_loss_slots of the segments */
    double *weights; /* [slots, names] */
    float *out[3];   /* [token_cap] logp, entropy, value */
} xr_wire;

/* Returns the bytes of a region with such a header. */
uint64_t xr_wire_bytes(const xr_wire_header *shape);
/* Starts an empty batch in `memory`. */
void xr_wire_begin(void *memory, const xr_wire_header *shape, xr_wire *out);
/* Maps a batch that another process wrote to `size` bytes. */
xray_status xr_wire_map(void *memory, uint64_t size, xr_err *err, xr_wire *out);
/* Writes the numbers of rows, tokens and spans to the header. */
void xr_wire_close(xr_wire *wire);
/* Have messages carry what the WholeModel writes to the region before the call,
 * and what the answering rank writes during it; `sums` and `weights` are part
 * of both. */
void xr_wire_carry_inputs(const xr_wire *wire, xray_region *region);
void xr_wire_carry_results(const xr_wire *wire, xray_region *region);
/* Moves the results (`sums`, `weights`, `out`) to zeroed memory of the caller,
 * so that a rank that does not answer leaves those of the region alone. Returns
 * the bytes of that memory; with NULL nothing is moved. */
uint64_t xr_wire_aside(xr_wire *wire, void *memory);
/* Cuts the rows into micro-batches for a role. The WholeModel counts
 * micro-batches with this function, and the Workhorse cuts them with it. */
xray_status xr_wire_cut(const xr_run *run, uint32_t role, const xr_wire *wire,
                        xr_views *views, xr_err *err);

/* The header of a region with prompts. */
typedef struct xr_wire_rollout_header {
    uint32_t prompts;
    uint32_t ids; /* tokens of all prompts */
    xr_sampling how;
} xr_wire_rollout_header;

typedef struct xr_wire_rollout {
    xr_wire_rollout_header *header;
    uint64_t *prompt_id;    /* [prompts] */
    uint64_t *versions;     /* [samples] */
    uint32_t *prompt_start; /* [prompts + 1] offsets into `prompt` */
    int32_t *prompt;        /* [ids] */
    uint32_t *sizes;        /* [samples] */
    uint32_t *finish;       /* [samples] */
    int32_t *tokens;        /* [samples, max_tokens] */
    float *logp;            /* [samples, max_tokens] */
} xr_wire_rollout;

uint64_t xr_wire_rollout_bytes(const xr_wire_rollout_header *shape);
void xr_wire_rollout_begin(void *memory, const xr_wire_rollout_header *shape,
                           xr_wire_rollout *out);
xray_status xr_wire_rollout_map(void *memory, uint64_t size, xr_err *err,
                                xr_wire_rollout *out);
/* As xr_wire_carry_inputs and xr_wire_carry_results do. */
void xr_wire_rollout_carry_inputs(const xr_wire_rollout *rollout,
                                  xray_region *region);
void xr_wire_rollout_carry_results(const xr_wire_rollout *rollout,
                                   xray_region *region);
/* Moves the samples to memory of the caller, as xr_wire_aside does. */
uint64_t xr_wire_rollout_aside(xr_wire_rollout *rollout, void *memory);

#endif
