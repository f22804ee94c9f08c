/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of a library that is looked for at run time, and needed neither to
 * build nor to start.
 */
#ifndef XR_LIBRARY_H
#define XR_LIBRARY_H

#include <stddef.h>

/* Finds `count` symbols of a library, which is never unloaded, by their names.
 * Returns 0 if the library or one of them is missing. */
int xr_library_find(const char *library, const char *const *names, size_t count,
                    void **out_symbols);

#endif
