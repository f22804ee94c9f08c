/* SPDX-License-Identifier: Apache-2.0
 *
 * The statements of a template, executed.
 */
#include <stdlib.h>
#include <string.h>

#include "model/chat/jinja.h"

static int write_text(xm_jrun *run, const char *text, size_t size)
{
    xr_str *out = &run->out->text;
    if (size > XM_CHAT_MAX_OUTPUT - out->size)
        return xm_jfail(run, "the template writes more than %zu MiB",
                        XM_CHAT_MAX_OUTPUT >> 20);
    xr_str_append(out, text, size);
    return out->failed ? xm_jfail(run, "out of memory")
                       : xm_jwork(run, size / 64);
}

size_t xm_jbuffer(xm_jrun *run)
{
    size_t mark = run->out->text.size;
    if (!run->nest++)
        run->mark = mark;
    return mark;
}

int xm_jbuffered(xm_jrun *run, size_t mark, xm_jv *out)
{
    xr_str *text = &run->out->text;
    run->nest--;
    if (text->size == mark)
        return xm_jborrow(run, "", 0, 0, out);
    if (xm_jstring(run, text->data + mark, text->size - mark, out))
        return -1;
    text->size = mark;
    text->data[mark] = 0;
    return 0;
}

int xm_jset(xm_jrun *run, uint32_t id, xm_jv value)
{
    xm_jscope *scope = run->scope;
    if (!scope) {
        run->globals[id] = value;
        return 0;
    }
    for (size_t i = 0; i < scope->count; i++)
        if (scope->at[i].id == id) {
            scope->at[i].value = value;
            return 0;
        }
    if (scope->count == scope->cap) {
        size_t cap = scope->cap ? 2 * scope->cap : 4;
        struct xm_jvar *at = xm_jtake(run, cap, sizeof *at);
        if (!at)
            return -1;
        if (scope->count)
            memcpy(at, scope->at, scope->count * sizeof *at);
        scope->at = at;
        scope->cap = cap;
    }
    scope->at[scope->count++] = (struct xm_jvar){ id, value };
    return 0;
}

static int lookup_namespace(const xm_jrun *run, uint32_t id, xm_jv *out)
{
    for (const xm_jscope *s = run->scope; s; s = s->up)
        for (size_t i = 0; i < s->count; i++)
            if (s->at[i].id == id) {
                *out = s->at[i].value;
                return out->kind == XM_J_NS;
            }
    *out = run->globals[id];
    return out->kind == XM_J_NS;
}

static int assign(xm_jrun *run, const xm_jn *target, xm_jv value)
{
    if (target->type == XM_N_NAME)
        return xm_jset(run, target->id, value);
    if (target->type == XM_N_NSREF) {
        xm_jv space;
        if (!lookup_namespace(run, target->id, &space))
            return xm_jfail(run,
                            "'%.100s' is no namespace, so it has no "
                            "attributes to set",
                            run->tmpl->names[target->id]->text);
        if (target->value.u.str->text[0] == '_')
            return xm_jfail(run, "a namespace takes no attributes that start "
                                 "with an underscore");
        return xm_jdict_put(run, space.u.dict, target->value, value);
    }
    xm_jlist items;
    if (!xm_jiterable(value))
        return xm_jfail(run, "cannot unpack non-iterable %s object",
                        xm_jtypename(value));
    if (xm_jitems(run, value, &items))
        return -1;
    if (items.count < target->count)
        return xm_jfail(run,
                        "not enough values to unpack (expected %zu, got %zu)",
                        target->count, items.count);
    if (items.count > target->count)
        return xm_jfail(run, "too many values to unpack (expected %zu)",
                        target->count);
    for (size_t i = 0; i < items.count; i++)
        if (assign(run, target->list[i], items.at[i]))
            return -1;
    return 0;
}

/* The items that the for's own condition lets through. */
static int filtered(xm_jrun *run, const xm_jn *node, xm_jlist *items)
{
    xm_jscope *outer = run->scope;
    xm_jscope scope = { .up = outer };
    xm_jlist kept = { 0 };
    int status = 0;
    run->scope = &scope;
    for (size_t i = 0; !status && i < items->count; i++) {
        xm_jv keep;
        scope.count = 0;
        if (xm_jwork(run, 1) || assign(run, node->a, items->at[i]) ||
            xm_jeval(run, node->d, &keep))
            status = -1;
        else if (xm_jtruth(keep))
            status = xm_jlist_add(run, &kept, items->at[i]);
    }
    run->scope = outer;
    *items = kept;
    return status;
}

