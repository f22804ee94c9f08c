/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls the C function of a method through libffi, as its signature describes.
 */
#include "core/actor/invoke.h"

#include <string.h>

/* Appends the types of one letter; returns the new count. */
static uint32_t append_letter_types(char letter, ffi_type **types,
                                    uint32_t count)
{
    switch (letter) {
    case 'u':
        types[count++] = &ffi_type_uint32;
        break;
    case 'i':
        types[count++] = &ffi_type_sint32;
        break;
    case 'U':
        types[count++] = &ffi_type_uint64;
        break;
    case 'I':
        types[count++] = &ffi_type_sint64;
        break;
    case 'd':
        types[count++] = &ffi_type_double;
        break;
    case 'b':
        types[count++] = &ffi_type_pointer;
        types[count++] = &ffi_type_uint64;
        break;
    default:
        types[count++] = &ffi_type_pointer;
        break;
    }
    return count;
}

xray_status xr_invoke_prepare(const char *signature, xr_err *err,
                              xr_invoke *out)
{
    uint32_t count = 0;
    xray_status status = xr_signature_parse(signature, err, &out->signature);
    if (status)
        return status;
    out->types[count++] = &ffi_type_pointer;
    for (uint32_t i = 0; i < out->signature.in_count; i++)
        count = append_letter_types(out->signature.in[i], out->types, count);
    for (uint32_t i = 0; i <= out->signature.out_count; i++) /* and err */
        out->types[count++] = &ffi_type_pointer;
    if (ffi_prep_cif(&out->cif, FFI_DEFAULT_ABI, count, &ffi_type_sint32,
                     out->types) != FFI_OK)
        return xr_fail(err, XRAY_E_BUG, "signature \"%s\": libffi refuses it",
                       signature);
    return XRAY_OK;
}

static uint32_t append_argument(char letter, xr_invoke_values *values,
                                uint32_t i, void **args, uint32_t count)
{
    xr_value *in = &values->in[i];
    if (letter == 'b') {
        args[count++] = &in->b.data;
        args[count++] = &in->b.size;
    } else if (letter == 'm') {
        args[count++] = &values->in_region[i];
    } else {
        args[count++] = in; /* all members of the union begin at its address */
    }
    return count;
}

static void *output_slot(char letter, xr_invoke_values *values, uint32_t i)
{
    if (letter == 's' || letter == 'b') {
        xr_str_clear(&values->out_str[i]);
        values->out_str[i].failed = 0;
        return &values->out_str[i];
    }
    values->out_region[i] = NULL;
    memset(&values->out[i], 0, sizeof(values->out[i]));
    return letter == 'm' ? (void *)&values->out_region[i]
                         : (void *)&values->out[i];
}

xray_status xr_invoke_call(xr_invoke *invoke, xr_actor_fn function, void *self,
                           xr_invoke_values *values, xr_err *err)
{
    const xr_signature *signature = &invoke->signature;
    void *args[XR_INVOKE_ARGS];
    uint32_t count = 0;
    ffi_arg result = 0;
    args[count++] = &self;
    for (uint32_t i = 0; i < signature->in_count; i++)
        count = append_argument(signature->in[i], values, i, args, count);
    for (uint32_t i = 0; i < signature->out_count; i++) {
        values->out_at[i] = output_slot(signature->out[i], values, i);
        args[count++] = &values->out_at[i];
    }
    args[count++] = &err;
    ffi_call(&invoke->cif, FFI_FN(function), &result, args);
    return (xray_status)(int32_t)(ffi_sarg)result;
}
