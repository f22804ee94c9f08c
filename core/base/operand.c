/* SPDX-License-Identifier: Apache-2.0
 *
 * The check of the types of an operator's arrays.
 */
#include "core/base/operand.h"

#include "core/base/err.h"

static int is_narrow(const xr_operand *o)
{
    return o->dtype == XRAY_BF16;
}

xray_status xr_operands_check(const xray_host *host, const char *where,
                              const xr_operand *operands, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const xr_operand *o = &operands[i];
        if (o->dtype > XRAY_BF16)
            return xr_host_fail(
                host, XRAY_E_UNSUPPORTED, where,
                "%s has element type %u, but must be F32 or BF16", o->name,
                o->dtype);
        for (size_t j = 0; j < i; j++)
            if (o->data && o->data == operands[j].data &&
                is_narrow(o) != is_narrow(&operands[j]))
                return xr_host_fail(
                    host, XRAY_E_ARG, where,
                    "%s and %s are one buffer, but one of them is F32 and the "
                    "other BF16",
                    operands[j].name, o->name);
    }
    return XRAY_OK;
}
