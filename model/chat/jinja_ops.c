/* SPDX-License-Identifier: Apache-2.0
 *
 * Operators.
 */
#include <math.h>
#include <string.h>

#include "model/chat/jinja_lex.h"

static const char *op_text(int op)
{
    switch (op) {
    case XM_T_ADD:
        return "+";
    case XM_T_SUB:
        return "-";
    case XM_T_MUL:
        return "*";
    case XM_T_DIV:
        return "/";
    case XM_T_FLOORDIV:
        return "//";
    case XM_T_MOD:
        return "%";
    default:
        return "** or pow()";
    }
}

static int unsupported(xm_jrun *run, int op, xm_jv a, xm_jv b)
{
    return xm_jfail(run, "unsupported operand type(s) for %s: '%s' and '%s'",
                    op_text(op), xm_jtypename(a), xm_jtypename(b));
}

static int overflow(xm_jrun *run)
{
    return xm_jfail(run, "an integer leaves 64 bits");
}

static int add_int(xm_jrun *run, int64_t a, int64_t b, xm_jv *out)
{
    if ((b > 0 && a > INT64_MAX - b) || (b < 0 && a < INT64_MIN - b))
        return overflow(run);
    *out = xm_jint(a + b);
    return 0;
}

static int mul_int(xm_jrun *run, int64_t a, int64_t b, xm_jv *out)
{
    if (a && b &&
        ((a == -1 && b == INT64_MIN) || (b == -1 && a == INT64_MIN) ||
         (a != -1 && b != -1 &&
          (a > 0 ? (b > 0 ? a > INT64_MAX / b : b < INT64_MIN / a)
                 : (b > 0 ? a < INT64_MIN / b : b < INT64_MAX / a)))))
        return overflow(run);
    *out = xm_jint(a * b);
    return 0;
}

static int divide_int(xm_jrun *run, int op, int64_t a, int64_t b, xm_jv *out)
{
    if (!b)
        return xm_jfail(run, op == XM_T_DIV
                                 ? "division by zero"
                                 : "integer division or modulo by zero");
    if (op == XM_T_DIV) {
        *out = xm_jfloat((double)a / (double)b);
        return 0;
    }
    if (a == INT64_MIN && b == -1) {
        *out = xm_jint(0);
        return op == XM_T_MOD ? 0 : overflow(run);
    }
    int64_t quotient = a / b;
    int64_t rest = a % b;
    if (rest && (rest < 0) != (b < 0)) {
        quotient--;
        rest += b;
    }
    *out = xm_jint(op == XM_T_MOD ? rest : quotient);
    return 0;
}

static int divide_real(xm_jrun *run, int op, double a, double b, xm_jv *out)
{
    if (b == 0)
        return xm_jfail(run, op == XM_T_DIV   ? "float division by zero"
                             : op == XM_T_MOD ? "float modulo"
                                              : "float floor division by zero");
    if (op == XM_T_DIV) {
        *out = xm_jfloat(a / b);
        return 0;
    }
    double rest = fmod(a, b);
    double quotient = (a - rest) / b;
    if (rest != 0 && (rest < 0) != (b < 0)) {
        rest += b;
        quotient -= 1;
    } else if (rest == 0) {
        rest = copysign(0, b);
    }
    if (op == XM_T_MOD) {
        *out = xm_jfloat(rest);
        return 0;
    }
    double whole = floor(quotient);
    if (quotient != 0 && quotient - whole > 0.5)
        whole += 1;
    *out = xm_jfloat(quotient != 0 ? whole : copysign(0, a / b));
    return 0;
}

