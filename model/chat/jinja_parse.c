/* SPDX-License-Identifier: Apache-2.0
 *
 * Statements of a template, and its compilation.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat/jinja_lex.h"

int xm_jsyntax(xm_jparser *p, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    p->run->line = p->token->line;
    return xm_jfail(p->run, "%s", text);
}

xm_jn *xm_jnode(xm_jparser *p, enum xm_jtype type)
{
    xm_jn *node = xm_jtake(p->run, 1, sizeof *node);
    if (!node)
        return NULL;
    node->type = (uint8_t)type;
    node->line = p->token->line;
    return node;
}

static void deeper(xm_jn *node, const xm_jn *child)
{
    if (child && child->depth >= node->depth)
        node->depth = child->depth + 1;
}

xm_jn *xm_jdone(xm_jparser *p, xm_jn *node)
{
    deeper(node, node->a);
    deeper(node, node->b);
    deeper(node, node->c);
    deeper(node, node->d);
    deeper(node, node->e);
    deeper(node, node->star);
    deeper(node, node->stars);
    for (size_t i = 0; i < node->count; i++)
        deeper(node, node->list[i]);
    for (size_t i = 0; i < node->named_count; i++)
        deeper(node, node->named[i]);
    if (node->depth <= 2 * XM_CHAT_MAX_NESTING)
        return node;
    (void)xm_jsyntax(p, "an expression nests too deep");
    return NULL;
}

int xm_jis_name(const xm_jtoken *token, const char *name)
{
    return token->type == XM_T_NAME && token->size == strlen(name) &&
           !memcmp(token->text, name, token->size);
}

int xm_jskip(xm_jparser *p, enum xm_jtoken_type type)
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

int xm_jexpect(xm_jparser *p, enum xm_jtoken_type type)
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
    if (xm_jskip(p, type))
        return 1;
    if (p->token->type == XM_T_EOF)
        (void)xm_jsyntax(p, "the template ends where %s was expected",
                         names[type]);
    else
        (void)xm_jsyntax(p, "expected %s, got '%.*s'", names[type],
                         (int)(p->token->size < 60 ? p->token->size : 60),
                         p->token->text);
    return 0;
}

int xm_jadd(xm_jparser *p, xm_jn *node, xm_jn *child)
{
    if (!child)
        return 0;
    /* Capacities are powers of two: full when the count is one. */
    if (!(node->count & (node->count - 1))) {
        size_t cap = node->count ? 2 * node->count : 1;
        xm_jn **list = xm_jtake(p->run, cap, sizeof *list);
        if (!list)
            return 0;
        if (node->count)
            memcpy(list, node->list, node->count * sizeof *list);
        node->list = list;
    }
    node->list[node->count++] = child;
    return 1;
}

int xm_jname_id(xm_jparser *p, const char *text, size_t size, uint32_t *out)
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
        const xm_jstr **names = xm_jtake(p->run, cap, sizeof *names);
        if (!names || cap > 1024)
            return xm_jfail(p->run, "more than 1024 names");
        if (t->name_count)
            memcpy(names, t->names, t->name_count * sizeof *names);
        t->names = names;
        t->name_cap = cap;
    }
    xm_jv name;
    if (xm_jstring(p->run, text, size, &name))
        return -1;
    *out = (uint32_t)t->name_count;
    t->names[t->name_count++] = name.u.str;
    return 0;
}

static xm_jn *body(xm_jparser *p, const char *const *ends);

/* The rest of the opening tag, then statements up to one of `ends`, at whose
 * name the parser stops. */
static xm_jn *block(xm_jparser *p, const char *const *ends)
{
    (void)xm_jskip(p, XM_T_COLON);
    if (!xm_jexpect(p, XM_T_BLOCK_END))
        return NULL;
    if (++p->depth > XM_CHAT_MAX_NESTING) {
        (void)xm_jsyntax(p, "blocks nest too deep");
        return NULL;
    }
    xm_jn *node = body(p, ends);
    p->depth--;
    if (node && p->token->type == XM_T_EOF) {
        (void)xm_jsyntax(p, "the template ends where '%s' was expected",
                         ends[0]);
        return NULL;
    }
    return node;
}

