/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts what a decoder must at least compute, and what it caches.
 */
#ifndef BENCH_FLOPS_H
#define BENCH_FLOPS_H

#include "model/hf/config.h"

/* Counts the weights of the blocks' matrix products. */
static inline double count_block_weights(const xm_config *c)
{
    double q = (double)c->heads * c->head_dim;
    double kv = (double)c->kv_heads * c->head_dim;
    double up = c->gated ? 2 : 1;
    return c->layers *
           (c->hidden * (2 * q + 2 * kv) + c->hidden * (up + 1.0) * c->ffn);
}

static inline double count_lm_head_weights(const xm_config *c)
{
    return (double)c->hidden * c->vocab;
}

/* Counts the operations of one query over `keys` keys, for scores and values in
 * all layers. */
static inline double count_attention_flops(const xm_config *c, double keys)
{
    return 4.0 * c->layers * c->heads * c->head_dim * keys;
}

/* Counts the elements of a position's keys and values in all layers. */
static inline double count_cache_elements(const xm_config *c)
{
    return 2.0 * c->layers * c->kv_heads * c->head_dim;
}

#endif
