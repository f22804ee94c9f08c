/* SPDX-License-Identifier: Apache-2.0
 *
 * Compile-time assertions about the layout of public structs.
 */
#ifndef XR_ABI_LAYOUT_H
#define XR_ABI_LAYOUT_H

#include <stddef.h>

#define AT(type, member, offset) \
    _Static_assert(offsetof(type, member) == (offset), #type "." #member)
#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type)

#endif
