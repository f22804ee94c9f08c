/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder that one process writes: the lock goes with the process, however it
 * ends, and keeps processes of other hosts out where the file system can.
 */
#ifndef XR_LOCK_H
#define XR_LOCK_H

#include "core/base/err.h"

#define XR_LOCK_FILE ".lock"

typedef struct xr_lock {
    int held; /* a descriptor + 1; 0: none */
} xr_lock;

/* Locks an existing folder by its file XR_LOCK_FILE, which stays behind and
 * says who holds it. XRAY_E_STATE names the process that has the folder;
 * XRAY_E_UNSUPPORTED says that the file system has no locks, so that nobody is
 * kept out. A child that is executed does not inherit the lock. */
xray_status xr_lock_take(const char *dir, xr_err *err, xr_lock *out);
void xr_lock_drop(xr_lock *lock); /* accepts one that is not held */

#endif
