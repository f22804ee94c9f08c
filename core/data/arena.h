/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares an arena: memory in blocks that never move, which is only freed all
 * at once.
 */
#ifndef XR_DATA_ARENA_H
#define XR_DATA_ARENA_H

#include <stddef.h>

typedef struct xr_block {
    struct xr_block *next;
    size_t used;
    size_t size;
} xr_block;

/* Initialise it with zeros. */
typedef struct xr_arena {
    xr_block *first;
} xr_arena;

/* Returns `size` bytes aligned for any scalar; NULL when out of memory. */
void *xr_arena_take(xr_arena *arena, size_t size);
/* Copies a text and ends it with a NUL. */
const char *xr_arena_text(xr_arena *arena, const char *text, size_t size);
void xr_arena_free(xr_arena *arena);

#endif
