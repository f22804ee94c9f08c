/* SPDX-License-Identifier: Apache-2.0
 *
 * A cpu device and macros for the suites that test which arguments a call
 * refuses.
 */
#ifndef DEVICE_REFUSED_H
#define DEVICE_REFUSED_H

#include "tests/device/bench.h"

static dev cpu;
static const xray_device_ops *ops;
static float a[256], b[256], c[256], e[256], w[64]; /* operands of any call */
static int32_t ids[16];

static inline void assert_refused(xray_status got, xray_status want,
                                  const char *says, const char *what)
{
    if (got != want || (want && strcmp(last_failure, says) != 0))
        fail_msg("%s: %d, not %d: [%s], not [%s]", what, (int)got, (int)want,
                 last_failure, says);
}

/* Makes the valid call with one field changed. */
#define BAD(op, field, value, status, says)                                    \
    do {                                                                       \
        xray_##op call_ = op;                                                  \
        call_.field = value;                                                   \
        last_failure[0] = '\0';                                                \
        assert_refused(ops->op(cpu.self, NULL, &call_), status, #op ": " says, \
                       #op " " #field);                                        \
    } while (0)
#define FINE(op, field, value) BAD(op, field, value, XRAY_OK, "")
#define NONE(op, field, number, list) \
    BAD(op, field, NULL, XRAY_E_ARG,  \
        "required pointer " #number " of " list " is NULL")
/* Makes the call without arguments, and with a struct of an older header. */
#define BARE(op)                                                             \
    do {                                                                     \
        assert_refused(ops->op(cpu.self, NULL, NULL), XRAY_E_ARG,            \
                       #op ": argument struct is NULL", #op);                \
        BAD(op, header.size, 8, XRAY_E_ABI, "argument struct is too short"); \
        must(ops->op(cpu.self, NULL, &op));                                  \
    } while (0)

static inline int open_cpu(void **state)
{
    (void)state;
    const cpu_config config = { .isa = CPU_ISA_SCALAR };
    ops = device_ops();
    return ops->create(&bench_host, &config, 1, &cpu.self);
}

static inline int close_cpu(void **state)
{
    (void)state;
    ops->destroy(cpu.self);
    return 0;
}

#endif
