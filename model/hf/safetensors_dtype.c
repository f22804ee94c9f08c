/* SPDX-License-Identifier: Apache-2.0
 *
 * Maps element types of safetensors to their names and sizes.
 */
#include "model/hf/safetensors_internal.h"

#include <string.h>

typedef struct dtype_row {
    const char *name;
    uint32_t dtype;
    uint32_t bits;
} dtype_row;

static const dtype_row kinds[] = {
    { "F32", XM_ST_F32, 32 },
    { "BF16", XM_ST_BF16, 16 },
    { "F16", XM_ST_F16, 16 },
    { "F64", XM_ST_F64, 64 },
    { "I64", XM_ST_I64, 64 },
    { "I32", XM_ST_I32, 32 },
    { "I16", XM_ST_I16, 16 },
    { "I8", XM_ST_I8, 8 },
    { "U8", XM_ST_U8, 8 },
    { "BOOL", XM_ST_BOOL, 8 },
    { "U16", XM_ST_OTHER, 16 },
    { "U32", XM_ST_OTHER, 32 },
    { "U64", XM_ST_OTHER, 64 },
    { "C64", XM_ST_OTHER, 64 },
    { "F8_E4M3", XM_ST_OTHER, 8 },
    { "F8_E5M2", XM_ST_OTHER, 8 },
    { "F8_E8M0", XM_ST_OTHER, 8 },
    { "F8_E4M3FNUZ", XM_ST_OTHER, 8 },
    { "F8_E5M2FNUZ", XM_ST_OTHER, 8 },
    { "F6_E2M3", XM_ST_OTHER, 6 },
    { "F6_E3M2", XM_ST_OTHER, 6 },
    { "F4", XM_ST_OTHER, 4 },
};

uint32_t xm_st_dtype(const char *name, uint32_t *out_bits,
                     const char **out_name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(name, kinds[i].name) != 0)
            continue;
        *out_bits = kinds[i].bits;
        *out_name = kinds[i].name;
        return kinds[i].dtype;
    }
    return 0;
}

const char *xm_st_dtype_name(uint32_t dtype, uint32_t *out_bits)
{
    for (size_t i = 0; dtype < XM_ST_OTHER && kinds[i].dtype < XM_ST_OTHER;
         i++) {
        if (dtype != kinds[i].dtype)
            continue;
        *out_bits = kinds[i].bits;
        return kinds[i].name;
    }
    return NULL;
}
