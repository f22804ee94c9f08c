/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies this rank's own part of a call to its place, piece by piece while they
 * are sent: then a piece is read from memory once for both. Large results
 * bypass the caches, which hold what is sent and received next.
 */
#include <immintrin.h>
#include <string.h>

#include "plugins/mesh/mesh.h"

#define LARGE 0x200000u /* bytes of a part that bypasses the caches */

static void copy_past(char *to, const char *from, uint64_t bytes)
{
    uint64_t i = 0;
    for (; i + 64 <= bytes; i += 64)
        for (uint32_t k = 0; k < 64; k += 16)
            _mm_stream_si128(
                (__m128i *)(void *)(to + i + k),
                _mm_loadu_si128((const __m128i *)(const void *)(from + i + k)));
    _mm_sfence();
    memcpy(to + i, from + i, bytes - i);
}

int mesh_copy_piece(mesh_copy *copy)
{
    uint64_t left = copy->bytes - copy->done;
    uint64_t n = left < MESH_PIECE ? left : MESH_PIECE;
    char *to = copy->to + copy->done;
    if (!n)
        return 0;
    if (copy->bytes >= LARGE && (uintptr_t)to % 16 == 0)
        copy_past(to, copy->from + copy->done, n);
    else
        memcpy(to, copy->from + copy->done, n);
    copy->done += n;
    return 1;
}
