/* SPDX-License-Identifier: Apache-2.0
 *
 * Both devices, operands, and macros for the suites that test which arguments a
 * call of device-cuda refuses.
 */
#ifndef CUDA_TEST_REFUSED_H
#define CUDA_TEST_REFUSED_H

#include "tests/cuda/pair.h"

static pair both;
static buf a, b, c, e, w, ids;

/* Makes the valid call, then one without arguments and one with a struct of an
 * older header. */
#define GOOD(op)                              \
    do {                                      \
        RUN_ON(&both, CUDA, op, &op);         \
        REFUSED(&both, op, NULL, XRAY_E_ARG); \
        BAD(op, header.size, 8, XRAY_E_ABI);  \
    } while (0)
/* Makes the valid call with one field changed. */
#define BAD(op, field, value, status)       \
    do {                                    \
        xray_##op call_ = op;               \
        call_.field = value;                \
        REFUSED(&both, op, &call_, status); \
    } while (0)

/* Makes the valid call without one of the pointers that it needs, for each. */
#define NEEDS1(op, field) BAD(op, field, NULL, XRAY_E_ARG)
#define NEEDS2(op, field, ...) \
    NEEDS1(op, field);         \
    NEEDS1(op, __VA_ARGS__)
#define NEEDS3(op, field, ...) \
    NEEDS1(op, field);         \
    NEEDS2(op, __VA_ARGS__)
#define NEEDS4(op, field, ...) \
    NEEDS1(op, field);         \
    NEEDS3(op, __VA_ARGS__)
#define NEEDS5(op, field, ...) \
    NEEDS1(op, field);         \
    NEEDS4(op, __VA_ARGS__)
#define NEEDS6(op, field, ...) \
    NEEDS1(op, field);         \
    NEEDS5(op, __VA_ARGS__)
#define NEEDS7(op, field, ...) \
    NEEDS1(op, field);         \
    NEEDS6(op, __VA_ARGS__)

/* Memory of the CUDA device. The CPU's kernels do not run, so it takes any
 * address. */
static inline float *device_floats(const buf *x)
{
    return x->p[CUDA];
}

static inline const int32_t *device_indices(const buf *x)
{
    return x->p[CUDA];
}

static inline int open_both(void **state)
{
    (void)state;
    both = open_pair();
    a = make_random_buf(&both, 256, 1);
    b = make_random_buf(&both, 256, 1);
    c = make_random_buf(&both, 256, 1);
    e = make_random_buf(&both, 256, 1);
    w = make_random_buf(&both, 64, 1);
    const int32_t starts[16] = { 0, 2, 3 };
    ids = make_buf(&both, starts, sizeof starts);
    return 0;
}

static inline int close_both(void **state)
{
    (void)state;
    buf *const all[] = { &a, &b, &c, &e, &w, &ids };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free_buf(&both, all[i]);
    close_pair(&both);
    return 0;
}

#endif
