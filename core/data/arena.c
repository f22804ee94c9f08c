/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocates from blocks that never move and are freed together.
 */
#include "core/data/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 16, BLOCK = 1 << 18 };

/* Bytes of a block's own members, rounded up so that the data after them is
 * aligned. */
static const size_t HEADER = (sizeof(xr_block) + ALIGN - 1) / ALIGN * ALIGN;

static xr_block *create_block(size_t size)
{
    size_t space = size > BLOCK ? size : BLOCK;
    xr_block *block = malloc(HEADER + space);
    if (block)
        *block = (xr_block){ NULL, 0, space };
    return block;
}

void *xr_arena_take(xr_arena *arena, size_t size)
{
    if (size > SIZE_MAX / 2)
        return NULL;
    size = (size + ALIGN - 1) / ALIGN * ALIGN;
    if (!arena->first || arena->first->size - arena->first->used < size) {
        xr_block *block = create_block(size);
        if (!block)
            return NULL;
        block->next = arena->first;
        arena->first = block;
    }
    xr_block *first = arena->first;
    void *out = (unsigned char *)first + HEADER + first->used;
    first->used += size;
    return out;
}

const char *xr_arena_text(xr_arena *arena, const char *text, size_t size)
{
    char *copy = xr_arena_take(arena, size + 1);
    if (!copy)
        return NULL;
    if (size)
        memcpy(copy, text, size);
    copy[size] = '\0';
    return copy;
}

void xr_arena_free(xr_arena *arena)
{
    while (arena->first) {
        xr_block *next = arena->first->next;
        free(arena->first);
        arena->first = next;
    }
}