int xm_jpower(xm_jrun *run, xm_jv a, xm_jv b, xm_jv *out)
{
    if (a.kind != XM_J_FLOAT && b.kind != XM_J_FLOAT && b.u.i >= 0) {
        int64_t base = a.u.i;
        *out = xm_jint(1);
        for (int64_t left = b.u.i; left; left >>= 1) {
            xm_jv square;
            if (left & 1 && mul_int(run, out->u.i, base, out))
                return -1;
            if (left > 1) {
                if (mul_int(run, base, base, &square))
                    return -1;
                base = square.u.i;
            }
        }
        return 0;
    }
    double x = xm_jreal(a);
    double y = xm_jreal(b);
    if (x == 0 && y < 0)
        return xm_jfail(run, "0.0 cannot be raised to a negative power");
    double value = pow(x, y);
    if (isnan(value) && !isnan(x) && !isnan(y))
        return xm_jfail(run, "complex numbers are not supported");
    if (isinf(value) && isfinite(x) && isfinite(y))
        return xm_jfail(run, "the result of ** is too large");
    *out = xm_jfloat(value);
    return 0;
}

static int arithmetic(xm_jrun *run, int op, xm_jv a, xm_jv b, xm_jv *out)
{
    int real = a.kind == XM_J_FLOAT || b.kind == XM_J_FLOAT;
    double x = xm_jreal(a);
    double y = xm_jreal(b);
    switch (op) {
    case XM_T_ADD:
        if (!real)
            return add_int(run, a.u.i, b.u.i, out);
        *out = xm_jfloat(x + y);
        return 0;
    case XM_T_SUB:
        if (!real) {
            if ((b.u.i < 0 && a.u.i > INT64_MAX + b.u.i) ||
                (b.u.i > 0 && a.u.i < INT64_MIN + b.u.i))
                return overflow(run);
            *out = xm_jint(a.u.i - b.u.i);
            return 0;
        }
        *out = xm_jfloat(x - y);
        return 0;
    case XM_T_MUL:
        if (!real)
            return mul_int(run, a.u.i, b.u.i, out);
        *out = xm_jfloat(x * y);
        return 0;
    case XM_T_POW:
        return xm_jpower(run, a, b, out);
    default:
        return real ? divide_real(run, op, x, y, out)
                    : divide_int(run, op, a.u.i, b.u.i, out);
    }
}

/* A string that is put beside marked text is escaped. */
static int escaped(xm_jrun *run, xm_jv *value)
{
    if (value->markup)
        return 0;
    xr_str text = { 0 };
    xm_jescape(value->u.str, &text);
    return xm_jtext(run, &text, value);
}

static int add_strings(xm_jrun *run, xm_jv a, xm_jv b, xm_jv *out)
{
    int markup = a.markup || b.markup;
    if (markup && (escaped(run, &a) || escaped(run, &b)))
        return -1;
    const xm_jstr *x = a.u.str;
    const xm_jstr *y = b.u.str;
    char *text = xm_jtake(run, x->size + y->size + 1, 1);
    if (!text || xm_jwork(run, (x->size + y->size) / 64))
        return -1;
    memcpy(text, x->text, x->size);
    memcpy(text + x->size, y->text, y->size);
    if (xm_jborrow(run, text, x->size + y->size, x->chars + y->chars, out))
        return -1;
    out->markup = (uint8_t)markup;
    return 0;
}

static int add_lists(xm_jrun *run, xm_jv a, xm_jv b, xm_jv *out)
{
    xm_jlist *list;
    size_t count = a.u.list->count + b.u.list->count;
    if (xm_jwork(run, count / 8) || xm_jlist_new(run, count, &list))
        return -1;
    if (a.u.list->count)
        memcpy(list->at, a.u.list->at, a.u.list->count * sizeof *list->at);
    if (b.u.list->count)
        memcpy(list->at + a.u.list->count, b.u.list->at,
               b.u.list->count * sizeof *list->at);
    list->count = count;
    *out = xm_jlist_value(list, (enum xm_jkind)a.kind);
    return 0;
}

static int add(xm_jrun *run, xm_jv a, xm_jv b, xm_jv *out)
{
    if (a.kind == XM_J_STR && b.kind == XM_J_STR)
        return add_strings(run, a, b, out);
    if (a.kind == b.kind && (a.kind == XM_J_LIST || a.kind == XM_J_TUPLE))
        return add_lists(run, a, b, out);
    if (a.kind == XM_J_STR || a.kind == XM_J_LIST || a.kind == XM_J_TUPLE)
        return xm_jfail(run, "can only concatenate %s (not \"%s\") to %s",
                        xm_jtypename(a), xm_jtypename(b), xm_jtypename(a));
    return unsupported(run, XM_T_ADD, a, b);
}

