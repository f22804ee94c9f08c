/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares XXH64 (Yann Collet's xxHash, the 64-bit variant, from its
 * specification): a fast checksum that notices damage but does not protect
 * against forgery.
 */
#ifndef XR_HASH_H
#define XR_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t xr_hash64(const void *data, size_t size, uint64_t seed);

#endif
