/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a call: encodes its arguments and sends it to the actor's process.
 */
#include <stdarg.h>
#include <string.h>

#include "core/actor/caller.h"

static void hold_region(xr_future *future, xray_region *region,
                        xr_region_name *out)
{
    *out = (xr_region_name){ 0 };
    if (!region)
        return;
    out->present = 1;
    out->senders = !region->peer;
    out->id = region->id;
    future->held[future->held_count++] = region;
}

/* Reads the ins and the outs of a call, as the signature lists them. */
static xray_status read_call_args(xr_future *future, va_list args,
                                  xr_value *values, xr_err *err)
{
    const xr_signature *signature = future->signature;
    const char *text;
    for (uint32_t i = 0; i < signature->in_count; i++) {
        switch (signature->in[i]) {
        case 'u':
            values[i].u = va_arg(args, uint32_t);
            break;
        case 'i':
            values[i].i = va_arg(args, int32_t);
            break;
        case 'U':
            values[i].U = va_arg(args, uint64_t);
            break;
        case 'I':
            values[i].I = va_arg(args, int64_t);
            break;
        case 'd':
            values[i].d = va_arg(args, double);
            break;
        case 's':
            text = va_arg(args, const char *);
            values[i].s = text ? text : "";
            break;
        case 'b':
            values[i].b.data = va_arg(args, const void *);
            values[i].b.size = va_arg(args, uint64_t);
            break;
        default:
            hold_region(future, va_arg(args, xray_region *), &values[i].m);
            break;
        }
    }
    for (uint32_t i = 0; i < signature->out_count; i++)
        future->outs[i] = va_arg(args, void *);
    /* References are taken last, so that a failure above has none to release.
     */
    for (uint32_t i = 0; i < future->held_count; i++) {
        xray_status status =
            xr_pool_ref(&future->actor->actors->pool, future->held[i], err);
        if (status) {
            future->held_count = i;
            return status;
        }
    }
    return XRAY_OK;
}

static xray_status send_call(xr_future *future, va_list args, xr_err *err)
{
    xr_value values[XR_ACTOR_LETTERS];
    xr_actors *actors = future->actor->actors;
    xray_status status = read_call_args(future, args, values, err);
    if (!status) {
        const xr_message header = { XR_MESSAGE_CALL, 0,    future->call,
                                    future->method,  NULL, 0 };
        status = xr_message_encode(&header, future->signature->in, values, err,
                                   &actors->scratch);
    }
    if (status)
        return xr_actor_blame(future->actor, future->method, status, err);
    return xr_future_send(future, err);
}

static xray_status start_call(xr_actor *actor, const char *name, va_list args,
                              xr_err *err, xr_future **out)
{
    const xr_actor_class *class_ = actor->class_;
    xr_future *future = NULL;
    size_t i = 0;
    while (i < class_->method_count &&
           strcmp(class_->methods[i].name, name) != 0)
        i++;
    if (i == class_->method_count)
        return xr_fail(err, XRAY_E_ARG, "actor %s: class %s has no method %s",
                       actor->name, class_->name, name);
    if (actor->lost) {
        (void)xr_fail(err, XRAY_E_PEER, "%s", actor->why.text);
        return xr_actor_blame(actor, name, XRAY_E_PEER, err);
    }
    xray_status status = xr_future_new(actor, class_->methods[i].name,
                                       &actor->signatures[i], err, &future);
    if (status)
        return status;
    status = send_call(future, args, err);
    if (status) {
        xr_future_free(future);
        return status;
    }
    *out = future;
    return XRAY_OK;
}

xray_status xr_actor_call(xr_actor *actor, const char *method, xr_err *err,
                          xr_future **out_future, ...)
{
    va_list args;
    va_start(args, out_future);
    xray_status status = start_call(actor, method, args, err, out_future);
    va_end(args);
    return status;
}

xray_status xr_actor_ask(xr_actor *actor, const char *method,
                         int64_t timeout_ms, xr_err *err, ...)
{
    xr_future *future = NULL;
    va_list args;
    va_start(args, err);
    xray_status status = start_call(actor, method, args, err, &future);
    va_end(args);
    if (status)
        return status;
    return xr_future_wait(future, timeout_ms, err);
}
