/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the arguments of a function in a sample and calls it through libffi.
 */
#include "plugins/reward-ffi/worker/call.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/scores.h"
#include "core/base/str.h"

/* ---- the library -------------------------------------------------------- */

static ffi_type *type_of_letter(char letter)
{
    switch (letter) {
    case 'd':
        return &ffi_type_double;
    case 'f':
        return &ffi_type_float;
    case 'i':
        return &ffi_type_sint32;
    case 'I':
        return &ffi_type_sint64;
    case 'u':
        return &ffi_type_uint32;
    case 'U':
        return &ffi_type_uint64;
    default:
        return &ffi_type_pointer;
    }
}

static xray_status choose_signature(void *library, const char *symbol,
                                    const char *text, xr_err *err,
                                    fn_signature *out)
{
    char name[256];
    fn_signature exported;
    (void)snprintf(name, sizeof(name), "%s_sig", symbol);
    const char *found = dlsym(library, name);
    if (!*text && !found)
        return xr_fail(err, XRAY_E_CONFIG,
                       "signature: expected one, because the library exports "
                       "no %s",
                       name);
    xray_status status = fn_signature_parse(*text ? text : found, err, out);
    if (status != XRAY_OK || !*text || !found)
        return status;
    status = fn_signature_parse(found, err, &exported);
    if (status != XRAY_OK)
        return xr_fail_in(err, status, "%s", name);
    if (!fn_signature_equal(out, &exported))
        return xr_fail(err, XRAY_E_CONFIG,
                       "signature \"%s\": the library's own %s is \"%s\"", text,
                       name, found);
    return XRAY_OK;
}

static xray_status prepare_call(fn_call *call, xr_err *err)
{
    const fn_signature *signature = &call->signature;
    uint32_t count = 0;
    for (uint32_t i = 0; i < signature->count; i++) {
        if (signature->args[i].is_array) {
            call->types[count++] = &ffi_type_pointer;
            call->types[count++] = &ffi_type_uint64;
        } else {
            call->types[count++] = type_of_letter(signature->args[i].type);
        }
    }
    if (ffi_prep_cif(&call->cif, FFI_DEFAULT_ABI, count,
                     type_of_letter(signature->result), call->types) != FFI_OK)
        return xr_fail(err, XRAY_E_CONFIG, "libffi refuses the signature");
    return XRAY_OK;
}

xray_status fn_call_open(const char *library, const char *symbol,
                         const char *signature, xr_err *err, fn_call *out)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return xr_fail(err, XRAY_E_CONFIG, "library cannot be loaded: %s",
                       dlerror());
    void *found = dlsym(handle, symbol);
    if (!found)
        return xr_fail(err, XRAY_E_CONFIG, "%s has no symbol %s", library,
                       symbol);
    memcpy(&out->function, &found, sizeof(found));
    xray_status status =
        choose_signature(handle, symbol, signature, err, &out->signature);
    return status == XRAY_OK ? prepare_call(out, err) : status;
}

/* ---- the arguments ------------------------------------------------------ */

typedef union slot {
    void *p;
    double d;
    int32_t i;
    int64_t I;
    uint32_t u;
    uint64_t U;
} slot;

/* The arguments of one call; an array takes two slots. */
typedef struct arguments {
    slot slots[2 * FN_ARGS];
    void *at[2 * FN_ARGS];
    uint32_t count;
    void *owned[FN_ARGS];
    uint32_t owned_count;
} arguments;

int fn_call_takes_ids(const fn_call *call)
{
    for (uint32_t i = 0; i < call->signature.count; i++) {
        const char *name = call->signature.args[i].name;
        if (strcmp(name, "ids") == 0 || strcmp(name, "prompt_ids") == 0)
            return 1;
    }
    return 0;
}

static const char *describe_part(const cJSON *part)
{
    if (cJSON_IsString(part))
        return "a string";
    if (cJSON_IsNumber(part))
        return "a number";
    if (cJSON_IsArray(part))
        return "a list";
    return cJSON_IsObject(part) ? "an object" : "true, false or null";
}

/* Converts a number to the type of a letter; -1 if it is not a number, or does
 * not fit. */
