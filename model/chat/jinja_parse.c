/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses the statements of a template and compiles it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat/jinja_lex.h"

int xm_jfail_syntax(xm_jparser *p, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    p->interp->line = p->token->line;
    return xm_jfail(p->interp, "%s", text);
}

xm_jnode *xm_jnode_new(xm_jparser *p, enum xm_jnode_type type)
{
    xm_jnode *node = xm_jalloc(p->interp, 1, sizeof *node);
    if (!node)
        return NULL;
    node->type = (uint8_t)type;
    node->line = p->token->line;
    return node;
}

static void raise_depth(xm_jnode *node, const xm_jnode *child)
{
    if (child && child->depth >= node->depth)
        node->depth = child->depth + 1;
}

xm_jnode *xm_jnode_done(xm_jparser *p, xm_jnode *node)
{
    raise_depth(node, node->a);
    raise_depth(node, node->b);
    raise_depth(node, node->c);
    raise_depth(node, node->d);
    raise_depth(node, node->e);
    raise_depth(node, node->star);
    raise_depth(node, node->stars);
    for (size_t i = 0; i < node->count; i++)
        raise_depth(node, node->list[i]);
    for (size_t i = 0; i < node->named_count; i++)
        raise_depth(node, node->named[i]);
    if (node->depth <= 2 * XM_CHAT_MAX_NESTING)
        return node;
    (void)xm_jfail_syntax(p, "an expression is nested too deeply");
    return NULL;
}

int xm_jis_name(const xm_jtoken *token, const char *name)
{
    return token->type == XM_T_NAME && token->size == strlen(name) &&
           !memcmp(token->text, name, token->size);
}

int xm_jskip_token(xm_jparser *p, enum xm_jtoken_type type)
{
    if (p->token->type != type)
        return 0;
    p->token++;
    return 1;
}

int xm_jskip_name(xm_jparser *p, const char *name)
{
    if (!xm_jis_name(p->token, name))
        return 0;
    p->token++;
    return 1;
}

int xm_jexpect_token(xm_jparser *p, enum xm_jtoken_type type)
{
    static const char *const names[] = {
        [XM_T_BLOCK_END] = "the end of the tag",
        [XM_T_VAR_END] = "the end of the print",
        [XM_T_NAME] = "a name",
        [XM_T_COMMA] = "','",
        [XM_T_COLON] = "':'",
        [XM_T_ASSIGN] = "'='",
        [XM_T_LPAREN] = "'('",
        [XM_T_RPAREN] = "')'",
        [XM_T_RBRACKET] = "']'",
        [XM_T_RBRACE] = "'}'",
    };
    if (xm_jskip_token(p, type))
        return 1;
    if (p->token->type == XM_T_EOF)
        (void)xm_jfail_syntax(p, "the template ends where %s was expected",
                              names[type]);
    else
        (void)xm_jfail_syntax(p, "expected %s, got '%.*s'", names[type],
                              (int)(p->token->size < 60 ? p->token->size : 60),
                              p->token->text);
    return 0;
}

int xm_jnode_add(xm_jparser *p, xm_jnode *node, xm_jnode *child)
{
    if (!child)
        return 0;
    /* Capacities are powers of two, so the list is full if the count is one. */
    if (!(node->count & (node->count - 1))) {
        size_t cap = node->count ? 2 * node->count : 1;
        xm_jnode **list = xm_jalloc(p->interp, cap, sizeof *list);
        if (!list)
            return 0;
        if (node->count)
            memcpy(list, node->list, node->count * sizeof *list);
        node->list = list;
    }
    node->list[node->count++] = child;
    return 1;
}

