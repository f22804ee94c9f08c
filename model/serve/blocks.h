/* SPDX-License-Identifier: Apache-2.0
 *
 * The blocks of a paged KV cache, as numbers: which sequence holds which block,
 * which blocks are free, and which free blocks still hold a prefix that another
 * sequence may begin with. The keys and values are the caller's.
 *
 *     xm_blocks_find        the cached blocks that a new sequence begins with
 *     xm_blocks_reserve     blocks for its next positions, all or none
 *     xm_blocks_append      its tokens, once or before they are computed
 *     xm_blocks_fork        another sequence that begins with the same tokens
 *     xm_blocks_trim        gives back the blocks that have no token
 *     xm_blocks_release     gives all its blocks back
 *     xm_blocks_forget      the weights have changed: nothing cached is found
 *
 * A block that has all its tokens becomes a prefix: its tokens behind those of
 * the prefix before it. Every prefix has a serial number that is never used
 * again, and a table finds a prefix by the serial of the one before it and its
 * own tokens. Both are compared, not only their hash, so that different tokens
 * never share a block. xm_blocks_forget takes a new serial for the empty
 * prefix, from which no older one can be reached, and thus costs the same
 * however much is cached.
 *
 * A block is written by one sequence only and never once it is shared: full
 * blocks are shared by counting their holders, and a fork gets a block of its
 * own in place of one that is partly filled. A released block without a prefix
 * is the next to be used again. One with a prefix stays cached and is used
 * again after all that were released before it; a sequence releases its last
 * block first, so that a prefix outlives those that go on from it.
 *
 * The same calls give the same numbers. Each call takes a time that grows with
 * the blocks and tokens it is about and with nothing else, and only
 * xm_blocks_create allocates.
 */
#ifndef XM_BLOCKS_H
#define XM_BLOCKS_H

#include <stdint.h>

#include "core/base/err.h"

typedef struct xm_blocks xm_blocks;

typedef struct xm_blocks_limits {
    uint32_t blocks;       /* 1 to 2^30 */
    uint32_t block_tokens; /* positions of a block, above 0 */
    uint32_t caching;      /* 0: xm_blocks_find finds nothing */
} xm_blocks_limits;

/* The blocks of a sequence. It starts as zeros but for `blocks`, and is so
 * again after xm_blocks_release. The members are read by the caller and written
 * by the functions below. */
typedef struct xm_block_seq {
    int32_t *blocks; /* the caller's row of the block table, which is long
                      * enough for every position that is reserved */
    uint64_t root;   /* serial of the empty prefix when it began */
    uint32_t count;  /* blocks that it holds */
    uint32_t tokens; /* tokens that are found or appended */
    uint32_t found;  /* blocks that xm_blocks_find has found, not yet held */
    uint32_t asked;  /* tokens that it has looked for */
} xm_block_seq;

typedef struct xm_blocks_stats {
    uint32_t free;         /* blocks that no sequence holds */
    uint32_t cached;       /* those of them that xm_blocks_find can find */
    uint64_t asked_tokens; /* looked for by sequences that have begun */
    uint64_t found_tokens; /* of these */
    uint64_t evictions;    /* prefixes whose block was used again */
} xm_blocks_stats;

/* Allocates all memory: about 48 bytes a block, and 4 bytes a position if
 * `caching`. */
xray_status xm_blocks_create(const xm_blocks_limits *limits, xr_err *err,
                             xm_blocks **out);
void xm_blocks_destroy(xm_blocks *pool); /* accepts NULL */

/* Looks for the first blocks of `seq`, which holds none, in the cache. `tokens`
 * are all that are known of it; the last one is not looked for, since a
 * sequence goes on from what its last token computes. Returns the number of
 * tokens found, a multiple of block_tokens. Nothing is held before
 * xm_blocks_reserve, which has to be the next call. */
uint32_t xm_blocks_find(const xm_blocks *pool, const int32_t *tokens,
                        uint32_t count, xm_block_seq *seq);

/* Gives `seq` the blocks of its first `positions` positions, those just found
 * and as many new ones as it lacks, and leaves at least `spare` blocks free.
 * Returns 0, or -1 if there are too few: then the sequence holds what it held,
 * and what was found has to be looked for again. */
int xm_blocks_reserve(xm_blocks *pool, xm_block_seq *seq, uint32_t positions,
                      uint32_t spare);

/* Appends tokens, whose positions are reserved. From here on other sequences
 * may find the blocks that they fill, so that no step may read them before the
 * step that computes these tokens; the same step may. If that step fails,
 * xm_blocks_forget keeps others from what was not computed. */
void xm_blocks_append(xm_blocks *pool, xm_block_seq *seq, const int32_t *tokens,
                      uint32_t count);

/* Lets `to`, which holds nothing, begin with the first `tokens` tokens of
 * `from`, which has at least as many. Full blocks are shared. If the last one
 * is not full, the caller copies block copy[0] to block copy[1] before the next
 * step, after the copies of earlier forks. Returns the number of blocks to
 * copy, 0 or 1, or -1 if that needs a block and none is free. */
int xm_blocks_fork(xm_blocks *pool, const xm_block_seq *from, uint32_t tokens,
                   xm_block_seq *to, int32_t copy[2]);

void xm_blocks_trim(xm_blocks *pool, xm_block_seq *seq);
void xm_blocks_release(xm_blocks *pool, xm_block_seq *seq);

/* No prefix cached so far is found from here on, and none that a sequence of
 * now goes on from: their keys and values are those of other weights, or lost.
 * The sequences keep their blocks. */
void xm_blocks_forget(xm_blocks *pool);

const xm_blocks_stats *xm_blocks_stats_of(const xm_blocks *pool);

#endif
