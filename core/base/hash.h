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

#include "core/base/services.h"

uint64_t xr_hash64(const void *data, size_t size, uint64_t seed);
/* The same for data that may take long, as a file of weights does. */
xray_status xr_hash64_long(const void *data, size_t size,
                           const xray_call_service *calls, xr_err *err,
                           uint64_t *out);

#endif
