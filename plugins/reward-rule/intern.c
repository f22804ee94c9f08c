/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers distinct byte strings by a hash table with linear probing.
 */
#include "plugins/reward-rule/intern.h"

#include <stdlib.h>
#include <string.h>

void rule_intern_free(rule_intern *set)
{
    free(set->keys);
    free(set->slots);
    *set = (rule_intern){ .count = 0 };
}

static int grow_tables(rule_intern *set, size_t cap)
{
    size_t slots = 64;
    if (cap > UINT32_MAX / 4)
        return -1;
    while (slots < 2 * cap)
        slots *= 2;
    if (cap > set->key_cap) {
        rule_text *keys = realloc(set->keys, cap * sizeof(*keys));
        if (!keys)
            return -1;
        set->keys = keys;
        set->key_cap = cap;
    }
    if (slots > set->slot_count) {
        uint32_t *at = realloc(set->slots, slots * sizeof(*at));
        if (!at)
            return -1;
        set->slots = at;
        set->slot_count = slots;
    }
    return 0;
}

int rule_intern_reset(rule_intern *set, size_t cap)
{
    set->count = 0;
    if (grow_tables(set, cap))
        return -1;
    memset(set->slots, 0, set->slot_count * sizeof(*set->slots));
    return 0;
}

static uint64_t hash_bytes(rule_text key)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < key.size; i++)
        h = (h ^ (unsigned char)key.data[i]) * 0x100000001B3u;
    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9u;
    return h ^ (h >> 32);
}

size_t rule_intern_add(rule_intern *set, rule_text key)
{
    size_t mask = set->slot_count - 1;
    size_t slot = (size_t)hash_bytes(key) & mask;
    while (set->slots[slot]) {
        size_t number = set->slots[slot] - 1;
        if (rule_equal(set->keys[number], key, 0))
            return number;
        slot = (slot + 1) & mask;
    }
    set->keys[set->count] = key;
    set->slots[slot] = (uint32_t)++set->count;
    return set->count - 1;
}
