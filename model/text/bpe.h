/* SPDX-License-Identifier: Apache-2.0
 *
 * Defines the merge table of a BPE model, a hash table of token pairs.
 */
#ifndef XM_BPE_H
#define XM_BPE_H

#include <stddef.h>
#include <stdint.h>

#define XM_NO_RANK UINT32_MAX

/* An entry that maps (left id, right id) to (rank, new id). */
typedef struct xm_merge {
    uint32_t left; /* UINT32_MAX: empty */
    uint32_t right;
    uint32_t rank;
    int32_t made;
} xm_merge;

/* A table with open addressing. The first four slots of a pair lie in one cache
 * line. */
struct xm_merges {
    xm_merge *slots;
    size_t mask; /* number of slots minus 4 */
    size_t count;
};

/* Returns the slot of a pair, or the empty slot where it belongs. */
static inline xm_merge *xm_merge_slot(const struct xm_merges *merges,
                                      uint32_t left, uint32_t right)
{
    uint64_t key = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    size_t at = (size_t)(key >> 29);
    for (;; at += 4) {
        xm_merge *line = merges->slots + (at & merges->mask);
        for (size_t i = 0; i < 4; i++)
            if (line[i].left == UINT32_MAX ||
                (line[i].left == left && line[i].right == right))
                return &line[i];
    }
}

/* Bits of a set of character pairs. Pairs may share a bit, so the set may seem
 * to contain pairs that were never added. */
#define XM_PAIR_BITS (1u << 19)

static inline uint32_t xm_pair_bit(uint32_t a, uint32_t b)
{
    return (a * 0x9E3779B1u + b * 0x85EBCA77u) >> 13;
}

#endif
