/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes why a system call failed, with the limit of the process that caused
 * it.
 */
#ifndef XR_SYSTEM_ERROR_H
#define XR_SYSTEM_ERROR_H

#define XR_SYSTEM_ERROR_CAP 96u

/* Writes the description of errno value `code` to `buffer` of
 * XR_SYSTEM_ERROR_CAP bytes: "Too many open files (ulimit -n is 8)". */
const char *xr_system_error(int code, char *buffer);
/* The same as an argument of printf. */
#define XR_SYSTEM_ERROR(code) \
    xr_system_error(code, (char[XR_SYSTEM_ERROR_CAP]){ "" })

#endif
