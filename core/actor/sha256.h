/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104), by which the two
 * ends of a connection prove to each other that they know a secret.
 */
#ifndef XR_ACTOR_SHA256_H
#define XR_ACTOR_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define XR_SHA256_BYTES 32u

typedef struct xr_sha256 {
    uint32_t state[8];
    unsigned char block[64];
    uint64_t size; /* bytes so far */
} xr_sha256;

void xr_sha256_begin(xr_sha256 *sha);
void xr_sha256_add(xr_sha256 *sha, const void *data, size_t size);
void xr_sha256_end(xr_sha256 *sha, unsigned char *out);

void xr_hmac_sha256(const void *key, size_t key_size, const void *data,
                    size_t size, unsigned char *out);
/* 1 if the bytes are equal; the time that it takes does not tell where they
 * differ. */
int xr_equal_secret(const void *a, const void *b, size_t size);

#endif
