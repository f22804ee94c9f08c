/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements a hash map with open addressing and linear probing.
 */
#include "core/base/map.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"

typedef struct slot {
    uint64_t hash;
    uint64_t value;
    size_t at;   /* offset of the key in `keys` */
    size_t size; /* bytes of the key, plus one; 0 marks an empty slot */
} slot;

struct xr_map {
    slot *slots;
    size_t mask; /* number of slots - 1, a power of two less one */
    size_t count;
    xr_str keys; /* all keys, concatenated */
};

uint64_t xr_hash(const void *data, size_t size)
{
    const unsigned char *bytes = data;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

xr_map *xr_map_new(size_t expected)
{
    size_t slots = 16;
    while (slots / 2 < expected) {
        if (slots > SIZE_MAX / 4)
            return NULL;
        slots *= 2;
    }
    xr_map *map = xr_calloc(1, sizeof *map);
    if (!map)
        return NULL;
    map->slots = xr_calloc(slots, sizeof *map->slots);
    map->mask = slots - 1;
    if (!map->slots) {
        free(map);
        return NULL;
    }
    return map;
}

void xr_map_free(xr_map *map)
{
    if (!map)
        return;
    xr_str_free(&map->keys);
    free(map->slots);
    free(map);
}

/* Returns the slot of the key, or the empty slot where it belongs. */
static slot *find_slot(const xr_map *map, uint64_t hash, const void *key,
                       size_t size)
{
    /* The low bits of FNV are weak, so the high half is folded in. */
    for (size_t i = (size_t)(hash ^ hash >> 32);; i++) {
        slot *s = &map->slots[i & map->mask];
        if (!s->size)
            return s;
        if (s->hash == hash && s->size - 1 == size &&
            (!size || memcmp(map->keys.data + s->at, key, size) == 0))
            return s;
    }
}

static int double_slots(xr_map *map)
{
    size_t old = map->mask + 1;
    slot *slots =
        old <= SIZE_MAX / 4 ? xr_calloc(old * 2, sizeof *slots) : NULL;
    if (!slots)
        return -1;
    size_t mask = old * 2 - 1;
    for (size_t k = 0; k < old; k++) {
        const slot *s = &map->slots[k];
        if (!s->size)
            continue;
        size_t i = (size_t)(s->hash ^ s->hash >> 32);
        while (slots[i & mask].size)
            i++;
        slots[i & mask] = *s;
    }
    free(map->slots);
    map->slots = slots;
    map->mask = mask;
    return 0;
}

int xr_map_put(xr_map *map, const void *key, size_t size, uint64_t value)
{
    uint64_t hash = xr_hash(key, size);
    slot *s = find_slot(map, hash, key, size);
    if (s->size) {
        s->value = value;
        return 0;
    }
    if (map->count + 1 > (map->mask + 1) / 2) {
        if (double_slots(map))
            return -1;
        s = find_slot(map, hash, key, size);
    }
    size_t at = map->keys.size;
    xr_str_append(&map->keys, key, size);
    if (map->keys.failed) {
        map->keys.failed = 0;
        return -1;
    }
    *s = (slot){ hash, value, at, size + 1 };
    map->count++;
    return 0;
}

int xr_map_get(const xr_map *map, const void *key, size_t size,
               uint64_t *out_value)
{
    const slot *s = find_slot(map, xr_hash(key, size), key, size);
    if (!s->size)
        return 0;
    *out_value = s->value;
    return 1;
}

size_t xr_map_count(const xr_map *map)
{
    return map->count;
}
