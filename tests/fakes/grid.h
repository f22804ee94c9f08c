/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares a policy that is cut over ranks. Its model has two tables of V rows
 * and HIDDEN columns: the hidden state of a token is a row of `embed`, and the
 * logit of the next token v is the product with row v of `head`. `tp` 2 cuts
 * both tables into halves of the vocabulary, `pp` 2 puts `embed` on the first
 * stage and `head` on the second.
 *
 * Everything is computed by halves and joined in a fixed order, by one rank as
 * by four, and gradients are sums of integers, so the bits depend neither on
 * the cut nor on the number of replicas.
 */
#ifndef TESTS_FAKES_GRID_H
#define TESTS_FAKES_GRID_H

#include <xray/infer.h>
#include <xray/train.h>

#define GRID_NUMERICS "grid.fp64/0"
#define HIDDEN 6u
#define HALVES 2u
#define STAGES 2u

/* Options of both backends; an engine has one stage. */
typedef struct grid_config {
    int64_t tp;
    int64_t pp;
    int64_t micro_multiple; /* train */
    int64_t token_multiple;
} grid_config;

/* Rows [first, end) of a table. */
typedef struct grid_rows {
    uint32_t first;
    uint32_t end;
} grid_rows;

grid_rows grid_half(uint32_t vocab, uint32_t half);

/* Half a distribution: the largest logit, the sum of exp(logit - most), that of
 * exp(logit - most) * logit, and the logit of the target, or 0. */
typedef struct grid_part {
    double most;
    double sum;
    double weighted;
    double target;
} grid_part;

/* A distribution: the log of its sum, the target's log-prob, the entropy. */
typedef struct grid_joined {
    double log_sum;
    double logp;
    double entropy;
} grid_joined;

/* Returns the part of the rows. `logits` begins with that of rows.first. */
grid_part grid_summarize(const float *logits, grid_rows rows,
                         double temperature, uint32_t target);
grid_joined grid_join(const grid_part *low, const grid_part *high);
/* The logit of a row of `head`. */
float grid_logit(const float *hidden, const float *row);

/* The sub-groups that a cut model uses, of size 1 in a world of one. */
typedef struct grid_world {
    const xray_host *host;
    const xray_device_ops *device;
    void *device_self;
    const xray_comm_ops *comm;
    xray_subgroup tp;
    xray_subgroup pp;
    xray_subgroup data;
    xray_subgroup replica;
} grid_world;

/* Finds them, and checks that they are those that the options ask for. */
xray_status grid_open_world(const xray_setup *setup, const grid_config *config,
                            grid_world *out);
xray_status grid_alloc(const grid_world *world, const char *owner, uint32_t tag,
                       uint64_t bytes, void **out);
/* Writes `bytes` of each rank of the sub-group to `all`, in their order. A
 * multiple of 4. */
xray_status grid_gather(const grid_world *world, const xray_subgroup *group,
                        const void *mine, void *all, uint64_t bytes);

/* Draws both tables, or reads them from the folder of the model. */
xray_status grid_start(const xray_host *host, const xray_model *model,
                       float *tables);
/* Reads or writes <dir>/grid.bin: the number of updates, then both tables,
 * complete. */
xray_status grid_read(const xray_host *host, const char *dir, float *tables,
                      uint64_t count, uint64_t *out_version);
xray_status grid_write(const xray_host *host, const char *dir,
                       const float *tables, uint64_t count, uint64_t version);

extern const xray_train_ops grid_train_ops;
extern const xray_infer_ops grid_infer_ops;

#endif