static int repeat(xm_jrun *run, xm_jv what, int64_t times, xm_jv *out)
{
    size_t count = times > 0 ? (size_t)times : 0;
    if (what.kind == XM_J_STR) {
        const xm_jstr *str = what.u.str;
        if (!str->size)
            count = 0;
        if (count && count > XM_CHAT_MAX_MEMORY / str->size)
            return xm_jtake(run, XM_CHAT_MAX_MEMORY, 2) ? 0 : -1;
        char *text = xm_jtake(run, count * str->size + 1, 1);
        if (!text || xm_jwork(run, count * str->size / 32))
            return -1;
        for (size_t i = 0; i < count; i++)
            memcpy(text + i * str->size, str->text, str->size);
        if (xm_jborrow(run, text, count * str->size, count * str->chars, out))
            return -1;
        out->markup = what.markup;
        return 0;
    }
    const xm_jlist *from = what.u.list;
    if (!from->count)
        count = 0;
    if (count && count > XM_CHAT_MAX_MEMORY / sizeof(xm_jv) / from->count)
        return xm_jtake(run, XM_CHAT_MAX_MEMORY, 2) ? 0 : -1;
    xm_jlist *list;
    if (xm_jwork(run, count * from->count / 8) ||
        xm_jlist_new(run, count * from->count, &list))
        return -1;
    for (size_t i = 0; i < count; i++)
        memcpy(list->at + i * from->count, from->at,
               from->count * sizeof *list->at);
    list->count = count * from->count;
    *out = xm_jlist_value(list, (enum xm_jkind)what.kind);
    return 0;
}

static int is_sequence(xm_jv value)
{
    return value.kind == XM_J_STR || value.kind == XM_J_LIST ||
           value.kind == XM_J_TUPLE;
}

static int is_whole(xm_jv value)
{
    return value.kind == XM_J_INT || value.kind == XM_J_BOOL;
}

int xm_jbinary(xm_jrun *run, int op, xm_jv a, xm_jv b, xm_jv *out)
{
    if (xm_jis_number(a) && xm_jis_number(b))
        return arithmetic(run, op, a, b, out);
    if (op == XM_T_MOD && a.kind == XM_J_STR) {
        if (xm_jpercent(run, a.u.str, b, out))
            return -1;
        out->markup = a.markup;
        return 0;
    }
    if (a.kind == XM_J_UNDEF || b.kind == XM_J_UNDEF)
        return xm_jfail_undefined(run, a.kind == XM_J_UNDEF ? a : b);
    if (op == XM_T_ADD)
        return add(run, a, b, out);
    if (op == XM_T_MUL && is_sequence(a) && is_whole(b))
        return repeat(run, a, b.u.i, out);
    if (op == XM_T_MUL && is_sequence(b) && is_whole(a))
        return repeat(run, b, a.u.i, out);
    if (op == XM_T_MUL && (is_sequence(a) || is_sequence(b)))
        return xm_jfail(run, "can't multiply sequence by non-int of type '%s'",
                        xm_jtypename(is_sequence(a) ? b : a));
    return unsupported(run, op, a, b);
}

int xm_jnegate(xm_jrun *run, xm_jv value, xm_jv *out)
{
    if (value.kind == XM_J_UNDEF)
        return xm_jfail_undefined(run, value);
    if (!xm_jis_number(value))
        return xm_jfail(run, "bad operand type for unary -: '%s'",
                        xm_jtypename(value));
    if (value.kind != XM_J_FLOAT && value.u.i == INT64_MIN)
        return overflow(run);
    *out =
        value.kind == XM_J_FLOAT ? xm_jfloat(-value.u.f) : xm_jint(-value.u.i);
    return 0;
}

static int order_text(const xm_jstr *a, const xm_jstr *b)
{
    size_t size = a->size < b->size ? a->size : b->size;
    int order = memcmp(a->text, b->text, size);
    return order ? order : (a->size > b->size) - (a->size < b->size);
}

