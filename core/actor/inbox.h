/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages that an actor's process receives. A method may wait for one, and
 * those that come before it are kept in order.
 */
#ifndef XR_INBOX_H
#define XR_INBOX_H

#include "core/actor/invoke.h"

typedef struct xr_kept_message xr_kept_message;

typedef struct xr_inbox {
    const xray_runtime_ops *ops;
    void *runtime;
    xr_relay *relay;
    xr_str message; /* the one that is handled; its values point into it */
    xr_kept_message *kept;
} xr_inbox;

void xr_inbox_free(xr_inbox *inbox); /* the messages; the rest is the owner's */
/* Waits for the next message, of those kept first, and copies it to `message`,
 * since a method may send and poll. XRAY_END: the parent has ended in order. */
xray_status xr_inbox_next(xr_inbox *inbox, xr_err *err);
/* Takes the next message from the runtime, past those that are kept: XRAY_AGAIN
 * if none came in time, XRAY_END as above. */
xray_status xr_inbox_poll(xr_inbox *inbox, int64_t timeout_ms,
                          xray_runtime_event *event, xr_err *err);
/* Keeps the message of an event for xr_inbox_next. */
xray_status xr_inbox_keep(xr_inbox *inbox, const xray_runtime_event *event,
                          xr_err *err);

#endif
