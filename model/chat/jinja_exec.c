/* SPDX-License-Identifier: Apache-2.0
 *
 * Executes the statements of a template.
 */
#include <stdlib.h>
#include <string.h>

#include "model/chat/jinja.h"

static int write_text(xm_jinterp *interp, const char *text, size_t size)
{
    xr_str *out = &interp->out->text;
    if (size > XM_CHAT_MAX_OUTPUT - out->size)
        return xm_jfail(interp, "the template writes more than %zu MiB",
                        XM_CHAT_MAX_OUTPUT >> 20);
    xr_str_append(out, text, size);
    return out->failed ? xm_jfail(interp, "out of memory")
                       : xm_jcount_work(interp, size / 64);
}

size_t xm_jbuffer_begin(xm_jinterp *interp)
{
    size_t mark = interp->out->text.size;
    if (!interp->nest++)
        interp->mark = mark;
    return mark;
}

int xm_jbuffer_end(xm_jinterp *interp, size_t mark, xm_jvalue *out)
{
    xr_str *text = &interp->out->text;
    interp->nest--;
    if (text->size == mark)
        return xm_jstr_borrow(interp, "", 0, 0, out);
    if (xm_jstr_copy(interp, text->data + mark, text->size - mark, out))
        return -1;
    text->size = mark;
    text->data[mark] = 0;
    return 0;
}