int xm_jintern_name(xm_jparser *p, const char *text, size_t size, uint32_t *out)
{
    xm_jtemplate *t = p->tmpl;
    for (size_t i = 0; i < t->name_count; i++)
        if (t->names[i]->size == size &&
            !memcmp(t->names[i]->text, text, size)) {
            *out = (uint32_t)i;
            return 0;
        }
    if (t->name_count == t->name_cap) {
        size_t cap = t->name_cap ? 2 * t->name_cap : 32;
        const xm_jstr **names = xm_jalloc(p->interp, cap, sizeof *names);
        if (!names || cap > 1024)
            return xm_jfail(p->interp, "more than 1024 names");
        if (t->name_count)
            memcpy(names, t->names, t->name_count * sizeof *names);
        t->names = names;
        t->name_cap = cap;
    }
    xm_jvalue name;
    if (xm_jstr_copy(p->interp, text, size, &name))
        return -1;
    *out = (uint32_t)t->name_count;
    t->names[t->name_count++] = name.u.str;
    return 0;
}

static xm_jnode *parse_body(xm_jparser *p, const char *const *ends);

/* Parses the rest of the opening tag, then statements up to a tag of `ends`,
 * and stops at that tag's name. */
static xm_jnode *parse_block(xm_jparser *p, const char *const *ends)
{
    (void)xm_jskip_token(p, XM_T_COLON);
    if (!xm_jexpect_token(p, XM_T_BLOCK_END))
        return NULL;
    if (++p->depth > XM_CHAT_MAX_NESTING) {
        (void)xm_jfail_syntax(p, "blocks are nested too deeply");
        return NULL;
    }
    xm_jnode *node = parse_body(p, ends);
    p->depth--;
    if (node && p->token->type == XM_T_EOF) {
        (void)xm_jfail_syntax(p, "the template ends where '%s' was expected",
                              ends[0]);
        return NULL;
    }
    return node;
}

/* Parses the filters that are applied to a block. Unknown ones fail at once,
 * within an if too. */
static xm_jnode *parse_block_filters(xm_jparser *p, int inline_first)
{
    int soft = p->soft;
    p->soft = 0;
    xm_jnode *node = xm_jparse_filters(p, NULL, inline_first);
    p->soft = soft;
    return node;
}

/* Parses a block with one possible end and consumes that end. Unknown filters
 * inside fail at once. */
static xm_jnode *parse_inner_block(xm_jparser *p, const char *end)
{
    const char *const ends[] = { end, NULL };
    int soft = p->soft;
    p->soft = 0;
    xm_jnode *node = parse_block(p, ends);
    p->soft = soft;
    if (node)
        p->token++;
    return node;
}

static xm_jnode *parse_for(xm_jparser *p)
{
    static const char *const ends[] = { "endfor", "else", NULL };
    xm_jnode *node = xm_jnode_new(p, XM_N_FOR);
    int soft = p->soft;
    p->token++;
    p->fors++;
    if (!node || !(node->a = xm_jparse_target(p, 0, "in")))
        return NULL;
    if (!xm_jskip_name(p, "in")) {
        (void)xm_jfail_syntax(p, "expected 'in'");
        return NULL;
    }
    if (!(node->b = xm_jparse_tuple(p, 0, "recursive", 0)))
        return NULL;
    p->soft = 0;
    if (xm_jskip_name(p, "if") && !(node->d = xm_jparse_expression(p, 1)))
        return NULL;
    if (xm_jskip_name(p, "recursive"))
        node->flags |= XM_J_RECURSIVE;
    p->loops++;
    if (!(node->c = parse_block(p, ends)))
        return NULL;
    p->loops--;
    if (xm_jskip_name(p, "else")) {
        if (!(node->e = parse_inner_block(p, "endfor")))
            return NULL;
    } else {
        p->token++;
    }
    p->fors--;
    p->soft = soft;
    return xm_jnode_done(p, node);
}

static xm_jnode *parse_if(xm_jparser *p)
{
    static const char *const ends[] = { "endif", "elif", "else", NULL };
    static const char *const last[] = { "endif", NULL };
    xm_jnode *node = xm_jnode_new(p, XM_N_IF);
    int soft = p->soft;
    p->soft = 1;
    p->token++;
    for (;;) {
        if (!node || !xm_jnode_add(p, node, xm_jparse_tuple(p, 0, NULL, 0)) ||
            !xm_jnode_add(p, node, parse_block(p, ends)))
            return NULL;
        if (!xm_jskip_name(p, "elif"))
            break;
    }
    if (xm_jskip_name(p, "else") && !(node->c = parse_block(p, last)))
        return NULL;
    p->token++;
    p->soft = soft;
    return xm_jnode_done(p, node);
}

