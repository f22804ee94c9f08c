/* SPDX-License-Identifier: Apache-2.0
 *
 * Receives the messages of an actor's process and keeps those that must wait.
 */
#include "core/actor/inbox.h"

#include <stdlib.h>
#include <string.h>

struct xr_kept_message {
    xr_kept_message *next;
    size_t size;
    char data[];
};

static void drop_first_kept(xr_inbox *inbox)
{
    xr_kept_message *kept = inbox->kept;
    inbox->kept = kept->next;
    free(kept);
}

void xr_inbox_free(xr_inbox *inbox)
{
    xr_str_free(&inbox->message);
    while (inbox->kept)
        drop_first_kept(inbox);
}

xray_status xr_inbox_keep(xr_inbox *inbox, const xray_runtime_event *event,
                          xr_err *err)
{
    xr_kept_message **end = &inbox->kept;
    size_t size = (size_t)event->size;
    xr_kept_message *kept = malloc(sizeof(*kept) + size);
    if (!kept)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for a message");
    kept->next = NULL;
    kept->size = size;
    if (size)
        memcpy(kept->data, event->data, size);
    while (*end)
        end = &(*end)->next;
    *end = kept;
    return XRAY_OK;
}

xray_status xr_inbox_poll(xr_inbox *inbox, int64_t timeout_ms,
                          xray_runtime_event *event, xr_err *err)
{
    *event = (xray_runtime_event){ .header = XRAY_HEADER(xray_runtime_event) };
    xray_status status = inbox->ops->poll(inbox->runtime, timeout_ms, event);
    if (status < 0)
        return xr_relay_error(inbox->relay, status, "poll", err);
    if (status == XRAY_OK)
        status = xr_event_check(event, err);
    if (status == XRAY_OK && event->kind == XRAY_RUNTIME_LOST)
        return event->clean
                   ? XRAY_END
                   : xr_fail(err, XRAY_E_PEER, "the parent %s", event->reason);
    return status;
}

static xray_status copy_message(xr_inbox *inbox, const void *data, size_t size,
                                xr_err *err)
{
    xr_str_clear(&inbox->message);
    xr_str_append(&inbox->message, data, size);
    return inbox->message.failed
               ? xr_fail(err, XRAY_E_NOMEM, "out of memory for a message")
               : XRAY_OK;
}

xray_status xr_inbox_next(xr_inbox *inbox, xr_err *err)
{
    xray_runtime_event event;
    xray_status status = XRAY_AGAIN;
    if (inbox->kept) {
        status = copy_message(inbox, inbox->kept->data, inbox->kept->size, err);
        drop_first_kept(inbox);
        return status;
    }
    while (status == XRAY_AGAIN)
        status = xr_inbox_poll(inbox, -1, &event, err);
    return status == XRAY_OK
               ? copy_message(inbox, event.data, (size_t)event.size, err)
               : status;
}
