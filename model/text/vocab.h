/* SPDX-License-Identifier: Apache-2.0
 *
 * Defines a map from strings to ids that is filled once and then only read.
 */
#ifndef XM_VOCAB_H
#define XM_VOCAB_H

#include <string.h>

#include "core/base/str.h"

typedef struct xm_vocab_slot {
    uint32_t tag;
    uint32_t at; /* of the key in `keys` */
    uint32_t size;
    int32_t id; /* -1: empty */
} xm_vocab_slot;

typedef struct xm_vocab {
    xm_vocab_slot *slots;
    size_t mask;
    size_t count;
    xr_str keys;
} xm_vocab;

int xm_vocab_init(xm_vocab *vocab, size_t expected); /* -1: out of memory */
void xm_vocab_free(xm_vocab *vocab);
/* A later id for the same key replaces the earlier one. Returns 1 if the key
 * was present, -1 when out of memory. */
int xm_vocab_put(xm_vocab *vocab, const char *key, size_t size, int32_t id);
int32_t xm_vocab_get(const xm_vocab *vocab, const char *key, size_t size);

static inline uint64_t xm_load8(const char *at)
{
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

static inline uint32_t xm_load4(const char *at)
{
    uint32_t word;
    memcpy(&word, at, 4);
    return word;
}

/* The hash depends on the byte order of the machine; nothing else depends on
 * the hash. */
static inline uint64_t xm_hash(const char *key, size_t size)
{
    uint64_t a = 0;
    uint64_t b = 0;
    uint64_t h = size * 0x9E3779B97F4A7C15u;
    const char *end = key + size;
    for (; size > 16; size -= 8, key += 8)
        h = ((h ^ xm_load8(key)) * 0xBF58476D1CE4E5B9u) ^ (h >> 29);
    if (size >= 8) {
        a = xm_load8(key);
        b = xm_load8(end - 8);
    } else if (size >= 4) {
        a = xm_load4(key);
        b = xm_load4(end - 4);
    } else if (size) {
        a = (uint64_t)(unsigned char)key[0] << 16 |
            (uint64_t)(unsigned char)key[size / 2] << 8 |
            (unsigned char)end[-1];
    }
    h ^= (a ^ (a >> 31)) * 0x94D049BB133111EBu;
    h ^= ((b ^ (b >> 33)) + 0x632BE59BD9B4E019u) * 0xD6E8FEB86659FD93u;
    h = (h ^ (h >> 32)) * 0xBF58476D1CE4E5B9u;
    return h ^ (h >> 29);
}

#endif
