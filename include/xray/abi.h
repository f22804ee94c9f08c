/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/abi.h - rules and primitives shared by every binary interface.
 *
 * Rules for every struct in <xray/...>:
 *   1. first member is `xray_header header`, filled with XRAY_HEADER(type), but
 * for plain elements, which lie in arrays or in other structs by the thousand:
 *      xray_header itself, xray_choice, xray_comm_trace, xray_draw,
 * xray_extent, xray_list, xray_named_value, xray_option, xray_philox_out,
 * xray_span and xray_tensor;
 *   2. members are only 4- or 8-byte scalars and pointers: no enum, bool,
 *      bitfield, long or time_t, and no implicit padding (tests/abi pins every
 *      offset), so sizeof() grows with every added member;
 *   3. within one ABI major, members are appended, never moved or removed;
 *   4. an array of structs is passed with its stride, but for xray_choice,
 *      xray_comm_trace and xray_draw, whose layouts a major never changes (nor
 *      those of xray_extent and xray_list, which are members of others);
 *   5. whoever allocates frees. Nothing crosses the boundary to be free()d.
 *
 * Major 0 is a draft: interface ids end in "/0", layouts may still change, and
 * a plugin runs only on the very minor it was compiled for.
 *
 * Threading tags, in square brackets above each callback:
 *   - [control]: the thread that drives the run; never concurrent per instance
 *   - [any]: any thread, possibly concurrent
 *   - [collective]: every rank calls it, in the same order
 *   - [stream]: enqueues on the given stream and returns; must not sync
 *   - [may-block]: may wait on I/O, a peer or the device
 *   - [no-alloc]: must not allocate host or device memory
 */
#ifndef XRAY_ABI_H
#define XRAY_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define XRAY_ABI_MAJOR 0u
#define XRAY_ABI_MINOR 1u
#define XRAY_ABI_MAKE(major, minor) (((major) << 16) | (minor))
#define XRAY_ABI XRAY_ABI_MAKE(XRAY_ABI_MAJOR, XRAY_ABI_MINOR)

#define XRAY_EXPORT __attribute__((visibility("default")))
#define XRAY_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define XRAY_NODISCARD __attribute__((warn_unused_result))

typedef struct xray_header {
    uint32_t size; /* sizeof the struct as its author compiled it */
    uint32_t abi;  /* XRAY_ABI its author compiled against */
} xray_header;

#define XRAY_HEADER(type)                \
    {                                    \
        (uint32_t)sizeof(type), XRAY_ABI \
    }

/* True if the author's struct is long enough to hold `member`. */
#define XRAY_REACHES(type, ptr, member) \
    ((ptr)->header.size >= offsetof(type, member) + sizeof((ptr)->member))

/* True if the author's struct holds `member` and it is set. */
#define XRAY_HAS(type, ptr, member) \
    (XRAY_REACHES(type, ptr, member) && (ptr)->member)

/* 0 is success, positive is "not yet", negative is an error. The hundreds
 * digit names what the error has spoiled, so the caller knows what to redo. */
typedef int32_t xray_status;

#define XRAY_OK 0
#define XRAY_AGAIN 1 /* nothing ready; call again */
#define XRAY_END 2   /* no more items */

#define XRAY_E_ARG (-100)         /* the call: bad argument */
#define XRAY_E_RANGE (-101)       /* the call: size or value out of range */
#define XRAY_E_UNSUPPORTED (-102) /* the call: not offered by this plugin */
#define XRAY_E_NOMEM (-103)       /* the call: out of memory, state unchanged */
#define XRAY_E_STATE (-200)       /* the instance: used out of order */
#define XRAY_E_CONFIG (-201)      /* the instance: options cannot work */
#define XRAY_E_NUMERIC (-202)     /* the instance: NaN, Inf or divergence */
#define XRAY_E_DEVICE (-300)      /* the rank: accelerator error */
#define XRAY_E_IO (-301)          /* the rank: file or network error */
#define XRAY_E_PEER (-400)        /* the run: a rank is lost or out of step */
#define XRAY_E_ABI (-401)         /* the run: plugin and host do not match */
#define XRAY_E_BUG (-402)         /* the run: broken invariant */

/* Element types of tensors that cross an interface. */
#define XRAY_F32 1u
#define XRAY_BF16 2u
#define XRAY_F16 3u

#ifdef __cplusplus
}
#endif
#endif
