/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of the training backend of a policy that is cut over ranks.
 */
#ifndef TESTS_FAKES_GRID_TRAINER_H
#define TESTS_FAKES_GRID_TRAINER_H

#include "tests/fakes/grid.h"

#define EMBED 0u
#define HEAD 1u

typedef struct trainer {
    grid_world world;
    uint32_t rank; /* of the world */
    uint32_t vocab;
    uint32_t half_rows;  /* of the larger half */
    uint32_t held_parts; /* bit STAGE * HALVES + HALF */
    uint64_t tokens;     /* bound of a micro-batch */
    uint64_t row_tokens;
    uint32_t micro_multiple;
    uint32_t token_multiple;
    uint64_t version;
    uint32_t leases;
    uint32_t exported; /* tensors of the export in progress */
    grid_rows held[STAGES];
    float *table[STAGES];  /* [rows held, HIDDEN] */
    int64_t *grad[STAGES]; /* [vocab, HIDDEN] rows held only, then the number of
                            * those that are not finite */
    int64_t *all_grads;    /* [replicas, vocab * HIDDEN + 1] */
    float *complete;       /* [vocab, HIDDEN] */
    float *gathered;       /* [width, vocab, HIDDEN] */
    float *hidden;         /* [tokens, HIDDEN] */
    float *logits;         /* [half_rows] */
    grid_part *parts;      /* [HALVES, tokens] */
    double *slopes;        /* [tokens * HIDDEN + 1] dL/dhidden, and a status */
    double *both_slopes;   /* [HALVES, tokens, HIDDEN] */
    double *squares;       /* [STAGES * HALVES] */
    double *all_squares;   /* [width, STAGES * HALVES] */
    float *values[4];      /* [tokens] logp, entropy, dlogp, dentropy */
    xray_tensor tensors[STAGES];
    xray_weights weights;
    xray_tensor part_tensor;
    xray_weights part; /* of an export */
} trainer;

static inline int holds_part(const trainer *self, uint32_t stage, uint32_t half)
{
    return (self->held_parts >> (stage * HALVES + half)) & 1;
}

static inline int holds_stage(const trainer *self, uint32_t stage)
{
    return holds_part(self, stage, 0) || holds_part(self, stage, 1);
}

static inline float *row_of(const trainer *self, uint32_t stage, uint32_t row)
{
    return self->table[stage] +
           (size_t)(row - self->held[stage].first) * HIDDEN;
}

static inline uint64_t table_size(const trainer *self)
{
    return (uint64_t)self->vocab * HIDDEN;
}

static inline xray_status refuse_call(const trainer *self, xray_status status,
                                      const char *where, const char *why)
{
    return self->world.host->fail(self->world.host, status, where, why);
}

xray_status grid_forward(void *self, const xray_batch *const *batches,
                         uint32_t count, uint32_t outputs, xray_outputs *out);
xray_status grid_backward(void *self, const xray_batch *const *batches,
                          uint32_t count, const xray_loss *loss);
xray_status grid_discard(void *self);
xray_status grid_step(void *self, double lr, double max_norm,
                      xray_step_result *out);

#endif
