/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether the run shall end at once. The main process decides it, by a second
 * signal; a Workhorse reads it from memory that its parent shares.
 */
#ifndef XR_CANCEL_H
#define XR_CANCEL_H

#include <stdatomic.h>

#include "core/base/services.h"

/* Asks every call of this process to end: xr_canceled() is 1 from now on.
 * Async-signal-safe. */
void xr_cancel(void);
/* Takes it back, for tests, which cancel more than once in one process. */
void xr_cancel_reset(void);

/* While this is on the first signal cancels, too, since nothing would be lost;
 * xr_cancels_at_once is async-signal-safe. */
void xr_cancel_at_once(int on);
int xr_cancels_at_once(void);

/* From now on a word other than 0 cancels, too. The word must live until the
 * process ends or this is called with NULL. */
void xr_cancel_follow(const _Atomic uint32_t *word);

/* Returns 1 if every call shall end. Any thread. */
int xr_canceled(void);
/* Returns XRAY_OK, or XRAY_E_CANCELED and a sentence. */
xray_status xr_cancel_check(xr_err *err);

/* For loops of rooms below this one: its stopping() is xr_canceled(). */
extern const xray_call_service xr_cancel_service;

#endif