int xm_jset_variable(xm_jinterp *interp, uint32_t id, xm_jvalue value)
{
    xm_jscope *scope = interp->scope;
    if (!scope) {
        interp->globals[id] = value;
        return 0;
    }
    for (size_t i = 0; i < scope->count; i++)
        if (scope->at[i].id == id) {
            scope->at[i].value = value;
            return 0;
        }
    if (scope->count == scope->cap) {
        size_t cap = scope->cap ? 2 * scope->cap : 4;
        struct xm_jvar *at = xm_jalloc(interp, cap, sizeof *at);
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

static int look_up_namespace(const xm_jinterp *interp, uint32_t id,
                             xm_jvalue *out)
{
    for (const xm_jscope *s = interp->scope; s; s = s->up)
        for (size_t i = 0; i < s->count; i++)
            if (s->at[i].id == id) {
                *out = s->at[i].value;
                return out->kind == XM_J_NS;
            }
    *out = interp->globals[id];
    return out->kind == XM_J_NS;
}

static int assign_target(xm_jinterp *interp, const xm_jnode *target,
                         xm_jvalue value)
{
    if (target->type == XM_N_NAME)
        return xm_jset_variable(interp, target->id, value);
    if (target->type == XM_N_NSREF) {
        xm_jvalue space;
        if (!look_up_namespace(interp, target->id, &space))
            return xm_jfail(interp,
                            "'%.100s' is not a namespace, so it has no "
                            "attributes to set",
                            interp->tmpl->names[target->id]->text);
        if (target->value.u.str->text[0] == '_')
            return xm_jfail(interp,
                            "a namespace takes no attributes that start "
                            "with an underscore");
        return xm_jdict_put(interp, space.u.dict, target->value, value);
    }
    xm_jlist items;
    if (!xm_jis_iterable(value))
        return xm_jfail(interp, "cannot unpack non-iterable %s object",
                        xm_jtype_name(value));
    if (xm_jread_items(interp, value, &items))
        return -1;
    if (items.count < target->count)
        return xm_jfail(interp,
                        "not enough values to unpack (expected %zu, got %zu)",
                        target->count, items.count);
    if (items.count > target->count)
        return xm_jfail(interp, "too many values to unpack (expected %zu)",
                        target->count);
    for (size_t i = 0; i < items.count; i++)
        if (assign_target(interp, target->list[i], items.at[i]))
            return -1;
    return 0;
}

/* Keeps the items that satisfy the condition of the for statement. */
static int filter_loop_items(xm_jinterp *interp, const xm_jnode *node,
                             xm_jlist *items)
{
    xm_jscope *outer = interp->scope;
    xm_jscope scope = { .up = outer };
    xm_jlist kept = { 0 };
    int status = 0;
    interp->scope = &scope;
    for (size_t i = 0; !status && i < items->count; i++) {
        xm_jvalue keep;
        scope.count = 0;
        if (xm_jcount_work(interp, 1) ||
            assign_target(interp, node->a, items->at[i]) ||
            xm_jeval(interp, node->d, &keep))
            status = -1;
        else if (xm_jis_true(keep))
            status = xm_jlist_add(interp, &kept, items->at[i]);
    }
    interp->scope = outer;
    *items = kept;
    return status;
}

int xm_jexec_loop(xm_jinterp *interp, const xm_jnode *node, xm_jvalue value,
                  size_t depth)
{
    xm_jscope *outer = interp->scope;
    xm_jloop *loop = xm_jalloc(interp, 1, sizeof *loop);
    xm_jscope *scope = xm_jalloc(interp, 1, sizeof *scope);
    if (!loop || !scope || xm_jread_items(interp, value, &loop->items) ||
        (node->d && filter_loop_items(interp, node, &loop->items)))
        return -1;
    scope->up = outer;
    loop->depth = depth;
    loop->node = node->flags & XM_J_RECURSIVE ? node : NULL;
    loop->scope = outer;
    xm_jvalue self = xm_jvalue_of(XM_J_LOOP);
    self.u.loop = loop;
    int status = 0;
    int finished = 0;
    interp->scope = scope;
    for (; loop->at < loop->items.count && status != 1; loop->at++) {
        scope->count = 0;
        if (xm_jcount_work(interp, 1) ||
            assign_target(interp, node->a, loop->items.at[loop->at]) ||
            xm_jset_variable(interp, XM_J_ID_LOOP, self))
            status = -1;
        else
            status = xm_jexec(interp, node->c);
        if (status < 0)
            return -1;
        finished |= !status;
    }
    /* As in Jinja, else also runs if break or continue ended every
     * iteration. */
    if (!finished && node->e) {
        scope->count = 0;
        status = xm_jexec(interp, node->e);
        interp->scope = outer;
        return status;
    }
    interp->scope = outer;
    return 0;
}

static int exec_for_loop(xm_jinterp *interp, const xm_jnode *node)
{
    xm_jvalue value;
    if (xm_jeval(interp, node->b, &value))
        return -1;
    interp->line = node->line;
    return xm_jexec_loop(interp, node, value, 0);
}

static int exec_body(xm_jinterp *interp, const xm_jnode *node)
{
    for (size_t i = 0; i < node->count; i++) {
        int status = xm_jexec(interp, node->list[i]);
        if (status)
            return status;
    }
    return 0;
}

/* Executes a body in a scope of its own. */
static int exec_in_scope(xm_jinterp *interp, const xm_jnode *node)
{
    xm_jscope *scope = xm_jalloc(interp, 1, sizeof *scope);
    if (!scope)
        return -1;
    scope->up = interp->scope;
    interp->scope = scope;
    int status = xm_jexec(interp, node);
    interp->scope = scope->up;
    return status;
}

static int exec_if_chain(xm_jinterp *interp, const xm_jnode *node)
{
    for (size_t i = 0; i + 1 < node->count; i += 2) {
        xm_jvalue condition;
        if (xm_jeval(interp, node->list[i], &condition))
            return -1;
        if (xm_jis_true(condition))
            return xm_jexec(interp, node->list[i + 1]);
    }
    return node->c ? xm_jexec(interp, node->c) : 0;
}

static int write_value(xm_jinterp *interp, xm_jvalue value)
{
    if (value.kind == XM_J_STR)
        return write_text(interp, value.u.str->text, value.u.str->size);
    xm_jvalue text;
    if (xm_jto_str(interp, value, &text))
        return -1;
    return write_text(interp, text.u.str->text, text.u.str->size);
}

static int exec_output(xm_jinterp *interp, const xm_jnode *node)
{
    for (size_t i = 0; i < node->count; i++) {
        xm_jvalue value;
        if (xm_jeval(interp, node->list[i], &value) ||
            write_value(interp, value))
            return -1;
    }
    return 0;
}

/* Executes a body into a value and applies the filters to it. After a break or
 * continue, which is returned, the value is dropped. */
static int capture_body(xm_jinterp *interp, const xm_jnode *node,
                        xm_jvalue *out)
{
    size_t mark = xm_jbuffer_begin(interp);
    int status = exec_in_scope(interp, node->c);
    if (status < 0 || xm_jbuffer_end(interp, mark, out))
        return -1;
    if (!status && node->b) {
        xm_jvalue in = *out;
        if (xm_jeval_filters(interp, node->b, &in, out))
            return -1;
    }
    return status;
}

static int exec_assignment(xm_jinterp *interp, const xm_jnode *node)
{
    xm_jvalue value;
    if (node->type == XM_N_SET) {
        if (xm_jeval(interp, node->b, &value))
            return -1;
    } else {
        int status = capture_body(interp, node, &value);
        if (status)
            return status;
    }
    interp->line = node->line;
    return assign_target(interp, node->a, value);
}

static int exec_filter(xm_jinterp *interp, const xm_jnode *node)
{
    xm_jvalue value;
    int status = capture_body(interp, node, &value);
    return status ? status : write_value(interp, value);
}

static int make_macro(xm_jinterp *interp, const xm_jnode *node, xm_jvalue *out)
{
    xm_jmacro *macro = xm_jalloc(interp, 1, sizeof *macro);
    if (!macro)
        return -1;
    *macro = (xm_jmacro){ node, interp->scope };
    *out = xm_jvalue_of(XM_J_MACRO);
    out->u.macro = macro;
    return 0;
}

static int exec_macro(xm_jinterp *interp, const xm_jnode *node)
{
    xm_jvalue macro;
    return make_macro(interp, node, &macro) ||
                   xm_jset_variable(interp, node->id, macro)
               ? -1
               : 0;
}

static int exec_call(xm_jinterp *interp, const xm_jnode *node)
{
    xm_jvalue callee;
    xm_jvalue value;
    xm_jvalue name;
    xm_jvalue macro;
    xm_jargs args;
    if (xm_jeval(interp, node->a->a, &callee) ||
        xm_jeval_args(interp, node->a, &args) ||
        make_macro(interp, node->b, &macro) ||
        xm_jstr_borrow(interp, "caller", 6, 6, &name))
        return -1;
    xm_jdict named = { args.named, args.named_count, args.named_count };
    if (xm_jdict_put(interp, &named, name, macro))
        return -1;
    args.named = named.at;
    args.named_count = named.count;
    interp->line = node->line;
    return xm_jcall(interp, callee, &args, &value) || write_value(interp, value)
               ? -1
               : 0;
}

static int exec_with(xm_jinterp *interp, const xm_jnode *node)
{
    xm_jscope *outer = interp->scope;
    xm_jscope *scope = xm_jalloc(interp, 1, sizeof *scope);
    if (!scope)
        return -1;
    scope->up = outer;
    for (size_t i = 0; i + 1 < node->count; i += 2) {
        xm_jvalue value;
        /* Values are evaluated in the enclosing scope, so they do not see each
         * other. */
        interp->scope = outer;
        if (xm_jeval(interp, node->list[i + 1], &value))
            return -1;
        interp->scope = scope;
        if (assign_target(interp, node->list[i], value))
            return -1;
    }
    interp->scope = scope;
    int status = xm_jexec(interp, node->c);
    interp->scope = outer;
    return status;
}

static int add_generation_span(xm_jinterp *interp, size_t from, size_t to)
{
    xm_chat_text *out = interp->out;
    if (out->span_count == out->span_cap) {
        size_t cap = out->span_cap ? 2 * out->span_cap : 16;
        xm_chat_span *spans = realloc(out->spans, cap * sizeof *spans);
        if (!spans)
            return xm_jfail(interp, "out of memory");
        out->spans = spans;
        out->span_cap = cap;
    }
    out->spans[out->span_count++] = (xm_chat_span){ from, to };
    return 0;
}

/* Records the span of a generation block. Inside a buffer its offset in the
 * text is not known yet; as in transformers, the span then starts where the
 * outermost buffer began. */
static int exec_generation(xm_jinterp *interp, const xm_jnode *node)
{
    size_t begin = interp->out->text.size;
    size_t from = interp->nest ? interp->mark : begin;
    if (!interp->nest)
        interp->mark = begin;
    interp->nest++;
    int status = exec_in_scope(interp, node->c);
    interp->nest--;
    if (status < 0)
        return -1;
    return add_generation_span(interp, from,
                               from + interp->out->text.size - begin);
}

static int exec_node(xm_jinterp *interp, const xm_jnode *node)
{
    switch ((enum xm_jnode_type)node->type) {
    case XM_N_DATA:
        return write_text(interp, node->value.u.str->text,
                          node->value.u.str->size);
    case XM_N_OUTPUT:
        return exec_output(interp, node);
    case XM_N_BODY:
        return exec_body(interp, node);
    case XM_N_IF:
        return exec_if_chain(interp, node);
    case XM_N_FOR:
        return exec_for_loop(interp, node);
    case XM_N_SET:
    case XM_N_SETBLOCK:
        return exec_assignment(interp, node);
    case XM_N_MACRO:
        return exec_macro(interp, node);
    case XM_N_CALLBLOCK:
        return exec_call(interp, node);
    case XM_N_FILTERBLOCK:
        return exec_filter(interp, node);
    case XM_N_WITH:
        return exec_with(interp, node);
    case XM_N_GENERATION:
        return exec_generation(interp, node);
    case XM_N_BREAK:
        return 1;
    case XM_N_CONTINUE:
        return 2;
    default:
        return xm_jfail(interp, "this is not a statement");
    }
}

int xm_jexec(xm_jinterp *interp, const xm_jnode *node)
{
    interp->line = node->line;
    if (xm_jcount_work(interp, 1) || xm_jenter_level(interp))
        return -1;
    int status = exec_node(interp, node);
    xm_jleave_level(interp);
    return status;
}
