/* SPDX-License-Identifier: Apache-2.0
 *
 * Caches the ids of words, with one word per slot; a new word replaces the old
 * one.
 */
#ifndef XM_WORD_CACHE_H
#define XM_WORD_CACHE_H

#include "model/text/vocab.h"

#define XM_CACHE_SLOTS 32768u
#define XM_CACHE_KEY 22u
#define XM_CACHE_IDS 8u

/* One cache line. */
typedef struct xm_cached_word {
    uint8_t size; /* 0: empty */
    uint8_t count;
    char key[XM_CACHE_KEY];
    uint8_t ends[XM_CACHE_IDS]; /* of the ids' spans; ends[0] = 0: unknown */
    int32_t ids[XM_CACHE_IDS];
} xm_cached_word;

static inline int xm_cache_equal(const char *a, const char *b, size_t size)
{
    if (size >= 8) {
        uint64_t d = xm_load8(a) ^ xm_load8(b);
        for (size_t i = 8; i + 8 < size; i += 8)
            d |= xm_load8(a + i) ^ xm_load8(b + i);
        return (d | (xm_load8(a + size - 8) ^ xm_load8(b + size - 8))) == 0;
    }
    if (size >= 4)
        return ((xm_load4(a) ^ xm_load4(b)) |
                (xm_load4(a + size - 4) ^ xm_load4(b + size - 4))) == 0;
    int same = 1;
    for (size_t i = 0; i < size; i++)
        same &= a[i] == b[i];
    return same;
}

/* Returns the slot of a word of 1 to XM_CACHE_KEY bytes, and whether the slot
 * holds that word. */
static inline xm_cached_word *
xm_cache_slot(xm_cached_word *cache, const char *key, size_t size, int *out_hit)
{
    xm_cached_word *slot = &cache[xm_hash(key, size) & (XM_CACHE_SLOTS - 1)];
    *out_hit = slot->size == size && xm_cache_equal(slot->key, key, size);
    return slot;
}

#endif
