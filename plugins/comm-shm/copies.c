/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies the same bytes to several buffers. Large results bypass the caches.
 */
#include <immintrin.h>
#include <string.h>

#include "plugins/comm-shm/shm.h"

#define COPY 0x1000u /* bytes that stay in the first-level cache */

/* `n` is at most COPY, so the source is still cached for the next
 * destination. */
static void copy_block(char *to, const char *from, uint64_t n, int past)
{
    uint64_t i = 0;
    if (past && (uintptr_t)to % 32 == 0)
        for (; i + 128 <= n; i += 128)
            for (uint32_t k = 0; k < 128; k += 32)
                _mm256_stream_si256(
                    (__m256i *)(void *)(to + i + k),
                    _mm256_loadu_si256(
                        (const __m256i *)(const void *)(from + i + k)));
    memcpy(to + i, from + i, n - i);
}

void shm_copy_run(const shm_copy *c)
{
    for (uint64_t i = 0; i < c->bytes; i += COPY) {
        uint64_t n = c->bytes - i < COPY ? c->bytes - i : COPY;
        for (uint32_t d = 0; d < c->count; d++)
            if (c->dst[d] && d != c->except)
                copy_block((char *)c->dst[d] + c->at + i, c->src + i, n,
                           c->stream != 0);
    }
}

void shm_flush_stores(void)
{
    _mm_sfence();
}
