/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares the policy: a table of logits [previous token][token] in host
 * memory.
 */
#ifndef TABLE_H
#define TABLE_H

#include <xray/infer.h>
#include <xray/train.h>

#define TABLE_NUMERICS "table.fp32/1"

/* Writes the log-probabilities of every token after `previous` to logp[vocab],
 * at a temperature. Both backends use it, so their bits are the same. */
void table_logp(const float *table, uint32_t vocab, int32_t previous,
                float temperature, float *logp);

/* Refuses a model that is not a table; otherwise plans its memory. */
xray_status table_plan(const xray_host *host, const void *config,
                       const xray_model *model, const xray_world *world,
                       const xray_workload *load, xray_plan *out);

/* Reads or writes <dir>/table.bin. */
xray_status table_read(const xray_host *host, const char *dir, float *table,
                       uint64_t count);
xray_status table_write(const xray_host *host, const char *dir,
                        const float *table, uint64_t count);

/* Copies a request and all that it points to into one block, which the caller
 * frees; NULL: out of memory. Strides are those of this version. */
xray_request *table_keep(const xray_request *from);
/* Changes the logits after the `count` sampled tokens of a sample as its
 * request wishes. */
void table_change(const xray_request *request, const int32_t *tokens,
                  uint32_t count, uint32_t vocab, float *logits);
/* Writes the `count` likeliest ids, at most vocab, and their log-probs. */
void table_likeliest(const float *logp, uint32_t vocab, uint32_t count,
                     int32_t *ids, float *values);

extern const xray_train_ops table_train_ops;
extern const xray_infer_ops table_infer_ops;

#endif
