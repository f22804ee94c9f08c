/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of all device suites: calls that must succeed, random numbers, and
 * comparisons.
 */
#ifndef DEVICE_NUMBERS_H
#define DEVICE_NUMBERS_H

#include <math.h>

#include "tests/testing.h"

#include <xray/device.h>

static char last_failure[512];

static xray_status bench_fail(const xray_host *host, xray_status code,
                              const char *where, const char *msg)
{
    (void)host;
    (void)snprintf(last_failure, sizeof(last_failure), "%s: %s", where, msg);
    return code;
}

static const xray_host bench_host = { .header = XRAY_HEADER(xray_host),
                                      .fail = bench_fail };

/* A failed call shows the sentence that a user would read. */
#define must(expr)                                                    \
    do {                                                              \
        xray_status s_ = (expr);                                      \
        if (s_ != XRAY_OK)                                            \
            fail_msg("%s gave %d: %s", #expr, (int)s_, last_failure); \
    } while (0)

static inline xray_weight *create_weight_on(const xray_device_ops *ops,
                                            void *self, void *data, size_t rows,
                                            size_t cols)
{
    xray_weight_desc desc = { .header = XRAY_HEADER(xray_weight_desc),
                              .data = data,
                              .rows = rows,
                              .cols = cols,
                              .dtype = XRAY_F32,
                              .uses = XRAY_USE_NT | XRAY_USE_NN | XRAY_USE_TN };
    xray_weight *w = NULL;
    must(ops->weight_create(self, &desc, &w));
    return w;
}

/* ---- data --------------------------------------------------------------- */

static uint64_t random_state = 1;

REFERENCE static inline double random_unit(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) * 0x1p-53;
}

static inline size_t random_below(size_t n)
{
    return (size_t)(random_unit() * (double)n);
}

static inline float *alloc_floats(size_t n)
{
    float *p = calloc(n ? n : 1, sizeof(*p));
    assert_non_null(p);
    return p;
}

REFERENCE static inline float *random_floats(size_t n, double scale)
{
    float *p = alloc_floats(n);
    for (size_t i = 0; i < n; i++)
        p[i] = (float)((random_unit() + random_unit() - 1.0) * scale);
    return p;
}

static inline float *copy_floats(const float *p, size_t n)
{
    float *c = alloc_floats(n);
    memcpy(c, p, n * sizeof(*p));
    return c;
}

/* ---- comparison --------------------------------------------------------- */

static inline void assert_same_bits(const float *a, const float *b, size_t n,
                                    const char *what, const char *where)
{
    if (memcmp(a, b, n * sizeof(*a)) == 0)
        return;
    for (size_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, sizeof(*a)) != 0)
            fail_msg("%s, %s: entry %zu is %a, not %a", what, where, i,
                     (double)a[i], (double)b[i]);
}

/* Asserts |got - want| <= tolerance * (1 + |want|). */
static inline void assert_near(float got, double want, double tolerance,
                               const char *what)
{
    if (!(fabs((double)got - want) <= tolerance * (1.0 + fabs(want))))
        fail_msg("%s: %.9g, float64 gives %.9g", what, (double)got, want);
}

#endif