static int convert_number(const cJSON *part, char type, slot *out)
{
    static const struct {
        char type;
        double least;
        double beyond;
    } ranges[] = { { 'i', -2147483648.0, 2147483648.0 },
                   { 'I', -9223372036854775808.0, 9223372036854775808.0 },
                   { 'u', 0, 4294967296.0 },
                   { 'U', 0, 18446744073709551616.0 } };
    double value = cJSON_IsTrue(part) ? 1 : 0;
    if (cJSON_IsNumber(part))
        value = part->valuedouble;
    else if (!cJSON_IsBool(part))
        return -1;
    if (type == 'd') {
        out->d = value;
        return 0;
    }
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        if (ranges[i].type == type &&
            (value != floor(value) || value < ranges[i].least ||
             value >= ranges[i].beyond))
            return -1;
    if (type == 'i')
        out->i = (int32_t)value;
    else if (type == 'I')
        out->I = (int64_t)value;
    else if (type == 'u')
        out->u = (uint32_t)value;
    else
        out->U = (uint64_t)value;
    return 0;
}

static void push_slot(arguments *a, slot value)
{
    a->slots[a->count] = value;
    a->at[a->count] = &a->slots[a->count];
    a->count++;
}

static void push_owned(arguments *a, void *memory)
{
    a->owned[a->owned_count++] = memory;
    push_slot(a, (slot){ .p = memory });
}

static xray_status push_array(arguments *a, const fn_argument *arg,
                              const cJSON *part, xr_err *err)
{
    int wide = arg->type == 'd' || arg->type == 'I' || arg->type == 'U';
    size_t size = wide ? 8 : 4;
    size_t count = 0;
    if (!cJSON_IsArray(part))
        return xr_fail(err, XRAY_E_ARG, "%s is %s, expected a list", arg->name,
                       describe_part(part));
    char *memory = xr_calloc((size_t)cJSON_GetArraySize(part), size);
    if (!memory)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    push_owned(a, memory);
    const cJSON *item;
    cJSON_ArrayForEach(item, part)
    {
        slot value = { .U = 0 };
        if (convert_number(item, arg->type, &value))
            return xr_fail(err, XRAY_E_ARG,
                           "element %zu of %s does not fit the type %c", count,
                           arg->name, arg->type);
        memcpy(memory + size * count++, &value, size);
    }
    push_slot(a, (slot){ .U = count });
    return XRAY_OK;
}

static xray_status push_argument(arguments *a, const fn_argument *arg,
                                 const cJSON *sample, xr_err *err)
{
    slot value = { .U = 0 };
    const cJSON *part = xr_scores_part(sample, arg->name);
    if (!part)
        return xr_fail(err, XRAY_E_ARG, "the data row has no field %s",
                       arg->name);
    if (arg->is_array)
        return push_array(a, arg, part, err);
    if (arg->type == 's' && cJSON_IsString(part)) {
        value.p = part->valuestring;
    } else if (arg->type == 's' &&
               (cJSON_IsObject(part) || cJSON_IsArray(part))) {
        char *text = cJSON_PrintUnformatted(part);
        if (!text)
            return xr_fail(err, XRAY_E_NOMEM, "out of memory");
        push_owned(a, text);
        return XRAY_OK;
    } else if (arg->type == 's' || convert_number(part, arg->type, &value)) {
        return xr_fail(err, XRAY_E_ARG,
                       "%s is %s, which does not fit the type %c", arg->name,
                       describe_part(part), arg->type);
    }
    push_slot(a, value);
    return XRAY_OK;
}

/* libffi widens integers that are narrower than ffi_arg. */
typedef union result {
    ffi_arg wide;
    ffi_sarg wide_signed;
    double d;
    float f;
    int64_t I;
    uint64_t U;
} result;

static double read_result(const result *got, char type)
{
    switch (type) {
    case 'd':
        return got->d;
    case 'f':
        return (double)got->f;
    case 'i':
        return (double)(int32_t)got->wide_signed;
    case 'I':
        return (double)got->I;
    case 'u':
        return (double)(uint32_t)got->wide;
    default:
        return (double)got->U;
    }
}

xray_status fn_call_score(fn_call *call, const cJSON *sample, xr_err *err,
                          double *out)
{
    arguments args = { .count = 0 };
    result got = { .U = 0 };
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; i < call->signature.count && status == XRAY_OK; i++)
        status = push_argument(&args, &call->signature.args[i], sample, err);
    if (status == XRAY_OK) {
        ffi_call(&call->cif, call->function, &got, args.at);
        *out = read_result(&got, call->signature.result);
        if (!isfinite(*out))
            status = xr_fail(err, XRAY_E_NUMERIC,
                             "the function returned %g, expected a finite "
                             "number",
                             *out);
    }
    for (uint32_t i = 0; i < args.owned_count; i++)
        free(args.owned[i]);
    return status;
}
