/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of infer-paged, whose sequences share a pool of blocks of the KV
 * cache. Each layer has the same blocks; a table says which ones a sequence
 * has.
 */
#ifndef PAGED_H
#define PAGED_H

#include "model/serve/engine.h"

typedef struct paged_config {
    int64_t weights; /* these four are as in xm_engine_options */
    const char *trace;
    int64_t speculate;
    int64_t tensor_model_parallel_size;
    int64_t block_size;
    int64_t max_num_seqs;
    int64_t max_num_batched_tokens;
    int64_t max_model_len;
    uint64_t kv_memory;
    double watermark;
    uint32_t enable_prefix_caching;
    uint32_t reserved;
} paged_config;

#endif
