/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of infer-dsinf, an engine over a contiguous workspace of keys and
 * values. Each layer has blocks [slots][blocks of a slot]; a slot holds one
 * sequence and is refilled in the step after that sequence ends. The engine of
 * model/serve does the rest.
 */
#ifndef DSINF_H
#define DSINF_H

#include "model/serve/engine.h"

typedef struct dsinf_config {
    int64_t weights; /* these four are as in xm_engine_options */
    const char *trace;
    int64_t speculate;
    int64_t tensor_model_parallel_size;
    int64_t max_num_seqs;
    int64_t max_num_batched_tokens;
    uint64_t kv_memory;
} dsinf_config;

/* As find_bounds of xm_engine_kind; `options` is a dsinf_config. */
xray_status dsinf_find_bounds(const void *options, const xm_config *model,
                              const xray_workload *load, xr_err *err,
                              xm_engine_bounds *out);

#endif
