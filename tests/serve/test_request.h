/* SPDX-License-Identifier: Apache-2.0
 *
 * A plain request, from which tests make others.
 */
#ifndef TEST_REQUEST_H
#define TEST_REQUEST_H

#include <xray/infer.h>

/* One sample of three tokens after a prompt of `count` ids. */
static inline xray_request make_test_request(uint64_t id, const int32_t *ids,
                                             uint32_t count)
{
    return (xray_request){ .header = XRAY_HEADER(xray_request),
                           .id = id,
                           .ids = ids,
                           .id_count = count,
                           .count = 1,
                           .max_tokens = 3,
                           .temperature = 1,
                           .top_p = 1 };
}

#endif
