/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs another program to its end and takes what it writes.
 */
#ifndef XR_CHILD_H
#define XR_CHILD_H

#include <sys/types.h>

#include "core/base/services.h"
#include "core/base/str.h"

typedef struct xr_child {
    const char *name;        /* in sentences */
    const char *const *argv; /* argv[0] is looked up in PATH; ends with NULL */
    int input;               /* descriptor that it reads as standard input */
    double seconds;          /* it is killed after this time */
} xr_child;

/* Appends to `out` what the program writes. XRAY_E_UNSUPPORTED: it does not
 * exist, or ended with code 127, by which a shell and env say the same.
 * XRAY_E_IO: it failed, and the sentence holds the end of its standard error.
 * It is killed, with the processes that it started, when the time is over or
 * `calls` ends the call. */
xray_status xr_child_run(const xr_child *child, const xray_call_service *calls,
                         xr_err *err, xr_str *out);

/* A descriptor that a started program shall have as this one has it, and an
 * empty one. */
#define XR_CHILD_SAME (-1)
#define XR_CHILD_NOTHING (-2)
#define XR_CHILD_FILES 4

/* Starts a program, which is looked up in PATH, with files[i] as its descriptor
 * i; `only` 1: it has none above, either. It leads a group of its own, so that
 * its own children are killed with it and Ctrl-C reaches none of them, and no
 * signal is blocked or ignored there. 0 or an errno. */
int xr_child_start(char *const *argv, const int files[XR_CHILD_FILES], int only,
                   pid_t *out);

#endif
