/* SPDX-License-Identifier: Apache-2.0
 *
 * Places a text so that a byte read beyond its end, its NUL included, is a
 * crash.
 */
#ifndef XR_REWARD_FENCE_H
#define XR_REWARD_FENCE_H

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plugins/reward-rule/text.h"
#include "tests/testing.h"

#define FENCE_BYTES ((size_t)1 << 20) /* a multiple of every page's size */

/* Returns a copy of the text, which the next call overwrites. NULL, and a text
 * of more than FENCE_BYTES, is returned as it is. */
static inline const char *fence_text(const char *text, size_t size)
{
    static char *memory;
    if (!text || size > FENCE_BYTES)
        return text;
    if (!memory) {
        int zero = open("/dev/zero", O_RDWR);
        assert_true(zero >= 0);
        void *map = mmap(NULL, 2 * FENCE_BYTES, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE, zero, 0);
        assert_true(map != MAP_FAILED);
        (void)close(zero);
        memory = map;
        assert_int_equal(mprotect(memory + FENCE_BYTES, FENCE_BYTES, PROT_NONE),
                         0);
    }
    if (size)
        memcpy(memory + FENCE_BYTES - size, text, size);
    return memory + FENCE_BYTES - size;
}

static inline rule_text fence_string(const char *text)
{
    size_t size = strlen(text);
    return (rule_text){ fence_text(text, size), size };
}

#endif