static xm_jnode *parse_set(xm_jparser *p)
{
    xm_jnode *node = xm_jnode_new(p, XM_N_SET);
    p->token++;
    if (!node || !(node->a = xm_jparse_target(p, 1, NULL)))
        return NULL;
    if (xm_jskip_token(p, XM_T_ASSIGN)) {
        node->b = xm_jparse_tuple(p, 1, NULL, 0);
        return node->b ? xm_jnode_done(p, node) : NULL;
    }
    node->type = XM_N_SETBLOCK;
    if (p->token->type == XM_T_PIPE && !(node->b = parse_block_filters(p, 0)))
        return NULL;
    node->c = parse_inner_block(p, "endset");
    return node->c ? xm_jnode_done(p, node) : NULL;
}

static int parse_signature(xm_jparser *p, xm_jnode *macro)
{
    int defaults = 0;
    if (!xm_jexpect_token(p, XM_T_LPAREN))
        return 0;
    while (p->token->type != XM_T_RPAREN) {
        if (macro->count && !xm_jexpect_token(p, XM_T_COMMA))
            return 0;
        xm_jnode *param = xm_jnode_new(p, XM_N_PARAM);
        xm_jnode *name = xm_jparse_name_target(p);
        if (!param || !name)
            return 0;
        if (name->type != XM_N_NAME) {
            (void)xm_jfail_syntax(p, "this cannot be assigned to");
            return 0;
        }
        param->id = name->id;
        if (xm_jskip_token(p, XM_T_ASSIGN)) {
            defaults = 1;
            if (!(param->a = xm_jparse_expression(p, 1)))
                return 0;
        } else if (defaults) {
            (void)xm_jfail_syntax(
                p, "a parameter without a default follows one with a default");
            return 0;
        }
        if (!xm_jnode_add(p, macro, xm_jnode_done(p, param)))
            return 0;
    }
    return xm_jexpect_token(p, XM_T_RPAREN);
}

/* A parameter of the name of a special variable is an ordinary one; caller must
 * have a default then, as in Jinja2. */
static int keep_own_params(xm_jparser *p, xm_jnode *macro)
{
    for (size_t i = 0; i < macro->count; i++) {
        uint32_t id = macro->list[i]->id;
        unsigned special = id == XM_J_ID_CALLER    ? XM_J_CALLER
                           : id == XM_J_ID_KWARGS  ? XM_J_KWARGS
                           : id == XM_J_ID_VARARGS ? XM_J_VARARGS
                                                   : 0;
        if (special & macro->flags & XM_J_CALLER && !macro->list[i]->a) {
            p->interp->line = macro->line;
            return xm_jfail(p->interp,
                            "the parameter caller of a macro needs a default");
        }
        macro->flags &= (uint8_t)~special;
    }
    return 0;
}

/* Parses the body of a macro, in which break and continue do not affect the
 * enclosing loops. */
static xm_jnode *parse_macro_body(xm_jparser *p, xm_jnode *macro,
                                  const char *end)
{
    struct xm_jspecial special = { p->macro, 0 };
    uint32_t loops = p->loops;
    p->loops = 0;
    p->macro = &special;
    macro->c = parse_inner_block(p, end);
    p->macro = special.up;
    p->loops = loops;
    macro->flags = special.flags;
    return macro->c && !keep_own_params(p, macro) ? xm_jnode_done(p, macro)
                                                  : NULL;
}

