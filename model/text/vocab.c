/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the hash table of a vocabulary, with open addressing.
 */
#include "model/text/vocab.h"

#include <stdlib.h>

int xm_vocab_init(xm_vocab *vocab, size_t expected)
{
    size_t slots = 16;
    while (slots / 2 < expected) {
        if (slots > SIZE_MAX / 4)
            return -1;
        slots *= 2;
    }
    vocab->slots = xr_calloc(slots, sizeof *vocab->slots);
    if (!vocab->slots)
        return -1;
    vocab->mask = slots - 1;
    for (size_t i = 0; i < slots; i++)
        vocab->slots[i].id = -1;
    return 0;
}

void xm_vocab_free(xm_vocab *vocab)
{
    free(vocab->slots);
    xr_str_free(&vocab->keys);
    vocab->slots = NULL;
}

/* Returns the slot of the key, or the empty slot where it belongs. */
static xm_vocab_slot *find_slot(const xm_vocab *vocab, uint64_t hash,
                                const char *key, size_t size)
{
    uint32_t tag = (uint32_t)(hash >> 32);
    for (size_t i = (size_t)hash;; i++) {
        xm_vocab_slot *s = &vocab->slots[i & vocab->mask];
        if (s->id < 0 ||
            (s->tag == tag && s->size == size &&
             (!size || memcmp(vocab->keys.data + s->at, key, size) == 0)))
            return s;
    }
}

int xm_vocab_put(xm_vocab *vocab, const char *key, size_t size, int32_t id)
{
    uint64_t hash = xm_hash(key, size);
    xm_vocab_slot *s = find_slot(vocab, hash, key, size);
    if (s->id >= 0) {
        s->id = id;
        return 1;
    }
    if (vocab->count + 1 >= vocab->mask || vocab->keys.size + size > UINT32_MAX)
        return -1;
    *s = (xm_vocab_slot){ (uint32_t)(hash >> 32), (uint32_t)vocab->keys.size,
                          (uint32_t)size, id };
    xr_str_append(&vocab->keys, key, size);
    vocab->count++;
    return vocab->keys.failed ? -1 : 0;
}

int32_t xm_vocab_get(const xm_vocab *vocab, const char *key, size_t size)
{
    return vocab->slots ? find_slot(vocab, xm_hash(key, size), key, size)->id
                        : -1;
}
