/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal interface between staged.c and staged_device.c.
 */
#ifndef CUDA_TEST_STAGED_INTERNAL_H
#define CUDA_TEST_STAGED_INTERNAL_H

#include "tests/cuda/staged.h"

#include <stdlib.h>
#include <string.h>

typedef struct matrix {
    struct matrix *next;
    xray_weight *handle;
    const void *host;
    void *dev;
    uint64_t bytes;
    uint64_t rows;
    uint64_t cols;
} matrix;

typedef struct mirror {
    struct mirror *next;
    void *host;
    void *dev;
    uint64_t bytes;
} mirror;

typedef struct staged {
    const xray_device_ops *ops;
    void *self;
    matrix *matrices;
    mirror *mirrors;
    xray_device_ops table;
} staged;

static inline const matrix *get_matrix(const staged *s, const xray_weight *w)
{
    const matrix *m = s->matrices;
    while (m && m->handle != w)
        m = m->next;
    return m;
}

static inline uint64_t element_bytes(uint32_t dtype)
{
    return dtype == XRAY_BF16 || dtype == XRAY_F16 ? 2 : 4;
}

void staged_operators(xray_device_ops *ops);

#endif
