/* SPDX-License-Identifier: Apache-2.0
 *
 * The actor's process: it serves the calls of one object, one after another.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "core/actor/inbox.h"
#include "core/actor/local.h"
#include "core/actor/record.h"
#include "core/plugin/cancel.h"

/* The longest that a wait does not notice that the run is canceled. */
#define LOOK_MS 20

struct xr_actor_context {
    xr_actor_context *own; /* this struct, writable */
    const xray_runtime_ops *ops;
    void *runtime;
    xray_peer *parent;
    xr_relay relay;
    xr_pool pool;
    xr_inbox inbox;
    char *record; /* core/actor/record.h */
    const xr_actor_class *class_;
    void *object;
    char *name;
    char *text;
    uint32_t index;
    uint32_t count;
    uint32_t stopped;
    uint32_t created;
    xr_invoke *invokes; /* of the class's methods */
    xr_invoke_values values;
    xray_region *back[XR_ACTOR_LETTERS]; /* sent along with a reply */
    xr_str scratch;
};

const char *xr_actor_own_name(const xr_actor_context *context)
{
    return context->name;
}

uint32_t xr_actor_index(const xr_actor_context *context)
{
    return context->index;
}

uint32_t xr_actor_count(const xr_actor_context *context)
{
    return context->count;
}

void *xr_actor_extra(const xr_actor_context *context)
{
    return context->record + XR_RECORD_PHASE;
}

const void *xr_actor_extras(const xr_actor_context *context,
                            uint64_t *out_stride)
{
    const char *all = context->ops->records(context->runtime, out_stride);
    return all ? all + XR_RECORD_PHASE : NULL;
}

void xr_actor_phase(const xr_actor_context *context, const char *phase)
{
    xr_record_put_phase(context->record, phase);
}

/* Objects see a constant context; the pool belongs to the thread that
 * serves. */
static xr_pool *pool_of_context(const xr_actor_context *context)
{
    return &context->own->pool;
}

xray_status xr_actor_region(const xr_actor_context *context, uint64_t size,
                            xr_err *err, xray_region **out)
{
    return xr_pool_get(pool_of_context(context), size, err, out);
}

void xr_actor_region_put(const xr_actor_context *context, xray_region *region)
{
    if (region)
        (void)xr_pool_put(pool_of_context(context), region);
}

/* ---- Messages ---- */

/* Sends what `scratch` holds, with regions of `back`. */
static xray_status send_message(xr_actor_context *c, uint32_t region_count,
                                xr_err *err)
{
    xray_status status = c->ops->send(c->runtime, c->parent, c->scratch.data,
                                      c->scratch.size, c->back, region_count);
    return status ? xr_relay_error(&c->relay, status, "send", err) : XRAY_OK;
}

/* ---- Gathers ---- */

/* Reads what all actors gave, or why there is nothing; *out_done is 0 if the
 * message is another one. */
static xray_status read_gathered(const xr_actor_context *c,
                                 const xray_runtime_event *event,
                                 uint64_t bytes, void *all, int *out_done,
                                 xr_err *err)
{
    xr_message message;
    xr_value values[2];
    xray_status status =
        xr_message_header(event->data, (size_t)event->size, err, &message);
    *out_done = status == XRAY_OK && (message.kind == XR_MESSAGE_GATHERED ||
                                      message.kind == XR_MESSAGE_NOT_GATHERED);
    if (!*out_done)
        return status;
    if (message.kind == XR_MESSAGE_NOT_GATHERED) {
        status = xr_message_values(&message, XR_ERROR_LETTERS, err, values);
        return status ? status
                      : xr_fail(err, values[0].i, "%s (this is rank %u)",
                                values[1].s, c->index);
    }
    status = xr_message_values(&message, "b", err, values);
    if (status == XRAY_OK && values[0].b.size != bytes * c->count)
        return xr_fail(err, XRAY_E_PEER, "gather: %llu bytes came, not %llu",
                       (unsigned long long)values[0].b.size,
                       (unsigned long long)(bytes * c->count));
    if (status == XRAY_OK && bytes)
        memcpy(all, values[0].b.data, (size_t)values[0].b.size);
    return status;
}