/* block() that eats the single end, with inner filters checked at once. */
static xm_jn *whole(xm_jparser *p, const char *end)
{
    const char *const ends[] = { end, NULL };
    int soft = p->soft;
    p->soft = 0;
    xm_jn *node = block(p, ends);
    p->soft = soft;
    if (node)
        p->token++;
    return node;
}

static xm_jn *parse_for(xm_jparser *p)
{
    static const char *const ends[] = { "endfor", "else", NULL };
    xm_jn *node = xm_jnode(p, XM_N_FOR);
    int soft = p->soft;
    p->token++;
    p->fors++;
    if (!node || !(node->a = xm_jtarget(p, 0, "in")))
        return NULL;
    if (!xm_jskip_name(p, "in")) {
        (void)xm_jsyntax(p, "expected 'in'");
        return NULL;
    }
    if (!(node->b = xm_jtuple(p, 0, "recursive", 0)))
        return NULL;
    p->soft = 0;
    if (xm_jskip_name(p, "if") && !(node->d = xm_jexpression(p, 1)))
        return NULL;
    if (xm_jskip_name(p, "recursive"))
        node->flags |= XM_J_RECURSIVE;
    p->loops++;
    if (!(node->c = block(p, ends)))
        return NULL;
    p->loops--;
    if (xm_jskip_name(p, "else")) {
        if (!(node->e = whole(p, "endfor")))
            return NULL;
    } else {
        p->token++;
    }
    p->fors--;
    p->soft = soft;
    return xm_jdone(p, node);
}

static xm_jn *parse_if(xm_jparser *p)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL };
    static const char *const last[] = { "endif", NULL };
    xm_jn *node = xm_jnode(p, XM_N_IF);
    int soft = p->soft;
    p->soft = 1;
    p->token++;
    for (;;) {
        if (!node || !xm_jadd(p, node, xm_jtuple(p, 0, NULL, 0)) ||
            !xm_jadd(p, node, block(p, ends)))
            return NULL;
        if (!xm_jskip_name(p, "elif"))
            break;
    }
    if (xm_jskip_name(p, "else") && !(node->c = block(p, last)))
        return NULL;
    p->token++;
    p->soft = soft;
    return xm_jdone(p, node);
}

static xm_jn *parse_set(xm_jparser *p)
{
    xm_jn *node = xm_jnode(p, XM_N_SET);
    p->token++;
    if (!node || !(node->a = xm_jtarget(p, 1, NULL)))
        return NULL;
    if (xm_jskip(p, XM_T_ASSIGN)) {
        node->b = xm_jtuple(p, 1, NULL, 0);
        return node->b ? xm_jdone(p, node) : NULL;
    }
    node->type = XM_N_SETBLOCK;
    if (p->token->type == XM_T_PIPE &&
        !(node->b = xm_jfilter_chain(p, NULL, 0)))
        return NULL;
    node->c = whole(p, "endset");
    return node->c ? xm_jdone(p, node) : NULL;
}

static int signature(xm_jparser *p, xm_jn *macro)
{
    int defaults = 0;
    if (!xm_jexpect(p, XM_T_LPAREN))
        return 0;
    while (p->token->type != XM_T_RPAREN) {
        if (macro->count && !xm_jexpect(p, XM_T_COMMA))
            return 0;
        xm_jn *param = xm_jnode(p, XM_N_PARAM);
        xm_jn *name = xm_jname_target(p);
        if (!param || !name)
            return 0;
        if (name->type != XM_N_NAME) {
            (void)xm_jsyntax(p, "this cannot be assigned to");
            return 0;
        }
        param->id = name->id;
        if (xm_jskip(p, XM_T_ASSIGN)) {
            defaults = 1;
            if (!(param->a = xm_jexpression(p, 1)))
                return 0;
        } else if (defaults) {
            (void)xm_jsyntax(
                p, "a parameter without a default follows one that has one");
            return 0;
        }
        if (!xm_jadd(p, macro, xm_jdone(p, param)))
            return 0;
    }
    return xm_jexpect(p, XM_T_RPAREN);
}

