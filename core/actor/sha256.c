/* SPDX-License-Identifier: Apache-2.0
 *
 * SHA-256 and HMAC-SHA-256, for messages of a hundred bytes.
 */
#include "core/actor/sha256.h"

#include <string.h>

/* The first 32 bits of the fractional parts of the cube roots of the first 64
 * primes (FIPS 180-4, 4.2.2). */
static const uint32_t rounds[64] = {
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
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate_right(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static uint32_t read_big(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 |
           p[3];
}

static void write_big(uint32_t x, unsigned char *p)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(x >> (24 - 8 * i));
}

/* FIPS 180-4, 6.2.2: the message schedule and its 64 rounds. */
static void mix_block(uint32_t *state, const unsigned char *block)
{
    uint32_t w[64];
    uint32_t s[8];
    for (int t = 0; t < 16; t++)
        w[t] = read_big(block + (ptrdiff_t)4 * t);
    for (int t = 16; t < 64; t++) {
        const uint32_t a = w[t - 15];
        const uint32_t b = w[t - 2];
        w[t] = w[t - 16] + w[t - 7] +
               (rotate_right(a, 7) ^ rotate_right(a, 18) ^ a >> 3) +
               (rotate_right(b, 17) ^ rotate_right(b, 19) ^ b >> 10);
    }
    memcpy(s, state, sizeof(s));
    for (int t = 0; t < 64; t++) {
        const uint32_t e = s[4];
        const uint32_t a = s[0];
        const uint32_t one =
            s[7] +
            (rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25)) +
            ((e & s[5]) ^ (~e & s[6])) + rounds[t] + w[t];
        const uint32_t two =
            (rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22)) +
            ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof(s[0]));
        s[4] += one;
        s[0] = one + two;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

void xr_sha256_begin(xr_sha256 *sha)
{
    static const uint32_t start[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372,
                                       0xa54ff53a, 0x510e527f, 0x9b05688c,
                                       0x1f83d9ab, 0x5be0cd19 };
    memcpy(sha->state, start, sizeof(start));
    sha->size = 0;
}

void xr_sha256_add(xr_sha256 *sha, const void *data, size_t size)
{
    const unsigned char *at = data;
    while (size) {
        const size_t have = (size_t)(sha->size % sizeof(sha->block));
        size_t more = sizeof(sha->block) - have;
        more = more < size ? more : size;
        memcpy(sha->block + have, at, more);
        sha->size += more;
        at += more;
        size -= more;
        if (have + more == sizeof(sha->block))
            mix_block(sha->state, sha->block);
    }
}

void xr_sha256_end(xr_sha256 *sha, unsigned char *out)
{
    static const unsigned char one[64] = { 0x80 };
    const uint64_t bits = sha->size * 8;
    unsigned char length[8];
    const size_t have = (size_t)(sha->size % sizeof(sha->block));
    xr_sha256_add(sha, one, (have < 56 ? 56 : 120) - have);
    write_big((uint32_t)(bits >> 32), length);
    write_big((uint32_t)bits, length + 4);
    xr_sha256_add(sha, length, sizeof(length));
    for (int i = 0; i < 8; i++)
        write_big(sha->state[i], out + (ptrdiff_t)4 * i);
}

void xr_hmac_sha256(const void *key, size_t key_size, const void *data,
                    size_t size, unsigned char *out)
{
    xr_sha256 sha;
    unsigned char pad[64] = { 0 };
    if (key_size > sizeof(pad)) {
        xr_sha256_begin(&sha);
        xr_sha256_add(&sha, key, key_size);
        xr_sha256_end(&sha, pad);
    } else {
        memcpy(pad, key, key_size);
    }
    for (size_t i = 0; i < sizeof(pad); i++)
        pad[i] ^= 0x36;
    xr_sha256_begin(&sha);
    xr_sha256_add(&sha, pad, sizeof(pad));
    xr_sha256_add(&sha, data, size);
    xr_sha256_end(&sha, out);
    for (size_t i = 0; i < sizeof(pad); i++)
        pad[i] ^= 0x36 ^ 0x5c;
    xr_sha256_begin(&sha);
    xr_sha256_add(&sha, pad, sizeof(pad));
    xr_sha256_add(&sha, out, XR_SHA256_BYTES);
    xr_sha256_end(&sha, out);
}

int xr_equal_secret(const void *a, const void *b, size_t size)
{
    const unsigned char *x = a;
    const unsigned char *y = b;
    unsigned char differ = 0;
    for (size_t i = 0; i < size; i++)
        differ |= x[i] ^ y[i];
    return !differ;
}
