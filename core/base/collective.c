/* SPDX-License-Identifier: Apache-2.0
 *
 * Names collective calls for messages and checks their arguments and the ranks
 * of their groups.
 */
#include "core/base/collective.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"

#define MOST_RANKS                                                \
    4096u /* more ranks than any implementation has; bytes of all \
           * ranks must fit 64 bits */

void xr_sentence_printf(xr_sentence *s, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(s->text + s->used, s->cap - s->used, fmt, args);
    va_end(args);
    if (n > 0)
        s->used += (size_t)n;
    if (s->used >= s->cap)
        s->used = s->cap - 1;
}

const char *xr_collective_name(uint32_t call)
{
    static const char *const names[] = { "no call",        "all_reduce",
                                         "reduce_scatter", "all_gather",
                                         "broadcast",      "send",
                                         "recv",           "exchange",
                                         "all_to_all",     "all_reduce_max" };
    return call < sizeof(names) / sizeof(*names) ? names[call] : "a call";
}

int xr_collective_is_in_place(uint32_t call)
{
    return call == XRAY_COMM_ALL_REDUCE || call == XRAY_COMM_ALL_REDUCE_MAX;
}

int xr_collective_reduces(uint32_t call)
{
    return xr_collective_is_in_place(call) || call == XRAY_COMM_REDUCE_SCATTER;
}

void xr_collective_print(xr_sentence *s, const xr_collective *c)
{
    static const char *const types[] = { "", " of f32", " of bf16", " of f16" };
    xr_sentence_printf(s, "%s", xr_collective_name(c->call));
    xr_sentence_printf(s, " of %llu bytes", (unsigned long long)c->bytes);
    if (xr_collective_reduces(c->call))
        xr_sentence_printf(s, "%s", c->dtype < 4 ? types[c->dtype] : "");
    else if (c->call == XRAY_COMM_BROADCAST || c->call == XRAY_COMM_RECV)
        xr_sentence_printf(s, " from rank %u", c->other);
    else if (c->call == XRAY_COMM_SEND)
        xr_sentence_printf(s, " to rank %u", c->other);
    else if (c->call == XRAY_COMM_EXCHANGE)
        xr_sentence_printf(s, " to rank %u and %llu bytes from rank %u",
                           c->other, (unsigned long long)c->from_bytes,
                           c->from);
}

uint32_t xr_collective_is_kind(const char *device_name, const char *kind)
{
    const size_t size = strlen(kind);
    return device_name && strncmp(device_name, kind, size) == 0 &&
           (device_name[size] == '\0' || device_name[size] == ':');
}

uint64_t xr_collective_width(uint32_t dtype)
{
    switch (dtype) {
    case XRAY_F32:
        return 4;
    case XRAY_BF16:
    case XRAY_F16:
        return 2;
    default:
        return 0;
    }
}

xray_status xr_collective_check(const xray_host *host, const char *where,
                                const void *in, const void *out, uint64_t bytes)
{
    if (bytes > UINT64_MAX / 4 / MOST_RANKS)
        return xr_host_fail(host, XRAY_E_RANGE, where,
                            "%llu bytes are too many",
                            (unsigned long long)bytes);
    if (bytes && (!in || !out))
        return xr_host_fail(host, XRAY_E_ARG, where, "a pointer is NULL");
    return XRAY_OK;
}

xray_status xr_collective_check_call(const xray_host *host, uint32_t call,
                                     const void *in, const void *out,
                                     uint64_t count, uint32_t dtype)
{
    const char *where = xr_collective_name(call);
    uint64_t width = xr_collective_width(dtype);
    if (!width || (dtype == XRAY_F16 && xr_collective_reduces(call)))
        return xr_host_fail(host, XRAY_E_UNSUPPORTED, where,
                            "no call for elements of type %u", dtype);
    uint64_t bytes = count > UINT64_MAX / 8 ? UINT64_MAX : count * width;
    return xr_collective_check(
        host, where, xr_collective_is_in_place(call) ? out : in, out, bytes);
}

xray_status xr_collective_check_ranks(const xray_host *host,
                                      const uint32_t *ranks, uint32_t count,
                                      uint32_t self, uint32_t size)
{
    int among = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (ranks[i] >= size || (i && ranks[i] <= ranks[i - 1]))
            return xr_host_fail(host, XRAY_E_ARG, "group",
                                "rank %u: ranks must ascend and be below %u",
                                ranks[i], size);
        among |= ranks[i] == self;
    }
    return among
               ? XRAY_OK
               : xr_host_fail(host, XRAY_E_ARG, "group",
                              "this rank, %u, is not among the group's", self);
}
