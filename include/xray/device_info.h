/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/device_info.h - the part of "xray.device/0" that describes a device and
 * its memory.
 */
#ifndef XRAY_DEVICE_INFO_H
#define XRAY_DEVICE_INFO_H

#include <xray/abi.h>

/* Memory tags: the purpose of an allocation. */
#define XRAY_TAG_WEIGHTS 0u
#define XRAY_TAG_GRADS 1u
#define XRAY_TAG_OPTIMIZER 2u
#define XRAY_TAG_ACTIVATIONS 3u
#define XRAY_TAG_KV 4u
#define XRAY_TAG_WORKSPACE 5u
#define XRAY_TAG_COUNT 6u

#define XRAY_HANDLE_BYTES 64u /* size of the handle of a shared block */

/* Directions of a copy. */
#define XRAY_COPY_TO_DEVICE 1u
#define XRAY_COPY_TO_HOST 2u
#define XRAY_COPY_ON_DEVICE 3u

/* Features that not every device has. */
#define XRAY_DEVICE_PARENTS 1u /* attention of rows that share a parent row */

/* A device that runs. */
typedef struct xray_device_info {
    xray_header header;
    const char *name;      /* "AMD EPYC, AVX-512, 2 threads" */
    uint64_t memory_bytes; /* total; 0 if not known */
    uint64_t memory_free;
    uint32_t threads;
    uint32_t host_memory; /* 1: the host can read [dev] pointers */
    uint32_t features;    /* XRAY_DEVICE_*; the caller zeroes it */
    uint32_t reserved;
} xray_device_info;

/* The offer of a device; `plan` fills it without creating an instance. */
typedef struct xray_device_plan {
    xray_header header;
    uint64_t memory_bytes; /* total that a run can use; 0 if not known */
    uint32_t host_memory;  /* 1: it is the host's own memory */
    uint32_t reserved;
} xray_device_plan;

/* Bytes that an instance has allocated, per memory tag. */
typedef struct xray_memory_stats {
    xray_header header;
    uint64_t live[XRAY_TAG_COUNT]; /* now */
    uint64_t high[XRAY_TAG_COUNT]; /* the most at any time */
    uint64_t high_all;             /* the most at any time, over all tags */
} xray_memory_stats;

#endif