/* A macro's body, where break and continue do not reach the loops around. */
static xm_jn *macro_body(xm_jparser *p, xm_jn *macro, const char *end)
{
    struct xm_jspecial special = { p->macro, 0 };
    uint32_t loops = p->loops;
    p->loops = 0;
    p->macro = &special;
    macro->c = whole(p, end);
    p->macro = special.up;
    p->loops = loops;
    macro->flags = special.flags;
    return macro->c ? xm_jdone(p, macro) : NULL;
}

static xm_jn *parse_macro(xm_jparser *p)
{
    xm_jn *node = xm_jnode(p, XM_N_MACRO);
    p->token++;
    const xm_jtoken *token = p->token;
    xm_jn *name = xm_jname_target(p);
    if (!node || !name)
        return NULL;
    if (name->type != XM_N_NAME) {
        (void)xm_jsyntax(p, "this cannot be assigned to");
        return NULL;
    }
    node->id = name->id;
    if (xm_jstring(p->run, token->text, token->size, &node->value) ||
        !signature(p, node))
        return NULL;
    return macro_body(p, node, "endmacro");
}

static xm_jn *parse_call(xm_jparser *p)
{
    xm_jn *node = xm_jnode(p, XM_N_CALLBLOCK);
    xm_jn *macro = xm_jnode(p, XM_N_MACRO);
    p->token++;
    if (!node || !macro)
        return NULL;
    if (p->token->type == XM_T_LPAREN && !signature(p, macro))
        return NULL;
    if (!(node->a = xm_jexpression(p, 1)))
        return NULL;
    if (node->a->type != XM_N_CALL) {
        (void)xm_jsyntax(p, "a call block needs a call");
        return NULL;
    }
    node->b = macro_body(p, macro, "endcall");
    return node->b ? xm_jdone(p, node) : NULL;
}

static xm_jn *parse_filter(xm_jparser *p)
{
    xm_jn *node = xm_jnode(p, XM_N_FILTERBLOCK);
    p->token++;
    if (!node || !(node->b = xm_jfilter_chain(p, NULL, 1)))
        return NULL;
    node->c = whole(p, "endfilter");
    return node->c ? xm_jdone(p, node) : NULL;
}

static xm_jn *parse_with(xm_jparser *p)
{
    xm_jn *node = xm_jnode(p, XM_N_WITH);
    p->token++;
    while (node && p->token->type != XM_T_BLOCK_END) {
        if (node->count && !xm_jexpect(p, XM_T_COMMA))
            return NULL;
        if (!xm_jadd(p, node, xm_jtarget(p, 0, NULL)) ||
            !xm_jexpect(p, XM_T_ASSIGN) ||
            !xm_jadd(p, node, xm_jexpression(p, 1)))
            return NULL;
    }
    if (!node)
        return NULL;
    node->c = whole(p, "endwith");
    return node->c ? xm_jdone(p, node) : NULL;
}

static xm_jn *parse_print(xm_jparser *p)
{
    xm_jn *node = xm_jnode(p, XM_N_OUTPUT);
    p->token++;
    while (node && p->token->type != XM_T_BLOCK_END) {
        if (node->count && !xm_jexpect(p, XM_T_COMMA))
            return NULL;
        if (!xm_jadd(p, node, xm_jexpression(p, 1)))
            return NULL;
    }
    return node ? xm_jdone(p, node) : NULL;
}