static xm_jnode *parse_macro(xm_jparser *p)
{
    xm_jnode *node = xm_jnode_new(p, XM_N_MACRO);
    p->token++;
    const xm_jtoken *token = p->token;
    xm_jnode *name = xm_jparse_name_target(p);
    if (!node || !name)
        return NULL;
    if (name->type != XM_N_NAME) {
        (void)xm_jfail_syntax(p, "this cannot be assigned to");
        return NULL;
    }
    node->id = name->id;
    if (xm_jstr_copy(p->interp, token->text, token->size, &node->value) ||
        !parse_signature(p, node))
        return NULL;
    return parse_macro_body(p, node, "endmacro");
}

static xm_jnode *parse_call(xm_jparser *p)
{
    xm_jnode *node = xm_jnode_new(p, XM_N_CALLBLOCK);
    xm_jnode *macro = xm_jnode_new(p, XM_N_MACRO);
    p->token++;
    if (!node || !macro)
        return NULL;
    if (p->token->type == XM_T_LPAREN && !parse_signature(p, macro))
        return NULL;
    if (!(node->a = xm_jparse_expression(p, 1)))
        return NULL;
    if (node->a->type != XM_N_CALL) {
        (void)xm_jfail_syntax(p, "a call block needs a call");
        return NULL;
    }
    node->b = parse_macro_body(p, macro, "endcall");
    return node->b ? xm_jnode_done(p, node) : NULL;
}

static xm_jnode *parse_filter(xm_jparser *p)
{
    xm_jnode *node = xm_jnode_new(p, XM_N_FILTERBLOCK);
    p->token++;
    if (!node || !(node->b = parse_block_filters(p, 1)))
        return NULL;
    node->c = parse_inner_block(p, "endfilter");
    return node->c ? xm_jnode_done(p, node) : NULL;
}

static xm_jnode *parse_with(xm_jparser *p)
{
    xm_jnode *node = xm_jnode_new(p, XM_N_WITH);
    p->token++;
    while (node && p->token->type != XM_T_BLOCK_END) {
        if (node->count && !xm_jexpect_token(p, XM_T_COMMA))
            return NULL;
        if (!xm_jnode_add(p, node, xm_jparse_target(p, 0, NULL)) ||
            !xm_jexpect_token(p, XM_T_ASSIGN) ||
            !xm_jnode_add(p, node, xm_jparse_expression(p, 1)))
            return NULL;
    }
    if (!node)
        return NULL;
    node->c = parse_inner_block(p, "endwith");
    return node->c ? xm_jnode_done(p, node) : NULL;
}

static xm_jnode *parse_print(xm_jparser *p)
{
    xm_jnode *node = xm_jnode_new(p, XM_N_OUTPUT);
    p->token++;
    while (node && p->token->type != XM_T_BLOCK_END) {
        if (node->count && !xm_jexpect_token(p, XM_T_COMMA))
            return NULL;
        if (!xm_jnode_add(p, node, xm_jparse_expression(p, 1)))
            return NULL;
    }
    return node ? xm_jnode_done(p, node) : NULL;
}

/* The body is parsed as a macro's, so variables set inside do not leave it. */
static xm_jnode *parse_generation(xm_jparser *p)
{
    xm_jnode *node = xm_jnode_new(p, XM_N_GENERATION);
    xm_jnode *macro = xm_jnode_new(p, XM_N_MACRO);
    p->token++;
    if (!node || !macro || !parse_macro_body(p, macro, "endgeneration"))
        return NULL;
    p->tmpl->has_generation = 1;
    node->c = macro->c;
    return xm_jnode_done(p, node);
}

static xm_jnode *parse_jump(xm_jparser *p)
{
    enum xm_jnode_type type =
        xm_jis_name(p->token, "break") ? XM_N_BREAK : XM_N_CONTINUE;
    if (!p->loops) {
        (void)xm_jfail_syntax(p, "'%s' outside of a loop",
                              type == XM_N_BREAK ? "break" : "continue");
        return NULL;
    }
    xm_jnode *node = xm_jnode_new(p, type);
    p->token++;
    return node;
}

