/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps the word by which a signal handler cancels the run.
 */
#include "core/plugin/cancel.h"

#include <stddef.h>

/* A signal handler has access to static variables only. */
static _Atomic uint32_t canceled;
static _Atomic uint32_t at_once;
static _Atomic(const _Atomic uint32_t *) followed;

void xr_cancel(void)
{
    atomic_store(&canceled, 1);
}

void xr_cancel_reset(void)
{
    atomic_store(&canceled, 0);
}

void xr_cancel_at_once(int on)
{
    atomic_store(&at_once, on ? 1 : 0);
}

int xr_cancels_at_once(void)
{
    return (int)atomic_load(&at_once);
}

void xr_cancel_follow(const _Atomic uint32_t *word)
{
    atomic_store(&followed, word);
}

int xr_canceled(void)
{
    const _Atomic uint32_t *word =
        atomic_load_explicit(&followed, memory_order_relaxed);
    return atomic_load_explicit(&canceled, memory_order_relaxed) ||
           (word && atomic_load_explicit(word, memory_order_relaxed));
}

static uint32_t ask_canceled(const xray_call_service *service)
{
    (void)service;
    return (uint32_t)xr_canceled();
}

static uint32_t stand_on_control(const xray_call_service *service)
{
    (void)service;
    return 1; /* the core's own loops are in the thread that drives the run */
}

const xray_call_service xr_cancel_service = {
    .header = XRAY_HEADER(xray_call_service),
    .stopping = ask_canceled,
    .on_control = stand_on_control,
};

xray_status xr_cancel_check(xr_err *err)
{
    return xr_stop_check(&xr_cancel_service, err);
}
