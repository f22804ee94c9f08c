/* SPDX-License-Identifier: Apache-2.0
 *
 * Why a call of the system failed, with the limit of the process that is behind
 * it.
 */
#ifndef XR_WHY_H
#define XR_WHY_H

#define XR_WHY_CAP 96u

/* What errno says, in `buffer` of XR_WHY_CAP bytes: "Too many open files
 * (ulimit -n is 8)". */
const char *xr_why(int code, char *buffer);
/* The same as an argument of a printf. */
#define XR_WHY(code) xr_why(code, (char[XR_WHY_CAP]){ "" })

#endif