static xm_jnode *refuse_tag(xm_jparser *p)
{
    static const char *const refused[] = { "include", "import", "from",
                                           "extends", "block",  "autoescape",
                                           "do",      "trans" };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (xm_jis_name(p->token, refused[i])) {
            (void)xm_jfail_syntax(p, "'%s' is not supported in a chat template",
                                  refused[i]);
            return NULL;
        }
    (void)xm_jfail_syntax(p, "unknown tag '%.*s'",
                          (int)(p->token->size < 60 ? p->token->size : 60),
                          p->token->text);
    return NULL;
}

static xm_jnode *parse_statement(xm_jparser *p)
{
    static const struct {
        const char *name;
        xm_jnode *(*parse)(xm_jparser *p);
    } statements[] = {
        { "for", parse_for },
        { "if", parse_if },
        { "set", parse_set },
        { "macro", parse_macro },
        { "call", parse_call },
        { "filter", parse_filter },
        { "with", parse_with },
        { "print", parse_print },
        { "generation", parse_generation },
        { "break", parse_jump },
        { "continue", parse_jump },
    };
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++)
        if (xm_jis_name(p->token, statements[i].name)) {
            xm_jnode *node = statements[i].parse(p);
            return node && xm_jexpect_token(p, XM_T_BLOCK_END) ? node : NULL;
        }
    if (p->token->type == XM_T_NAME)
        return refuse_tag(p);
    (void)xm_jfail_syntax(p, "a tag needs a name");
    return NULL;
}

static xm_jnode *parse_output(xm_jparser *p)
{
    xm_jnode *node = xm_jnode_new(p, XM_N_OUTPUT);
    p->token++;
    if (!node || !xm_jnode_add(p, node, xm_jparse_tuple(p, 1, NULL, 0)) ||
        !xm_jexpect_token(p, XM_T_VAR_END))
        return NULL;
    return xm_jnode_done(p, node);
}

static int is_block_end(const xm_jparser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (xm_jis_name(p->token, *ends))
            return 1;
    return 0;
}

static xm_jnode *parse_body(xm_jparser *p, const char *const *ends)
{
    xm_jnode *node = xm_jnode_new(p, XM_N_BODY);
    while (node && p->token->type != XM_T_EOF) {
        xm_jnode *child = NULL;
        if (p->token->type == XM_T_DATA) {
            child = xm_jnode_new(p, XM_N_DATA);
            if (child)
                child->value = p->token->value;
            p->token++;
        } else if (p->token->type == XM_T_VAR_BEGIN) {
            child = parse_output(p);
        } else {
            p->token++;
            if (is_block_end(p, ends))
                break;
            child = parse_statement(p);
        }
        if (!xm_jnode_add(p, node, child))
            return NULL;
    }
    return node ? xm_jnode_done(p, node) : NULL;
}

/* Turns newlines of every kind into "\n" and drops the last one. */
static void normalize_newlines(xm_jtemplate *tmpl)
{
    char *to = tmpl->source;
    const char *end = to + tmpl->source_size;
    for (const char *from = to; from < end; from++) {
        if (*from == '\r') {
            *to++ = '\n';
            from += from + 1 < end && from[1] == '\n';
        } else {
            *to++ = *from;
        }
    }
    if (to > tmpl->source && to[-1] == '\n')
        to--;
    *to = 0;
    tmpl->source_size = (size_t)(to - tmpl->source);
}

int xm_jcompile(xm_jtemplate *tmpl, xm_jinterp *interp)
{
    xm_jtokens tokens = { 0 };
    normalize_newlines(tmpl);
    int status = xm_jtokenize(interp, tmpl->source, tmpl->source_size, &tokens);
    if (!status) {
        xm_jparser p = { .tmpl = tmpl, .interp = interp, .token = tokens.at };
        static const char *const fixed[] = { "loop", "caller", "kwargs",
                                             "varargs" };
        uint32_t id;
        for (size_t i = 0; !status && i < sizeof fixed / sizeof fixed[0]; i++)
            status = xm_jintern_name(&p, fixed[i], strlen(fixed[i]), &id);
        tmpl->body = status ? NULL : parse_body(&p, NULL);
        status = tmpl->body ? 0 : -1;
    }
    free(tokens.at);
    return status;
}
