/* SPDX-License-Identifier: Apache-2.0
 *
 * Lets memory run out on demand: every allocation of our objects, and those of
 * cJSON and PCRE2, can be made to fail by number.
 */
#ifndef XR_ALLOC_FAILING_H
#define XR_ALLOC_FAILING_H

#include "core/base/err.h"

/* Installs the hooks of libraries; called once, before anything else. */
void failing_init(void);
/* Whether reading the next entry of a folder counts as an allocation. */
void failing_folders(int on);
/* Lets the n-th allocation from now on fail, with `all` also those after it; 0:
 * none fails. */
void failing_arm(unsigned long n, int all);
/* Ends this; 1 if an allocation failed. *out_count: allocations since arming.
 */
int failing_disarm(unsigned long *out_count);

/* The code under test: XRAY_OK, or a status with its message in `err`. It frees
 * everything that it allocated. */
typedef xray_status (*failing_try)(void *ctx, xr_err *err);

/* Runs it with the first, second, ... allocation failing until none is left, or
 * `most` times, spread over all of them (0, or XRAY_ALLOC_ALL=1 in the
 * environment: every one). Each run must end with XRAY_E_NOMEM and one message
 * and leak nothing; otherwise the test fails. */
void failing_sweep(const char *name, failing_try f, void *ctx,
                   unsigned long most);

#endif
