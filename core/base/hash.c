/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the checksum XXH64 as its specification defines it.
 */
#include "core/base/hash.h"

#define P1 0x9E3779B185EBCA87u
#define P2 0xC2B2AE3D27D4EB4Fu
#define P3 0x165667B19E3779F9u
#define P4 0x85EBCA77C2B2AE63u
#define P5 0x27D4EB2F165667C5u

static uint64_t rotate_left(uint64_t x, unsigned bits)
{
    return (x << bits) | (x >> (64 - bits));
}

/* Loads little-endian on every machine; compilers emit a single load. */
static uint64_t load_le32(const unsigned char *p)
{
    return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 |
           (uint64_t)p[3] << 24;
}

static uint64_t load_le64(const unsigned char *p)
{
    return load_le32(p) | load_le32(p + 4) << 32;
}

static uint64_t mix_lane(uint64_t lane, uint64_t input)
{
    return rotate_left(lane + input * P2, 31) * P1;
}

static uint64_t merge_lane(uint64_t hash, uint64_t lane)
{
    return (hash ^ mix_lane(0, lane)) * P1 + P4;
}

static uint64_t finish_hash(uint64_t hash, const unsigned char *p, size_t left)
{
    for (; left >= 8; p += 8, left -= 8)
        hash = rotate_left(hash ^ mix_lane(0, load_le64(p)), 27) * P1 + P4;
    if (left >= 4) {
        hash = rotate_left(hash ^ (load_le32(p) * P1), 23) * P2 + P3;
        p += 4;
        left -= 4;
    }
    for (; left; p++, left--)
        hash = rotate_left(hash ^ (*p * P5), 11) * P1;
    hash = (hash ^ (hash >> 33)) * P2;
    hash = (hash ^ (hash >> 29)) * P3;
    return hash ^ (hash >> 32);
}

uint64_t xr_hash64(const void *data, size_t size, uint64_t seed)
{
    const unsigned char *p = data;
    uint64_t hash = seed + P5;
    size_t left = size;
    if (size >= 32) {
        uint64_t lane[4] = { seed + P1 + P2, seed + P2, seed, seed - P1 };
        for (; left >= 32; p += 32, left -= 32)
            for (unsigned i = 0; i < 4; i++)
                lane[i] = mix_lane(lane[i], load_le64(p + 8u * i));
        hash = rotate_left(lane[0], 1) + rotate_left(lane[1], 7) +
               rotate_left(lane[2], 12) + rotate_left(lane[3], 18);
        for (unsigned i = 0; i < 4; i++)
            hash = merge_lane(hash, lane[i]);
    }
    return finish_hash(hash + size, p, left);
}
