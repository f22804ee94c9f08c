/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the types of an operator's arrays, so that all devices refuse them in
 * the same words.
 */
#ifndef XR_OPERAND_H
#define XR_OPERAND_H

#include <xray/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An array that may be fp32, for which 0 stands too, or bf16. */
typedef struct xr_operand {
    const char *name;
    const void *data;
    uint32_t dtype;
} xr_operand;

/* The operand of a member that has a type of its own. */
#define XR_OPERAND(op, member)                      \
    {                                               \
#member, (op)->member, (op)->member##_dtype \
    }

/* Refuses operands of another type, and one buffer with two types. */
xray_status xr_operands_check(const xray_host *host, const char *where,
                              const xr_operand *operands, size_t count);

/* Returns from the operator that calls it if its operands are refused. */
#define XR_CHECK_OPERANDS(host, where, ...)                                  \
    do {                                                                     \
        const xr_operand operands_[] = { __VA_ARGS__ };                      \
        xray_status status_ = xr_operands_check(                             \
            host, where, operands_, sizeof(operands_) / sizeof(*operands_)); \
        if (status_ != XRAY_OK)                                              \
            return status_;                                                  \
    } while (0)

#ifdef __cplusplus
}
#endif

#endif
