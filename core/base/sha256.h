/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104), by which a process
 * proves that it knows a key without sending it.
 */
#ifndef XR_SHA256_H
#define XR_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define XR_SHA256_BYTES 32u

typedef struct xr_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64];
} xr_sha256;

void xr_sha256_init(xr_sha256 *s);
void xr_sha256_add(xr_sha256 *s, const void *data, size_t size);
void xr_sha256_end(xr_sha256 *s, uint8_t out[XR_SHA256_BYTES]);

/* The code of a message under a key of at most 64 bytes. */
void xr_hmac_sha256(const void *key, size_t key_size, const void *data,
                    size_t size, uint8_t out[XR_SHA256_BYTES]);
/* 1 if two codes are equal; takes as long whichever byte differs. */
int xr_mac_is_equal(const uint8_t a[XR_SHA256_BYTES],
                    const uint8_t b[XR_SHA256_BYTES]);

#endif
