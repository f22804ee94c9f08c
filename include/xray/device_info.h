/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/device_info.h - what a device says of itself and of its memory; a part
 * of "xray.device/0".
 */
#ifndef XRAY_DEVICE_INFO_H
#define XRAY_DEVICE_INFO_H

#include <xray/abi.h>

/* Memory tags: what an allocation is for. */
#define XRAY_TAG_WEIGHTS 0u
#define XRAY_TAG_GRADS 1u
#define XRAY_TAG_OPTIMIZER 2u
#define XRAY_TAG_ACTIVATIONS 3u
#define XRAY_TAG_KV 4u
#define XRAY_TAG_WORKSPACE 5u
#define XRAY_TAG_COUNT 6u

#define XRAY_HANDLE_BYTES 64u /* of a shared block */

#define XRAY_COPY_TO_DEVICE 1u
#define XRAY_COPY_TO_HOST 2u
#define XRAY_COPY_ON_DEVICE 3u

/* What not every device does. */
#define XRAY_DEVICE_PARENTS 1u /* attention of rows that share a parent */

typedef struct xray_device_info {
    xray_header header;
    const char *name;      /* "AMD EPYC, AVX-512, 2 threads" */
    uint64_t memory_bytes; /* in all; 0 if not known */
    uint64_t memory_free;
    uint32_t threads;
    uint32_t host_memory; /* 1: [dev] pointers can be read by the host */
    uint32_t features;    /* XRAY_DEVICE_*, zeroed by the caller */
    uint32_t reserved;
} xray_device_info;

/* What a device would offer. Filled by `plan`, without an instance. */
typedef struct xray_device_plan {
    xray_header header;
    uint64_t memory_bytes; /* that a run can use in all; 0 if not known */
    uint32_t host_memory;  /* 1: it is the host's own memory */
    uint32_t reserved;
} xray_device_plan;

typedef struct xray_memory_stats {
    xray_header header;
    uint64_t live[XRAY_TAG_COUNT]; /* bytes */
    uint64_t high[XRAY_TAG_COUNT]; /* most bytes ever live */
    uint64_t high_all;             /* most bytes ever live of all tags */
} xray_memory_stats;

#endif
