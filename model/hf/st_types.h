/* SPDX-License-Identifier: Apache-2.0
 *
 * Element types of safetensors by name.
 */
#ifndef XM_ST_TYPES_H
#define XM_ST_TYPES_H

#include "model/hf/safetensors.h"

/* XM_ST_* and the bits of an element; 0 for a name the format does not know. */
uint32_t xm_st_dtype(const char *name, uint32_t *out_bits);

/* Name and bits of a convertible type, or NULL. */
const char *xm_st_dtype_name(uint32_t dtype, uint32_t *out_bits);

#endif
