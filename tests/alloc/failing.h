/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that runs out on demand: every allocation of our objects, and those of
 * cJSON and PCRE2, can be made to fail by number.
 */
#ifndef XR_ALLOC_FAILING_H
#define XR_ALLOC_FAILING_H

#include "core/base/err.h"

/* Installs the hooks of libraries; once, before all else. */
void failing_init(void);
/* Reading a folder's next entry counts as an allocation too, or not again. */
void failing_folders(int on);
/* The n-th allocation from now on fails, and with `all` those after it; 0: none
 * fails. */
void failing_arm(unsigned long n, int all);
/* Stops failing; 1 if one did. *out_count: allocations since arm. */
int failing_disarm(unsigned long *out_count);

/* What is tried: XRAY_OK, or a status with its sentence in `err`. It gives back
 * all it took. */
typedef xray_status (*failing_try)(void *ctx, xr_err *err);

/* Runs it with the first, second, ... allocation failing until none is left,
 * at most `most` times spread over all (0: every one; XRAY_ALLOC_ALL=1 in the
 * environment makes it every one). Each must end in XRAY_E_NOMEM and one
 * sentence and leak nothing. A test fails otherwise. */
void failing_sweep(const char *name, failing_try f, void *ctx,
                   unsigned long most);

#endif
