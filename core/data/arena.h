/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that is only given back as a whole: blocks that never move.
 */
#ifndef XR_DATA_ARENA_H
#define XR_DATA_ARENA_H

#include <stddef.h>

typedef struct xr_block {
    struct xr_block *next;
    size_t used;
    size_t size;
} xr_block;

/* Zero-initialise. */
typedef struct xr_arena {
    xr_block *first;
} xr_arena;

/* `size` bytes aligned for any scalar, NULL when out of memory. */
void *xr_arena_take(xr_arena *arena, size_t size);
/* A copy with a NUL behind it. */
const char *xr_arena_text(xr_arena *arena, const char *text, size_t size);
void xr_arena_free(xr_arena *arena);

#endif
