/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes the phase in an actor's record. Another process may read it
 * while it is written, and then sees a mixture of two texts, but no fault.
 */
#include "core/actor/record.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"

#define WORDS (XR_RECORD_PHASE / 8)

void xr_record_put_phase(void *record, const char *text)
{
    _Atomic uint64_t *to = record;
    uint64_t words[WORDS] = { 0 };
    memcpy(words, text, strnlen(text, sizeof(words) - 1));
    for (size_t i = 0; i < WORDS; i++)
        atomic_store_explicit(&to[i], words[i], memory_order_relaxed);
}

void xr_record_get_phase(const void *record, char *out, size_t size)
{
    const _Atomic uint64_t *from = record;
    uint64_t words[WORDS];
    char text[sizeof(words)];
    for (size_t i = 0; i < WORDS; i++)
        words[i] = atomic_load_explicit(&from[i], memory_order_relaxed);
    memcpy(text, words, sizeof(text));
    text[sizeof(text) - 1] = 0;
    xr_one_line(text);
    (void)snprintf(out, size, "%s", text);
}