static int order_lists(xm_jrun *run, const char *op, const xm_jlist *a,
                       const xm_jlist *b, int *out)
{
    for (size_t i = 0; i < a->count && i < b->count; i++) {
        int equal;
        if (xm_jequal(run, a->at[i], b->at[i], &equal))
            return -1;
        if (equal)
            continue;
        if (xm_jenter(run))
            return -1;
        int status = xm_jorder(run, op, a->at[i], b->at[i], out);
        xm_jleave(run);
        return status;
    }
    *out = (a->count > b->count) - (a->count < b->count);
    return 0;
}

/* *out: negative, 0, positive, or 2 where no order is (NaN). */
int xm_jorder(xm_jrun *run, const char *op, xm_jv a, xm_jv b, int *out)
{
    if (xm_jwork(run, 1))
        return -1;
    if (xm_jis_number(a) && xm_jis_number(b)) {
        if (a.kind != XM_J_FLOAT && b.kind != XM_J_FLOAT)
            *out = (a.u.i > b.u.i) - (a.u.i < b.u.i);
        else if (isnan(xm_jreal(a)) || isnan(xm_jreal(b)))
            *out = 2;
        else
            *out = (xm_jreal(a) > xm_jreal(b)) - (xm_jreal(a) < xm_jreal(b));
        return 0;
    }
    if (a.kind == XM_J_STR && b.kind == XM_J_STR) {
        int order = order_text(a.u.str, b.u.str);
        *out = (order > 0) - (order < 0);
        return xm_jwork(run, a.u.str->size / 64);
    }
    if (a.kind == b.kind && (a.kind == XM_J_LIST || a.kind == XM_J_TUPLE))
        return order_lists(run, op, a.u.list, b.u.list, out);
    if (a.kind == XM_J_UNDEF || b.kind == XM_J_UNDEF)
        return xm_jfail_undefined(run, a.kind == XM_J_UNDEF ? a : b);
    return xm_jfail(run,
                    "'%s' not supported between instances of '%s' and '%s'", op,
                    xm_jtypename(a), xm_jtypename(b));
}

int xm_jcontains(xm_jrun *run, xm_jv item, xm_jv in, int *out)
{
    *out = 0;
    if (in.kind == XM_J_STR) {
        size_t at;
        if (item.kind != XM_J_STR)
            return xm_jfail(
                run, "'in <string>' requires string as left operand, not %s",
                xm_jtypename(item));
        if (xm_jfind(run, in.u.str->text, in.u.str->size, item.u.str, &at))
            return -1;
        *out = at != SIZE_MAX;
        return 0;
    }
    if (in.kind == XM_J_DICT || (in.kind == XM_J_VIEW && in.sub == XM_J_KEYS)) {
        uint64_t hash;
        if (xm_jhash(run, item, &hash))
            return xm_junhashable(run, item);
        *out = xm_jdict_get(run, in.u.dict, item) != NULL;
        return 0;
    }
    if (!xm_jiterable(in))
        return xm_jfail(run, "argument of type '%s' is not iterable",
                        xm_jtypename(in));
    xm_jlist items;
    if (xm_jitems(run, in, &items))
        return -1;
    for (size_t i = 0; !*out && i < items.count; i++)
        if (xm_jwork(run, 1) || xm_jequal(run, items.at[i], item, out))
            return -1;
    return 0;
}

int xm_jcompare(xm_jrun *run, int op, xm_jv a, xm_jv b, int *out)
{
    static const char *const names[] = { ">", ">=", "<", "<=" };
    int order;
    if (op == XM_T_EQ || op == XM_T_NE) {
        if (xm_jequal(run, a, b, out))
            return -1;
        *out ^= op == XM_T_NE;
        return 0;
    }
    if (op == XM_T_IN || op == XM_T_NOTIN) {
        if (xm_jcontains(run, a, b, out))
            return -1;
        *out ^= op == XM_T_NOTIN;
        return 0;
    }
    if (xm_jorder(run, names[op - XM_T_GT], a, b, &order))
        return -1;
    *out = order != 2 && (op == XM_T_GT   ? order > 0
                          : op == XM_T_GE ? order >= 0
                          : op == XM_T_LT ? order < 0
                                          : order <= 0);
    return 0;
}