int xm_jrun_for(xm_jrun *run, const xm_jn *node, xm_jv value, size_t depth)
{
    xm_jscope *outer = run->scope;
    xm_jloop *loop = xm_jtake(run, 1, sizeof *loop);
    xm_jscope *scope = xm_jtake(run, 1, sizeof *scope);
    if (!loop || !scope || xm_jitems(run, value, &loop->items) ||
        (node->d && filtered(run, node, &loop->items)))
        return -1;
    scope->up = outer;
    loop->depth = depth;
    loop->node = node->flags & XM_J_RECURSIVE ? node : NULL;
    loop->scope = outer;
    xm_jv self = xm_jof(XM_J_LOOP);
    self.u.loop = loop;
    int status = 0;
    int finished = 0;
    run->scope = scope;
    for (; loop->at < loop->items.count && status != 1; loop->at++) {
        scope->count = 0;
        if (xm_jwork(run, 1) ||
            assign(run, node->a, loop->items.at[loop->at]) ||
            xm_jset(run, XM_J_ID_LOOP, self))
            status = -1;
        else
            status = xm_jexec(run, node->c);
        if (status < 0)
            return -1;
        finished |= !status;
    }
    /* As in Jinja, an iteration that is left early does not count. */
    if (!finished && node->e) {
        scope->count = 0;
        status = xm_jexec(run, node->e);
        run->scope = outer;
        return status;
    }
    run->scope = outer;
    return 0;
}

static int exec_for(xm_jrun *run, const xm_jn *node)
{
    xm_jv value;
    if (xm_jeval(run, node->b, &value))
        return -1;
    run->line = node->line;
    return xm_jrun_for(run, node, value, 0);
}

static int exec_body(xm_jrun *run, const xm_jn *node)
{
    for (size_t i = 0; i < node->count; i++) {
        int status = xm_jexec(run, node->list[i]);
        if (status)
            return status;
    }
    return 0;
}

/* A body within a scope of its own. */
static int exec_inner(xm_jrun *run, const xm_jn *node)
{
    xm_jscope *scope = xm_jtake(run, 1, sizeof *scope);
    if (!scope)
        return -1;
    scope->up = run->scope;
    run->scope = scope;
    int status = xm_jexec(run, node);
    run->scope = scope->up;
    return status;
}

static int exec_if(xm_jrun *run, const xm_jn *node)
{
    for (size_t i = 0; i + 1 < node->count; i += 2) {
        xm_jv condition;
        if (xm_jeval(run, node->list[i], &condition))
            return -1;
        if (xm_jtruth(condition))
            return xm_jexec(run, node->list[i + 1]);
    }
    return node->c ? xm_jexec(run, node->c) : 0;
}

static int write_value(xm_jrun *run, xm_jv value)
{
    if (value.kind == XM_J_STR)
        return write_text(run, value.u.str->text, value.u.str->size);
    xm_jv text;
    if (xm_jstr_of(run, value, &text))
        return -1;
    return write_text(run, text.u.str->text, text.u.str->size);
}

static int exec_output(xm_jrun *run, const xm_jn *node)
{
    for (size_t i = 0; i < node->count; i++) {
        xm_jv value;
        if (xm_jeval(run, node->list[i], &value) || write_value(run, value))
            return -1;
    }
    return 0;
}

/* A body into a value, through filters. Nothing jumps out of it but within the
 * loop around, which the value does not outlive. */
static int captured(xm_jrun *run, const xm_jn *node, xm_jv *out)
{
    size_t mark = xm_jbuffer(run);
    int status = exec_inner(run, node->c);
    if (status < 0 || xm_jbuffered(run, mark, out))
        return -1;
    if (!status && node->b) {
        xm_jv in = *out;
        if (xm_jfilters(run, node->b, &in, out))
            return -1;
    }
    return status;
}

static int exec_set(xm_jrun *run, const xm_jn *node)
{
    xm_jv value;
    if (node->type == XM_N_SET) {
        if (xm_jeval(run, node->b, &value))
            return -1;
    } else {
        int status = captured(run, node, &value);
        if (status)
            return status;
    }
    run->line = node->line;
    return assign(run, node->a, value);
}

static int exec_filter(xm_jrun *run, const xm_jn *node)
{
    xm_jv value;
    int status = captured(run, node, &value);
    return status ? status : write_value(run, value);
}

