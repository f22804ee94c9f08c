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
#define XRAY_TAG_COUNT 6u /* tags that this version knows */
#define XRAY_TAG_ROOM 16u /* entries of every array that has one per tag */

#define XRAY_HANDLE_BYTES 128u /* size of the handle of a shared block */

/* Directions of a copy. */
#define XRAY_COPY_TO_DEVICE 1u
#define XRAY_COPY_TO_HOST 2u
#define XRAY_COPY_ON_DEVICE 3u

/* Rows of bytes to copy: row i comes from from + i * from_pitch and goes to
 * to + i * to_pitch. A pitch is at least `bytes`, and rows that are read do not
 * overlap rows that are written. With 0 rows or bytes nothing is copied. */
typedef struct xray_copy_rows {
    xray_header header;
    void *to;
    const void *from;
    uint64_t rows;
    uint64_t bytes; /* of a row */
    uint64_t to_pitch;
    uint64_t from_pitch;
    uint32_t kind; /* XRAY_COPY_* */
    uint32_t reserved;
} xray_copy_rows;

/* Rows of a tensor's bytes, to be summed: row i lies at data + i * pitch and
 * holds the bytes from number at + i * at_pitch of the tensor on. Bytes that
 * lie in one piece are a single row, whose pitches are not used. */
typedef struct xray_checksum_rows {
    xray_header header;
    const void *data; /* [dev] */
    uint64_t rows;
    uint64_t bytes; /* of a row */
    uint64_t pitch;
    uint64_t at;
    uint64_t at_pitch;
} xray_checksum_rows;

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
    uint32_t features;    /* XRAY_DEVICE_* */
    uint32_t reserved;
} xray_device_info;

/* The offer of a device; `plan` fills it without creating an instance. */
typedef struct xray_device_plan {
    xray_header header;
    uint64_t memory_bytes; /* total that a run can use; 0 if not known */
    uint32_t host_memory;  /* 1: it is the host's own memory */
    uint32_t reserved;
    /* The contract of the device's products and attention where it is another
     * than that of trainers and engines: XRAY_NUMERICS_*; NULL: it is theirs.
     */
    const char *numerics;
} xray_device_plan;

/* The largest work that a user gives a device, which decides how much scratch
 * memory the device takes. 0 is neutral: there is no such work. */
typedef struct xray_device_work {
    xray_header header;
    uint64_t tokens;     /* most tokens of an operator */
    uint64_t row_tokens; /* most tokens of a row, with its parent and what is in
                          * the cache */
    uint64_t width;      /* most rows or columns of a matrix, but the LM head */
    uint64_t sides;      /* most rows and columns of such a matrix, added */
    uint64_t vocab;      /* rows of the LM head, and its columns */
    uint64_t hidden;
    uint32_t heads; /* of attention */
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t passes;   /* XRAY_PASS_* */
    uint32_t segments; /* most segments of a product's sums; 0: 1 */
    uint32_t dtype;    /* of activations; 0: fp32 */
} xray_device_work;

#define XRAY_PASS_ROWS 1u    /* forward over complete rows */
#define XRAY_PASS_GRADS 2u   /* their gradients */
#define XRAY_PASS_PARENTS 4u /* some rows share a parent row */
#define XRAY_PASS_CACHE 8u   /* attention over a KV cache */
#define XRAY_PASS_LOGP 16u   /* log-probabilities of the LM head */
#define XRAY_PASS_LOGITS 32u /* the caller has memory for all of its logits */
#define XRAY_PASS_SAMPLE 64u /* sampling and pick_logp */

/* Bytes that an instance has allocated, per memory tag. */
typedef struct xray_memory_stats {
    xray_header header;
    uint64_t live[XRAY_TAG_ROOM]; /* now */
    uint64_t high[XRAY_TAG_ROOM]; /* the most at any time */
    uint64_t high_all;            /* the most at any time, over all tags */
    uint64_t host_live;           /* host memory (host_alloc), in no tag */
    uint64_t host_high;
} xray_memory_stats;

#endif
