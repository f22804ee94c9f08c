/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes SHA-256 as FIPS 180-4 writes it, and HMAC over it.
 */
#include "core/base/sha256.h"

#include <string.h>

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2
};

static uint32_t rotate_right(uint32_t x, uint32_t by)
{
    return x >> by | x << (32 - by);
}

static uint32_t read_big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 |
           p[3];
}

static void fill_schedule(const uint8_t *block, uint32_t *w)
{
    for (uint32_t i = 0; i < 16; i++)
        w[i] = read_big_endian(block + 4 * i);
    for (uint32_t i = 16; i < 64; i++) {
        uint32_t a = w[i - 15];
        uint32_t b = w[i - 2];
        uint32_t s0 = rotate_right(a, 7) ^ rotate_right(a, 18) ^ a >> 3;
        uint32_t s1 = rotate_right(b, 17) ^ rotate_right(b, 19) ^ b >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
}

static void mix_block(xr_sha256 *s, const uint8_t *block)
{
    uint32_t w[64];
    uint32_t v[8];
    fill_schedule(block, w);
    memcpy(v, s->state, sizeof(v));
    for (uint32_t i = 0; i < 64; i++) {
        uint32_t s1 = rotate_right(v[4], 6) ^ rotate_right(v[4], 11) ^
                      rotate_right(v[4], 25);
        uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
        uint32_t first = v[7] + s1 + choice + constants[i] + w[i];
        uint32_t s0 = rotate_right(v[0], 2) ^ rotate_right(v[0], 13) ^
                      rotate_right(v[0], 22);
        uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        memmove(v + 1, v, 7 * sizeof(*v));
        v[4] += first;
        v[0] = first + s0 + majority;
    }
    for (uint32_t i = 0; i < 8; i++)
        s->state[i] += v[i];
}

void xr_sha256_init(xr_sha256 *s)
{
    static const uint32_t start[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372,
                                       0xa54ff53a, 0x510e527f, 0x9b05688c,
                                       0x1f83d9ab, 0x5be0cd19 };
    memset(s, 0, sizeof(*s));
    memcpy(s->state, start, sizeof(start));
}

void xr_sha256_add(xr_sha256 *s, const void *data, size_t size)
{
    const uint8_t *from = data;
    while (size) {
        size_t at = s->bytes % 64;
        size_t n = 64 - at < size ? 64 - at : size;
        memcpy(s->block + at, from, n);
        s->bytes += n;
        from += n;
        size -= n;
        if (s->bytes % 64 == 0)
            mix_block(s, s->block);
    }
}

void xr_sha256_end(xr_sha256 *s, uint8_t out[XR_SHA256_BYTES])
{
    static const uint8_t padding[64] = { 0x80 };
    uint8_t length[8];
    uint64_t bits = 8 * s->bytes;
    for (uint32_t i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    size_t at = s->bytes % 64;
    xr_sha256_add(s, padding, at < 56 ? 56 - at : 120 - at);
    xr_sha256_add(s, length, sizeof(length));
    for (uint32_t i = 0; i < XR_SHA256_BYTES; i++)
        out[i] = (uint8_t)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}

void xr_hmac_sha256(const void *key, size_t key_size, const void *data,
                    size_t size, uint8_t out[XR_SHA256_BYTES])
{
    xr_sha256 s;
    uint8_t inner[64] = { 0 };
    uint8_t outer[64];
    memcpy(inner, key, key_size < 64 ? key_size : 64);
    for (uint32_t i = 0; i < 64; i++) {
        outer[i] = inner[i] ^ 0x5c;
        inner[i] ^= 0x36;
    }
    xr_sha256_init(&s);
    xr_sha256_add(&s, inner, sizeof(inner));
    xr_sha256_add(&s, data, size);
    xr_sha256_end(&s, out);
    xr_sha256_init(&s);
    xr_sha256_add(&s, outer, sizeof(outer));
    xr_sha256_add(&s, out, XR_SHA256_BYTES);
    xr_sha256_end(&s, out);
}

int xr_mac_is_equal(const uint8_t a[XR_SHA256_BYTES],
                    const uint8_t b[XR_SHA256_BYTES])
{
    uint8_t differs = 0;
    for (uint32_t i = 0; i < XR_SHA256_BYTES; i++)
        differs |= a[i] ^ b[i];
    return differs == 0;
}
