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

/* Bytes from one look at the stop to the next; a slow disk takes 0.1 s. */
#define PIECE ((size_t)8 << 20)

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

/* The state between two pieces of the data. */
typedef struct lanes {
    uint64_t at[4];
} lanes;

static lanes start_lanes(uint64_t seed)
{
    return (lanes){ { seed + P1 + P2, seed + P2, seed, seed - P1 } };
}

/* Adds `size` bytes, a multiple of 32. */
static void add_stripes(lanes *l, const unsigned char *p, size_t size)
{
    lanes now = *l; /* stays in registers */
    for (; size; p += 32, size -= 32)
        for (unsigned i = 0; i < 4; i++)
            now.at[i] = mix_lane(now.at[i], load_le64(p + 8u * i));
    *l = now;
}

/* `p` are the last `size` % 32 bytes. */
static uint64_t finish_lanes(const lanes *l, uint64_t seed,
                             const unsigned char *p, size_t size)
{
    uint64_t hash = seed + P5;
    if (size >= 32) {
        hash = rotate_left(l->at[0], 1) + rotate_left(l->at[1], 7) +
               rotate_left(l->at[2], 12) + rotate_left(l->at[3], 18);
        for (unsigned i = 0; i < 4; i++)
            hash = merge_lane(hash, l->at[i]);
    }
    return finish_hash(hash + size, p, size % 32);
}

uint64_t xr_hash64(const void *data, size_t size, uint64_t seed)
{
    const unsigned char *p = data;
    lanes l = start_lanes(seed);
    add_stripes(&l, p, size / 32 * 32);
    return finish_lanes(&l, seed, p + size / 32 * 32, size);
}

xray_status xr_hash64_long(const void *data, size_t size,
                           const xray_call_service *calls, xr_err *err,
                           uint64_t *out)
{
    const unsigned char *p = data;
    lanes l = start_lanes(0);
    for (size_t left = size / 32 * 32; left;) {
        size_t piece = left < PIECE ? left : PIECE;
        xray_status status = xr_stop_check(calls, err);
        if (status != XRAY_OK)
            return status;
        add_stripes(&l, p, piece);
        p += piece;
        left -= piece;
    }
    *out = finish_lanes(&l, 0, p, size);
    return XRAY_OK;
}
