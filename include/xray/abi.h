/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/abi.h - rules and primitives that every binary interface shares.
 *
 * Rules for every struct in <xray/...>:
 *   1. first member is `xray_header header`, filled with XRAY_HEADER(type), but
 * for plain elements, which lie in arrays or in other structs by the thousand:
 *      xray_header itself, xray_axis, xray_bias, xray_choice, xray_comm_trace,
 * xray_draw, xray_extent, xray_histogram, xray_id_list, xray_launch_place,
 * xray_list, xray_logit_edit, xray_named_text, xray_named_value, xray_option,
 * xray_philox_out, xray_span, xray_subgroup and xray_tensor;
 *   2. members are only 4- or 8-byte scalars and pointers: no enum, bool,
 *      bitfield, long or time_t, and no implicit padding (tests/abi pins every
 *      offset), so that sizeof() grows with every added member;
 *   3. within one ABI major, members are appended, never moved or removed;
 *   4. an array of structs is passed with its stride, by which the reader
 *      steps; the layouts of xray_extent and xray_list, which are members of
 *      other structs, never change within a major;
 *   5. whoever allocates memory frees it: no caller ever frees what the other
 *      side allocated;
 *   6. a struct that a callee fills may be shorter or longer than the callee's
 *      own: its caller zeroes it but for the header, and nothing is written
 *      beyond header.size, which xray_fill sees to.
 *
 * Major 0 is a draft: interface ids end in "/0", layouts may still change, and
 * a plugin runs only on the exact minor version it was compiled for.
 *
 * Every callback has a threading tag in square brackets. It stands in the
 * comment above the callback, or after its declaration; callbacks that follow
 * without a comment of their own have the tags of the comment above them.
 *
 *   [control]     called from the one thread that drives the run, so calls of
 *                 one instance never overlap
 *   [any]         called from any thread, and calls may overlap
 *   [collective]  like [control], and every rank of the world makes the same
 *                 call in the same order
 *   [stream]      like [control]; enqueues its work on the given stream and
 *                 returns without waiting for it, unless [may-block] says so
 *
 * Further tags say what a callback may do:
 *
 *   [may-block]   it may wait for I/O, for another rank or for the device
 *   [no-alloc]    it must not allocate host or device memory
 */
#ifndef XRAY_ABI_H
#define XRAY_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define XRAY_ABI_MAJOR 0u
#define XRAY_ABI_MINOR 3u
#define XRAY_ABI_MAKE(major, minor) (((major) << 16) | (minor))
#define XRAY_ABI XRAY_ABI_MAKE(XRAY_ABI_MAJOR, XRAY_ABI_MINOR)

#define XRAY_EXPORT __attribute__((visibility("default")))
#define XRAY_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define XRAY_NODISCARD __attribute__((warn_unused_result))

typedef struct xray_header {
    uint32_t size; /* sizeof the struct as its author compiled it */
    uint32_t abi;  /* XRAY_ABI its author compiled against */
} xray_header;

/* clang-format off */
#define XRAY_HEADER(type) { (uint32_t)sizeof(type), XRAY_ABI }
/* clang-format on */

/* True if the author's struct is long enough to hold `member`. */
#define XRAY_REACHES(type, ptr, member) \
    ((ptr)->header.size >= offsetof(type, member) + sizeof((ptr)->member))

/* True if the author's struct holds `member` and it is set. */
#define XRAY_HAS(type, ptr, member) \
    (XRAY_REACHES(type, ptr, member) && (ptr)->member)

/* Fills a struct of the caller with `own`, which the callee compiled: both
 * begin with their headers. Members that only one side knows stay as they are,
 * and so does the header of `out`. */
static inline void xray_fill(void *out, const void *own)
{
    const uint32_t room = ((const xray_header *)out)->size;
    const uint32_t full = ((const xray_header *)own)->size;
    const uint32_t reach = room < full ? room : full;
    if (reach > sizeof(xray_header))
        memcpy((unsigned char *)out + sizeof(xray_header),
               (const unsigned char *)own + sizeof(xray_header),
               reach - sizeof(xray_header));
}

/* The result of a call: 0 is success, a positive value means that there is
 * nothing to return yet, and a negative value is an error. The hundreds digit
 * of an error names the smallest thing that the error has made unusable, so
 * that the caller knows what to repeat: the call, the instance, the rank or
 * the whole run. */
typedef int32_t xray_status;

#define XRAY_OK 0
#define XRAY_AGAIN 1 /* nothing is ready yet; call again */
#define XRAY_END 2   /* nothing is outstanding: there is no more to come */

#define XRAY_E_ARG (-100)         /* the call: bad argument */
#define XRAY_E_RANGE (-101)       /* the call: size or value out of range */
#define XRAY_E_UNSUPPORTED (-102) /* the call: not offered by this plugin */
#define XRAY_E_NOMEM (-103)       /* the call: out of memory, state unchanged */
#define XRAY_E_CANCELED (-104)    /* the call: the host asked for its end */
#define XRAY_E_STATE (-200)       /* the instance: used out of order */
#define XRAY_E_CONFIG (-201)      /* the instance: options cannot work */
#define XRAY_E_NUMERIC (-202)     /* the instance: NaN, Inf or divergence */
#define XRAY_E_DEVICE (-300)      /* the rank: accelerator error */
#define XRAY_E_IO (-301)          /* the rank: file or network error */
#define XRAY_E_PEER (-400)        /* the run: a rank is lost or out of step */
#define XRAY_E_ABI (-401)         /* the run: plugin and host do not match */
#define XRAY_E_BUG (-402)         /* the run: broken invariant */

/* Element types of the tensors that cross an interface. */
#define XRAY_F32 1u
#define XRAY_BF16 2u
#define XRAY_F16 3u

#ifdef __cplusplus
}
#endif
#endif
