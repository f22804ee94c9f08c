/* SPDX-License-Identifier: Apache-2.0
 *
 * A caller that knows shorter versions of the structs that a plugin fills, and
 * tables without one of their optional members.
 */
#ifndef XR_GROWTH_H
#define XR_GROWTH_H

#include <xray/abi.h>

#include "tests/testing.h"

#define GROWTH_BEHIND 0x5a /* every byte of the memory behind a struct */

/* Makes `s`, which has `full` bytes, a struct that ends after `size` of them.
 */
static inline void growth_cut(void *s, size_t full, uint32_t size)
{
    memset(s, GROWTH_BEHIND, full);
    memset(s, 0, size);
    *(xray_header *)s = (xray_header){ size, XRAY_ABI };
}

static inline void growth_check(const void *s, size_t full, uint32_t size)
{
    const xray_header *header = s;
    const unsigned char *bytes = s;
    assert_int_equal(header->size, size);
    assert_int_equal(header->abi, XRAY_ABI);
    for (size_t i = size; i < full; i++)
        if (bytes[i] != GROWTH_BEHIND)
            fail_msg("byte %zu was written, behind a struct of %u", i, size);
}

/* Has the call `fill` fill the variable `s` in all lengths, the entire one
 * last. It must never write behind the struct or over its header, and fills
 * `member`, which is not 0, as soon as the struct reaches it. */
#define EXPECT_FILLED_IN_REACH(type, s, member, fill)                 \
    for (uint32_t size_ = sizeof(xray_header); size_ <= sizeof(s);    \
         size_ += 8) {                                                \
        growth_cut(&(s), sizeof(s), size_);                           \
        assert_int_equal((fill), XRAY_OK);                            \
        growth_check(&(s), sizeof(s), size_);                         \
        assert_true(!XRAY_REACHES(type, &(s), member) || (s).member); \
    }

/* The ways in which a table may lack an optional member: it ends before it,
 * whatever the memory behind it holds, or the member is 0. */
enum { LACK_ENDS, LACK_ZERO, LACK_WAYS };

/* Takes `member`, which is set, from the variable `table`. */
#define LACK_MEMBER(type, table, member, way)                             \
    ((way) == LACK_ENDS                                                   \
         ? (void)((table).header.size = (uint32_t)offsetof(type, member)) \
         : (void)((table).member = 0))

/* Takes one of the three calls that evict memory from a table of a device, for
 * `i` below LACK_EVICTIONS. */
enum { LACK_EVICTIONS = 3 * LACK_WAYS };
#define LACK_EVICTION(table, i)                                         \
    do {                                                                \
        if ((i) % 3 == 0)                                               \
            LACK_MEMBER(xray_device_ops, table, evict, (i) / 3);        \
        else if ((i) % 3 == 1)                                          \
            LACK_MEMBER(xray_device_ops, table, restore, (i) / 3);      \
        else                                                            \
            LACK_MEMBER(xray_device_ops, table, weight_evict, (i) / 3); \
    } while (0)

#endif
