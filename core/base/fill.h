/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills a struct whose author may know an older version of it.
 */
#ifndef XR_FILL_H
#define XR_FILL_H

#include <string.h>

#include <xray/abi.h>

/* Copies `full`, of `size` bytes, to `out` behind its header, and no further
 * than that header says that `out` reaches. */
static inline void xr_fill_struct(xray_header *out, const void *full,
                                  size_t size)
{
    size_t reach = out->size < size ? out->size : size;
    if (reach > sizeof(*out))
        memcpy((unsigned char *)out + sizeof(*out),
               (const unsigned char *)full + sizeof(*out),
               reach - sizeof(*out));
}

#endif