/* The body is a macro's: what it sets stays within. */
static xm_jn *parse_generation(xm_jparser *p)
{
    xm_jn *node = xm_jnode(p, XM_N_GENERATION);
    xm_jn *macro = xm_jnode(p, XM_N_MACRO);
    p->token++;
    if (!node || !macro || !macro_body(p, macro, "endgeneration"))
        return NULL;
    p->tmpl->has_generation = 1;
    node->c = macro->c;
    return xm_jdone(p, node);
}

static xm_jn *parse_jump(xm_jparser *p)
{
    enum xm_jtype type =
        xm_jis_name(p->token, "break") ? XM_N_BREAK : XM_N_CONTINUE;
    if (!p->loops) {
        (void)xm_jsyntax(p, "'%s' outside of a loop",
                         type == XM_N_BREAK ? "break" : "continue");
        return NULL;
    }
    xm_jn *node = xm_jnode(p, type);
    p->token++;
    return node;
}

static xm_jn *unknown(xm_jparser *p)
{
    static const char *const refused[] = { "include", "import", "from",
                                           "extends", "block",  "autoescape",
                                           "do",      "trans" };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (xm_jis_name(p->token, refused[i])) {
            (void)xm_jsyntax(p, "'%s' is not supported in a chat template",
                             refused[i]);
            return NULL;
        }
    (void)xm_jsyntax(p, "unknown tag '%.*s'",
                     (int)(p->token->size < 60 ? p->token->size : 60),
                     p->token->text);
    return NULL;
}

static xm_jn *statement(xm_jparser *p)
{
    static const struct {
        const char *name;
        xm_jn *(*parse)(xm_jparser *p);
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
            xm_jn *node = statements[i].parse(p);
            return node && xm_jexpect(p, XM_T_BLOCK_END) ? node : NULL;
        }
    if (p->token->type == XM_T_NAME)
        return unknown(p);
    (void)xm_jsyntax(p, "a tag needs a name");
    return NULL;
}

static xm_jn *output(xm_jparser *p)
{
    xm_jn *node = xm_jnode(p, XM_N_OUTPUT);
    p->token++;
    if (!node || !xm_jadd(p, node, xm_jtuple(p, 1, NULL, 0)) ||
        !xm_jexpect(p, XM_T_VAR_END))
        return NULL;
    return xm_jdone(p, node);
}

static int at_end(const xm_jparser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (xm_jis_name(p->token, *ends))
            return 1;
    return 0;
}

static xm_jn *body(xm_jparser *p, const char *const *ends)
{
    xm_jn *node = xm_jnode(p, XM_N_BODY);
    while (node && p->token->type != XM_T_EOF) {
        xm_jn *child = NULL;
        if (p->token->type == XM_T_DATA) {
            child = xm_jnode(p, XM_N_DATA);
            if (child)
                child->value = p->token->value;
            p->token++;
        } else if (p->token->type == XM_T_VAR_BEGIN) {
            child = output(p);
        } else {
            p->token++;
            if (at_end(p, ends))
                break;
            child = statement(p);
        }
        if (!xm_jadd(p, node, child))
            return NULL;
    }
    return node ? xm_jdone(p, node) : NULL;
}

/* Newlines of every kind become "\n"; the last one is dropped. */
static void normalize(xm_jtemplate *tmpl)
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

int xm_jcompile(xm_jtemplate *tmpl, xm_jrun *run)
{
    xm_jtokens tokens = { 0 };
    normalize(tmpl);
    int status = xm_jlex(run, tmpl->source, tmpl->source_size, &tokens);
    if (!status) {
        xm_jparser p = { .tmpl = tmpl, .run = run, .token = tokens.at };
        static const char *const fixed[] = { "loop", "caller", "kwargs",
                                             "varargs" };
        uint32_t id;
        for (size_t i = 0; !status && i < sizeof fixed / sizeof fixed[0]; i++)
            status = xm_jname_id(&p, fixed[i], strlen(fixed[i]), &id);
        tmpl->body = status ? NULL : body(&p, NULL);
        status = tmpl->body ? 0 : -1;
    }
    free(tokens.at);
    return status;
}
