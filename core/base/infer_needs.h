/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of what an inference engine can do beyond the least.
 */
#ifndef XR_INFER_NEEDS_H
#define XR_INFER_NEEDS_H

#include <stdint.h>

/* Names the members of a request that need the lowest known bit XRAY_INFER_* of
 * `bits`, or what the bit says; NULL if none is known. */
const char *xr_infer_need_name(uint64_t bits);

#endif
