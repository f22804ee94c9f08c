/* SPDX-License-Identifier: Apache-2.0
 *
 * Words and their ids, one word a slot: a new one takes the place of the old.
 */
#ifndef XM_CACHE_H
#define XM_CACHE_H

#include "model/text/vocab.h"

#define XM_CACHE_SLOTS 32768u
#define XM_CACHE_KEY 22u
#define XM_CACHE_IDS 8u

/* One cache line. */
typedef struct xm_cached {
    uint8_t size; /* 0: empty */
    uint8_t count;
    char key[XM_CACHE_KEY];
    uint8_t ends[XM_CACHE_IDS]; /* of the ids' spans; ends[0] 0: not known */
    int32_t ids[XM_CACHE_IDS];
} xm_cached;

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

/* The slot of a word of 1 to XM_CACHE_KEY bytes; whether it holds it. */
static inline xm_cached *xm_cache_slot(xm_cached *cache, const char *key,
                                       size_t size, int *out_hit)
{
    xm_cached *slot = &cache[xm_hash(key, size) & (XM_CACHE_SLOTS - 1)];
    *out_hit = slot->size == size && xm_cache_equal(slot->key, key, size);
    return slot;
}

#endif