/* The parent watches the time limit, since it knows who is missing. */
static xray_status wait_for_gathered(xr_actor_context *c, uint64_t bytes,
                                     void *all, xr_err *err)
{
    int done = 0;
    while (!done) {
        xray_runtime_event event;
        xray_status status = xr_inbox_poll(&c->inbox, LOOK_MS, &event, err);
        if (status == XRAY_END)
            return xr_fail(err, XRAY_E_PEER, "gather: the parent is gone");
        if (status == XRAY_AGAIN)
            status = xr_cancel_check(err);
        else if (status == XRAY_OK)
            status = read_gathered(c, &event, bytes, all, &done, err);
        if (status == XRAY_OK && !done && event.kind == XRAY_RUNTIME_MESSAGE)
            status = xr_inbox_keep(&c->inbox, &event, err);
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}

xray_status xr_actor_gather(const xr_actor_context *context, const void *mine,
                            uint64_t bytes, uint64_t timeout_ms, void *all,
                            xr_err *err)
{
    xr_actor_context *c = context->own;
    const xr_message header = { XR_MESSAGE_GATHER, 0, 0, "", NULL, 0 };
    const xr_value values[2] = { { .U = timeout_ms },
                                 { .b = { mine, bytes } } };
    xray_status status =
        xr_message_encode(&header, "Ub", values, err, &c->scratch);
    if (status == XRAY_OK)
        status = send_message(c, 0, err);
    return status ? status : wait_for_gathered(c, bytes, all, err);
}

/* ---- Answers ---- */

static xray_status reply_with_error(xr_actor_context *c, uint64_t call,
                                    xray_status status, const char *text,
                                    xr_err *err)
{
    const xr_message header = { XR_MESSAGE_ERROR, 0, call, "", NULL, 0 };
    const xr_value values[2] = { { .i = status }, { .s = text } };
    xray_status bad =
        xr_message_encode(&header, XR_ERROR_LETTERS, values, err, &c->scratch);
    return bad ? bad : send_message(c, 0, err);
}

static xray_status reply_with_success(xr_actor_context *c, uint64_t call,
                                      xr_err *err)
{
    const xr_message header = { XR_MESSAGE_REPLY, 0, call, "", NULL, 0 };
    const xr_value value = { .i = XRAY_OK };
    xray_status bad = xr_message_encode(&header, "i", &value, err, &c->scratch);
    return bad ? bad : send_message(c, 0, err);
}

/* ---- Calls ---- */

static xray_status find_input_regions(xr_actor_context *c,
                                      const xr_signature *signature,
                                      xr_err *err)
{
    xr_invoke_values *v = &c->values;
    for (uint32_t i = 0; i < signature->in_count; i++) {
        const xr_region_name *name = &v->in[i].m;
        v->in_region[i] = NULL;
        if (signature->in[i] != 'm' || !name->present)
            continue;
        v->in_region[i] = c->ops->region_find(
            c->runtime, name->senders ? c->parent : NULL, name->id);
        if (!v->in_region[i])
            return xr_fail(err, XRAY_E_ARG,
                           "argument %u is region %llu, which was not sent",
                           i + 1, (unsigned long long)name->id);
    }
    return XRAY_OK;
}

/* Collects the outputs of the method as the values of a reply. */
static xray_status collect_outputs(xr_actor_context *c,
                                   const xr_signature *signature,
                                   xr_value *values, uint32_t *out_regions,
                                   xr_err *err)
{
    xr_invoke_values *v = &c->values;
    for (uint32_t i = 0; i < signature->out_count; i++) {
        const char letter = signature->out[i];
        const xr_str *text = &v->out_str[i];
        const xray_region *region = v->out_region[i];
        values[i] = v->out[i];
        if ((letter == 's' || letter == 'b') && text->failed)
            return xr_fail(err, XRAY_E_NOMEM, "out of memory for result %u",
                           i + 1);
        if (letter == 's') {
            values[i].s = xr_str_text(text);
        } else if (letter == 'b') {
            values[i].b = (xr_bytes){ text->data, text->size };
        } else if (letter == 'm') {
            values[i].m = (xr_region_name){ 0 };
            if (!region)
                continue;
            values[i].m = (xr_region_name){ region->id, 1, !region->peer };
            c->back[(*out_regions)++] = v->out_region[i];
        }
    }
    return XRAY_OK;
}

static void release_output_regions(xr_actor_context *c,
                                   const xr_signature *signature)
{
    for (uint32_t i = 0; i < signature->out_count; i++)
        if (signature->out[i] == 'm')
            xr_actor_region_put(c, c->values.out_region[i]);
}

static xray_status reply_with_outputs(xr_actor_context *c, uint64_t call,
                                      const xr_signature *signature,
                                      xray_status status, xr_err *err)
{
    xr_value values[XR_VALUES];
    char letters[XR_VALUES + 1] = "i";
    uint32_t regions = 0;
    xr_err why = { "" };
    const xr_message header = { XR_MESSAGE_REPLY, 0, call, "", NULL, 0 };
    values[0].i = status;
    memcpy(letters + 1, signature->out, signature->out_count);
    xray_status bad = collect_outputs(c, signature, values + 1, &regions, &why);
    if (!bad)
        bad = xr_message_encode(&header, letters, values, &why, &c->scratch);
    if (!bad)
        return send_message(c, regions, err);
    release_output_regions(c, signature);
    return reply_with_error(c, call, bad, why.text, err);
}

static xray_status handle_call(xr_actor_context *c, const xr_message *message,
                               xr_err *err)
{
    const xr_actor_class *class_ = c->class_;
    xr_err why = { "" };
    size_t i = 0;
    while (i < class_->method_count &&
           strcmp(class_->methods[i].name, message->name) != 0)
        i++;
    if (i == class_->method_count) {
        (void)xr_fail(&why, XRAY_E_ARG, "class %s has no such method",
                      class_->name);
        return reply_with_error(c, message->call, XRAY_E_ARG, why.text, err);
    }
    xr_invoke *invoke = &c->invokes[i];
    xray_status status =
        xr_message_values(message, invoke->signature.in, &why, c->values.in);
    if (!status)
        status = find_input_regions(c, &invoke->signature, &why);
    if (!status) {
        xr_actor_phase(c, class_->methods[i].name);
        status = xr_invoke_call(invoke, class_->methods[i].call, c->object,
                                &c->values, &why);
        xr_actor_phase(c, "waiting for a call");
        if (status < 0)
            release_output_regions(c, &invoke->signature);
    }
    if (status >= 0)
        return reply_with_outputs(c, message->call, &invoke->signature, status,
                                  err);
    if (!why.text[0])
        (void)xr_fail(&why, status, "it failed with status %d", status);
    return reply_with_error(c, message->call, status, why.text, err);
}

/* ---- Life ---- */

static xray_status prepare_methods(xr_actor_context *c, xr_err *err)
{
    const size_t count = c->class_->method_count;
    c->invokes = xr_calloc(count + 1, sizeof(*c->invokes));
    if (!c->invokes || !c->name || !c->text)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for the actor");
    for (size_t i = 0; i < count; i++) {
        const xr_actor_method *method = &c->class_->methods[i];
        xray_status status =
            xr_invoke_prepare(method->signature, err, &c->invokes[i]);
        if (status)
            return xr_fail_in(err, status, "method %s of class %s",
                              method->name, c->class_->name);
    }
    return XRAY_OK;
}

static xray_status create_object(xr_actor_context *c, const xr_message *message,
                                 const xr_actor_class *const *classes,
                                 size_t count, xr_err *err)
{
    xr_value v[4];
    size_t i = 0;
    xray_status status = xr_message_values(message, XR_CREATE_LETTERS, err, v);
    if (status)
        return status;
    while (i < count && strcmp(classes[i]->name, message->name) != 0)
        i++;
    if (i == count)
        return xr_fail(err, XRAY_E_ARG, "this program has no class %s",
                       message->name);
    c->class_ = classes[i];
    c->name = xr_strdup(v[0].s);
    c->index = v[1].u;
    c->count = v[2].u;
    c->text = xr_strdup(v[3].s);
    status = prepare_methods(c, err);
    if (status)
        return status;
    xr_actor_phase(c, "create");
    status = c->class_->create(c, c->text, err, &c->object);
    xr_actor_phase(c, "waiting for a call");
    c->created = status >= 0;
    if (status < 0 && !err->text[0])
        (void)xr_fail(err, status, "create failed with status %d", status);
    return status;
}

static void destroy_object(xr_actor_context *c)
{
    if (!c->created)
        return;
    xr_actor_phase(c, "destroy");
    if (c->class_->destroy)
        c->class_->destroy(c->object);
    xr_actor_phase(c, "waiting for a call");
    c->created = 0;
}

static xray_status handle_create(xr_actor_context *c, const xr_message *message,
                                 const xr_actor_class *const *classes,
                                 size_t count, xr_err *err)
{
    xr_err ignored = { "" };
    if (c->class_)
        return reply_with_error(c, message->call, XRAY_E_STATE,
                                "the object already exists", err);
    xray_status status = create_object(c, message, classes, count, err);
    if (status >= 0)
        return reply_with_success(c, message->call, err);
    (void)reply_with_error(c, message->call, status, err->text, &ignored);
    return status;
}

static xray_status handle_message(xr_actor_context *c,
                                  const xr_message *message, xr_err *err)
{
    xr_value value;
    xr_err why = { "" };
    switch (message->kind) {
    case XR_MESSAGE_CALL:
        if (!c->created)
            return reply_with_error(c, message->call, XRAY_E_STATE,
                                    "no object was created", err);
        return handle_call(c, message, err);
    case XR_MESSAGE_RELEASE: {
        if (xr_message_values(message, "U", &why, &value))
            return XRAY_OK;
        xray_region *region = c->ops->region_find(c->runtime, NULL, value.U);
        xr_actor_region_put(c, region);
        return XRAY_OK;
    }
    case XR_MESSAGE_STOP:
        destroy_object(c);
        c->stopped = 1;
        return reply_with_success(c, message->call, err);
    default:
        return xr_fail(err, XRAY_E_PEER, "the parent sent a message of kind %u",
                       message->kind);
    }
}

static xray_status dispatch_message(xr_actor_context *c,
                                    const xr_actor_class *const *classes,
                                    size_t count, xr_err *err)
{
    xr_message message;
    xray_status status = xr_message_header(
        c->inbox.message.data, c->inbox.message.size, err, &message);
    if (!status && message.kind == XR_MESSAGE_CREATE)
        return handle_create(c, &message, classes, count, err);
    return status ? status : handle_message(c, &message, err);
}

static xray_status serve_messages(xr_actor_context *c,
                                  const xr_actor_class *const *classes,
                                  size_t count, xr_err *err)
{
    while (!c->stopped) {
        xray_status status = xr_inbox_next(&c->inbox, err);
        if (status == XRAY_END)
            return XRAY_OK;
        if (status == XRAY_OK)
            status = dispatch_message(c, classes, count, err);
        if (status < 0)
            return status;
    }
    return XRAY_OK;
}

/* The parent decides when an actor ends: a Ctrl-C reaches the complete group of
 * processes, and the parent may want to write a checkpoint first. */
static void ignore_signals(void)
{
    static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE };
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        (void)sigaction(signals[i], &ignore, NULL);
}

