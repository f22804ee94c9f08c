/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares a hash map from byte strings to 64-bit values. Keys are copied.
 */
#ifndef XR_MAP_H
#define XR_MAP_H

#include <stddef.h>
#include <stdint.h>

typedef struct xr_map xr_map;

xr_map *xr_map_new(size_t expected); /* NULL when out of memory */
void xr_map_free(xr_map *map);
/* Sets the value of a key; 0, or -1 when out of memory. */
int xr_map_put(xr_map *map, const void *key, size_t size, uint64_t value);
/* Returns 1 and the value, or 0 if the key is absent. */
int xr_map_get(const xr_map *map, const void *key, size_t size,
               uint64_t *out_value);
size_t xr_map_count(const xr_map *map);

/* FNV-1a, 64 bits. */
uint64_t xr_hash(const void *data, size_t size);

#endif
