/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads arrays of structs of the plugin ABI. An author who compiled against
 * another version has elements of another size, which is the stride.
 */
#ifndef XR_ELEMENTS_H
#define XR_ELEMENTS_H

#include <stddef.h>
#include <string.h>

/* Bytes of a struct up to the end of `member`: the least stride if `member` was
 * the last one in the first version that this program serves. */
#define XR_LEAST(type, member) \
    (offsetof(type, member) + sizeof(((type *)NULL)->member))

/* Copies element i of `array` to `out` of `size` bytes. Members that a shorter
 * element lacks become 0. */
static inline void xr_element_read(const void *array, size_t stride, size_t i,
                                   size_t size, void *out)
{
    memset(out, 0, size);
    memcpy(out, (const unsigned char *)array + i * stride,
           stride < size ? stride : size);
}

#endif