static int new_macro(xm_jrun *run, const xm_jn *node, xm_jv *out)
{
    xm_jmacro *macro = xm_jtake(run, 1, sizeof *macro);
    if (!macro)
        return -1;
    *macro = (xm_jmacro){ node, run->scope };
    *out = xm_jof(XM_J_MACRO);
    out->u.macro = macro;
    return 0;
}

static int exec_macro(xm_jrun *run, const xm_jn *node)
{
    xm_jv macro;
    return new_macro(run, node, &macro) || xm_jset(run, node->id, macro) ? -1
                                                                         : 0;
}

static int exec_call(xm_jrun *run, const xm_jn *node)
{
    xm_jv callee;
    xm_jv value;
    xm_jv name;
    xm_jv macro;
    xm_jargs args;
    if (xm_jeval(run, node->a->a, &callee) ||
        xm_jeval_args(run, node->a, &args) || new_macro(run, node->b, &macro) ||
        xm_jborrow(run, "caller", 6, 6, &name))
        return -1;
    xm_jdict named = { args.named, args.named_count, args.named_count };
    if (xm_jdict_put(run, &named, name, macro))
        return -1;
    args.named = named.at;
    args.named_count = named.count;
    run->line = node->line;
    return xm_jcall(run, callee, &args, &value) || write_value(run, value) ? -1
                                                                           : 0;
}

static int exec_with(xm_jrun *run, const xm_jn *node)
{
    xm_jscope *outer = run->scope;
    xm_jscope *scope = xm_jtake(run, 1, sizeof *scope);
    if (!scope)
        return -1;
    scope->up = outer;
    for (size_t i = 0; i + 1 < node->count; i += 2) {
        xm_jv value;
        /* Values see what is around, not each other. */
        run->scope = outer;
        if (xm_jeval(run, node->list[i + 1], &value))
            return -1;
        run->scope = scope;
        if (assign(run, node->list[i], value))
            return -1;
    }
    run->scope = scope;
    int status = xm_jexec(run, node->c);
    run->scope = outer;
    return status;
}

static int add_span(xm_jrun *run, size_t from, size_t to)
{
    xm_chat_text *out = run->out;
    if (out->span_count == out->span_cap) {
        size_t cap = out->span_cap ? 2 * out->span_cap : 16;
        xm_chat_span *spans = realloc(out->spans, cap * sizeof *spans);
        if (!spans)
            return xm_jfail(run, "out of memory");
        out->spans = spans;
        out->span_cap = cap;
    }
    out->spans[out->span_count++] = (xm_chat_span){ from, to };
    return 0;
}

/* Where it stands within another buffer its place in the text is not known:
 * it counts from where that buffer began, as in transformers. */
static int exec_generation(xm_jrun *run, const xm_jn *node)
{
    size_t begin = run->out->text.size;
    size_t from = run->nest ? run->mark : begin;
    if (!run->nest)
        run->mark = begin;
    run->nest++;
    int status = exec_inner(run, node->c);
    run->nest--;
    if (status < 0)
        return -1;
    return add_span(run, from, from + run->out->text.size - begin);
}

static int exec(xm_jrun *run, const xm_jn *node)
{
    switch ((enum xm_jtype)node->type) {
    case XM_N_DATA:
        return write_text(run, node->value.u.str->text,
                          node->value.u.str->size);
    case XM_N_OUTPUT:
        return exec_output(run, node);
    case XM_N_BODY:
        return exec_body(run, node);
    case XM_N_IF:
        return exec_if(run, node);
    case XM_N_FOR:
        return exec_for(run, node);
    case XM_N_SET:
    case XM_N_SETBLOCK:
        return exec_set(run, node);
    case XM_N_MACRO:
        return exec_macro(run, node);
    case XM_N_CALLBLOCK:
        return exec_call(run, node);
    case XM_N_FILTERBLOCK:
        return exec_filter(run, node);
    case XM_N_WITH:
        return exec_with(run, node);
    case XM_N_GENERATION:
        return exec_generation(run, node);
    case XM_N_BREAK:
        return 1;
    case XM_N_CONTINUE:
        return 2;
    default:
        return xm_jfail(run, "this is no statement");
    }
}

int xm_jexec(xm_jrun *run, const xm_jn *node)
{
    run->line = node->line;
    if (xm_jwork(run, 1) || xm_jenter(run))
        return -1;
    int status = exec(run, node);
    xm_jleave(run);
    return status;
}