static xray_status open_record(xr_actor_context *c, xr_err *err)
{
    c->record = c->ops->record(c->runtime, NULL);
    if (!c->record)
        return xr_fail(err, XRAY_E_BUG,
                       "the runtime's record returned no memory");
    xr_cancel_follow((const _Atomic uint32_t *)c->ops->notice(c->runtime));
    return XRAY_OK;
}

static void free_context(xr_actor_context *c)
{
    destroy_object(c);
    xr_cancel_follow(NULL);
    if (c->runtime)
        c->ops->destroy(c->runtime);
    for (size_t i = 0; i < XR_ACTOR_LETTERS; i++)
        xr_str_free(&c->values.out_str[i]);
    xr_pool_free(&c->pool);
    xr_str_free(&c->scratch);
    xr_inbox_free(&c->inbox);
    free(c->invokes);
    free(c->name);
    free(c->text);
    free(c);
}

xray_status xr_actor_serve(const xr_actor_class *const *classes, size_t count,
                           const xray_runtime_ops *ops, const xray_host *host,
                           const char *address, xr_err *err)
{
    ignore_signals();
    xr_actor_context *c = calloc(1, sizeof(*c));
    if (!c)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for the actor");
    c->own = c;
    xr_relay_init(&c->relay, host);
    c->ops = ops ? ops : &xr_local_runtime;
    xray_status status =
        c->ops->attach(&c->relay.host, address, &c->runtime, &c->parent);
    if (status)
        (void)xr_relay_error(&c->relay, status, "attach", err);
    else
        status = open_record(c, err);
    if (!status) {
        c->pool.ops = c->ops;
        c->pool.runtime = c->runtime;
        c->pool.relay = &c->relay;
        c->inbox.ops = c->ops;
        c->inbox.runtime = c->runtime;
        c->inbox.relay = &c->relay;
        status = serve_messages(c, classes, count, err);
    }
    free_context(c);
    return status;
}
