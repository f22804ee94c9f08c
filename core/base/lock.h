/* SPDX-License-Identifier: Apache-2.0
 *
 * Locks a folder for one writing process. The lock ends with the process,
 * however that ends, and excludes processes on other hosts where the file
 * system supports it.
 */
#ifndef XR_LOCK_H
#define XR_LOCK_H

#include "core/base/err.h"

#define XR_LOCK_FILE ".lock"

typedef struct xr_lock {
    int held; /* descriptor of the lock file + 1; 0: none */
} xr_lock;

/* Locks an existing folder through its file XR_LOCK_FILE, which remains after
 * the run and names the holder. XRAY_E_STATE names the process that holds the
 * folder; XRAY_E_UNSUPPORTED means that the file system has no locks. A process
 * that is executed does not inherit the lock. */
xray_status xr_lock_take(const char *dir, xr_err *err, xr_lock *out);
void xr_lock_drop(xr_lock *lock); /* accepts one that is not held */

#endif
