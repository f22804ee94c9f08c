/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the operators of a template with Python's semantics.
 */
#include <math.h>
#include <string.h>

#include "model/chat/jinja_lex.h"

static const char *get_operator_text(int op)
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

static int fail_unsupported(xm_jinterp *interp, int op, xm_jvalue a,
                            xm_jvalue b)
{
    return xm_jfail(interp, "unsupported operand type(s) for %s: '%s' and '%s'",
                    get_operator_text(op), xm_jtype_name(a), xm_jtype_name(b));
}

static int fail_overflow(xm_jinterp *interp)
{
    return xm_jfail(interp, "an integer is beyond 64 bits");
}

static int add_integers(xm_jinterp *interp, int64_t a, int64_t b,
                        xm_jvalue *out)
{
    if ((b > 0 && a > INT64_MAX - b) || (b < 0 && a < INT64_MIN - b))
        return fail_overflow(interp);
    *out = xm_jint(a + b);
    return 0;
}

static int multiply_integers(xm_jinterp *interp, int64_t a, int64_t b,
                             xm_jvalue *out)
{
    if (a && b &&
        ((a == -1 && b == INT64_MIN) || (b == -1 && a == INT64_MIN) ||
         (a != -1 && b != -1 &&
          (a > 0 ? (b > 0 ? a > INT64_MAX / b : b < INT64_MIN / a)
                 : (b > 0 ? a < INT64_MIN / b : b < INT64_MAX / a)))))
        return fail_overflow(interp);
    *out = xm_jint(a * b);
    return 0;
}

static int divide_integers(xm_jinterp *interp, int op, int64_t a, int64_t b,
                           xm_jvalue *out)
{
    if (!b)
        return xm_jfail(interp, op == XM_T_DIV
                                    ? "division by zero"
                                    : "integer division or modulo by zero");
    if (op == XM_T_DIV) {
        *out = xm_jfloat((double)a / (double)b);
        return 0;
    }
    if (a == INT64_MIN && b == -1) {
        *out = xm_jint(0);
        return op == XM_T_MOD ? 0 : fail_overflow(interp);
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

static int divide_reals(xm_jinterp *interp, int op, double a, double b,
                        xm_jvalue *out)
{
    if (b == 0)
        return xm_jfail(interp, op == XM_T_DIV ? "float division by zero"
                                : op == XM_T_MOD
                                    ? "float modulo"
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
    double rounded = floor(quotient);
    if (quotient != 0 && quotient - rounded > 0.5)
        rounded += 1;
    *out = xm_jfloat(quotient != 0 ? rounded : copysign(0, a / b));
    return 0;
}

int xm_jpower(xm_jinterp *interp, xm_jvalue a, xm_jvalue b, xm_jvalue *out)
{
    if (a.kind != XM_J_FLOAT && b.kind != XM_J_FLOAT && b.u.i >= 0) {
        int64_t base = a.u.i;
        *out = xm_jint(1);
        for (int64_t left = b.u.i; left; left >>= 1) {
            xm_jvalue square;
            if (left & 1 && multiply_integers(interp, out->u.i, base, out))
                return -1;
            if (left > 1) {
                if (multiply_integers(interp, base, base, &square))
                    return -1;
                base = square.u.i;
            }
        }
        return 0;
    }
    double x = xm_jto_real(a);
    double y = xm_jto_real(b);
    if (x == 0 && y < 0)
        return xm_jfail(interp, "0.0 cannot be raised to a negative power");
    double value = pow(x, y);
    if (isnan(value) && !isnan(x) && !isnan(y))
        return xm_jfail(interp, "complex numbers are not supported");
    if (isinf(value) && isfinite(x) && isfinite(y))
        return xm_jfail(interp, "the result of ** is too large");
    *out = xm_jfloat(value);
    return 0;
}

static int compute_numbers(xm_jinterp *interp, int op, xm_jvalue a, xm_jvalue b,
                           xm_jvalue *out)
{
    int real = a.kind == XM_J_FLOAT || b.kind == XM_J_FLOAT;
    double x = xm_jto_real(a);
    double y = xm_jto_real(b);
    switch (op) {
    case XM_T_ADD:
        if (!real)
            return add_integers(interp, a.u.i, b.u.i, out);
        *out = xm_jfloat(x + y);
        return 0;
    case XM_T_SUB:
        if (!real) {
            if ((b.u.i < 0 && a.u.i > INT64_MAX + b.u.i) ||
                (b.u.i > 0 && a.u.i < INT64_MIN + b.u.i))
                return fail_overflow(interp);
            *out = xm_jint(a.u.i - b.u.i);
            return 0;
        }
        *out = xm_jfloat(x - y);
        return 0;
    case XM_T_MUL:
        if (!real)
            return multiply_integers(interp, a.u.i, b.u.i, out);
        *out = xm_jfloat(x * y);
        return 0;
    case XM_T_POW:
        return xm_jpower(interp, a, b, out);
    default:
        return real ? divide_reals(interp, op, x, y, out)
                    : divide_integers(interp, op, a.u.i, b.u.i, out);
    }
}

/* Escapes a string that is joined with marked text. */
static int escape_unmarked(xm_jinterp *interp, xm_jvalue *value)
{
    if (value->markup)
        return 0;
    xr_str text = { 0 };
    xm_jappend_escaped(value->u.str, &text);
    return xm_jstr_take(interp, &text, value);
}

static int add_strings(xm_jinterp *interp, xm_jvalue a, xm_jvalue b,
                       xm_jvalue *out)
{
    int markup = a.markup || b.markup;
    if (markup && (escape_unmarked(interp, &a) || escape_unmarked(interp, &b)))
        return -1;
    const xm_jstr *x = a.u.str;
    const xm_jstr *y = b.u.str;
    char *text = xm_jalloc(interp, x->size + y->size + 1, 1);
    if (!text || xm_jcount_work(interp, (x->size + y->size) / 64))
        return -1;
    memcpy(text, x->text, x->size);
    memcpy(text + x->size, y->text, y->size);
    if (xm_jstr_borrow(interp, text, x->size + y->size, x->chars + y->chars,
                       out))
        return -1;
    out->markup = (uint8_t)markup;
    return 0;
}

static int add_lists(xm_jinterp *interp, xm_jvalue a, xm_jvalue b,
                     xm_jvalue *out)
{
    xm_jlist *list;
    size_t count = a.u.list->count + b.u.list->count;
    if (xm_jcount_work(interp, count / 8) || xm_jlist_new(interp, count, &list))
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

static int add_values(xm_jinterp *interp, xm_jvalue a, xm_jvalue b,
                      xm_jvalue *out)
{
    if (a.kind == XM_J_STR && b.kind == XM_J_STR)
        return add_strings(interp, a, b, out);
    if (a.kind == b.kind && (a.kind == XM_J_LIST || a.kind == XM_J_TUPLE))
        return add_lists(interp, a, b, out);
    if (a.kind == XM_J_STR || a.kind == XM_J_LIST || a.kind == XM_J_TUPLE)
        return xm_jfail(interp, "can only concatenate %s (not \"%s\") to %s",
                        xm_jtype_name(a), xm_jtype_name(b), xm_jtype_name(a));
    return fail_unsupported(interp, XM_T_ADD, a, b);
}

static int repeat_sequence(xm_jinterp *interp, xm_jvalue what, int64_t times,
                           xm_jvalue *out)
{
    size_t count = times > 0 ? (size_t)times : 0;
    if (what.kind == XM_J_STR) {
        const xm_jstr *str = what.u.str;
        if (!str->size)
            count = 0;
        if (count && count > XM_CHAT_MAX_MEMORY / str->size)
            return xm_jalloc(interp, XM_CHAT_MAX_MEMORY, 2) ? 0 : -1;
        char *text = xm_jalloc(interp, count * str->size + 1, 1);
        if (!text || xm_jcount_work(interp, count * str->size / 32))
            return -1;
        for (size_t i = 0; i < count; i++)
            memcpy(text + i * str->size, str->text, str->size);
        if (xm_jstr_borrow(interp, text, count * str->size, count * str->chars,
                           out))
            return -1;
        out->markup = what.markup;
        return 0;
    }
    const xm_jlist *from = what.u.list;
    if (!from->count)
        count = 0;
    if (count && count > XM_CHAT_MAX_MEMORY / sizeof(xm_jvalue) / from->count)
        return xm_jalloc(interp, XM_CHAT_MAX_MEMORY, 2) ? 0 : -1;
    xm_jlist *list;
    if (xm_jcount_work(interp, count * from->count / 8) ||
        xm_jlist_new(interp, count * from->count, &list))
        return -1;
    for (size_t i = 0; i < count; i++)
        memcpy(list->at + i * from->count, from->at,
               from->count * sizeof *list->at);
    list->count = count * from->count;
    *out = xm_jlist_value(list, (enum xm_jkind)what.kind);
    return 0;
}

static int is_sequence(xm_jvalue value)
{
    return value.kind == XM_J_STR || value.kind == XM_J_LIST ||
           value.kind == XM_J_TUPLE;
}

static int is_integer(xm_jvalue value)
{
    return value.kind == XM_J_INT || value.kind == XM_J_BOOL;
}

int xm_jbinary_op(xm_jinterp *interp, int op, xm_jvalue a, xm_jvalue b,
                  xm_jvalue *out)
{
    if (xm_jis_number(a) && xm_jis_number(b))
        return compute_numbers(interp, op, a, b, out);
    if (op == XM_T_MOD && a.kind == XM_J_STR) {
        if (xm_jformat_percent(interp, a.u.str, b, out))
            return -1;
        out->markup = a.markup;
        return 0;
    }
    if (a.kind == XM_J_UNDEF || b.kind == XM_J_UNDEF)
        return xm_jfail_undefined(interp, a.kind == XM_J_UNDEF ? a : b);
    if (op == XM_T_ADD)
        return add_values(interp, a, b, out);
    if (op == XM_T_MUL && is_sequence(a) && is_integer(b))
        return repeat_sequence(interp, a, b.u.i, out);
    if (op == XM_T_MUL && is_sequence(b) && is_integer(a))
        return repeat_sequence(interp, b, a.u.i, out);
    if (op == XM_T_MUL && (is_sequence(a) || is_sequence(b)))
        return xm_jfail(interp,
                        "can't multiply sequence by non-int of type '%s'",
                        xm_jtype_name(is_sequence(a) ? b : a));
    return fail_unsupported(interp, op, a, b);
}

int xm_jnegate(xm_jinterp *interp, xm_jvalue value, xm_jvalue *out)
{
    if (value.kind == XM_J_UNDEF)
        return xm_jfail_undefined(interp, value);
    if (!xm_jis_number(value))
        return xm_jfail(interp, "bad operand type for unary -: '%s'",
                        xm_jtype_name(value));
    if (value.kind != XM_J_FLOAT && value.u.i == INT64_MIN)
        return fail_overflow(interp);
    *out =
        value.kind == XM_J_FLOAT ? xm_jfloat(-value.u.f) : xm_jint(-value.u.i);
    return 0;
}

static int compare_text(const xm_jstr *a, const xm_jstr *b)
{
    size_t size = a->size < b->size ? a->size : b->size;
    int order = memcmp(a->text, b->text, size);
    return order ? order : (a->size > b->size) - (a->size < b->size);
}

static int compare_lists(xm_jinterp *interp, const char *op, const xm_jlist *a,
                         const xm_jlist *b, int *out)
{
    for (size_t i = 0; i < a->count && i < b->count; i++) {
        int equal;
        if (xm_jequal(interp, a->at[i], b->at[i], &equal))
            return -1;
        if (equal)
            continue;
        if (xm_jenter_level(interp))
            return -1;
        int status = xm_jorder_values(interp, op, a->at[i], b->at[i], out);
        xm_jleave_level(interp);
        return status;
    }
    *out = (a->count > b->count) - (a->count < b->count);
    return 0;
}

static int order_integers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* The comparison is exact: it rounds no integer to a double. */
static int order_integer_to_real(int64_t a, double b)
{
    if (!(b >= -0x1p63 && b < 0x1p63))
        return b < 0 ? 1 : -1;
    int order = order_integers(a, (int64_t)b);
    double rest = b - trunc(b);
    return order ? order : (rest < 0) - (rest > 0);
}

/* Returns -1, 0 or 1, or 2 if there is no order (NaN). */
static int order_numbers(xm_jvalue a, xm_jvalue b)
{
    if (isnan(xm_jto_real(a)) || isnan(xm_jto_real(b)))
        return 2;
    if (a.kind == XM_J_FLOAT && b.kind == XM_J_FLOAT)
        return (a.u.f > b.u.f) - (a.u.f < b.u.f);
    if (a.kind == XM_J_FLOAT)
        return -order_integer_to_real(b.u.i, a.u.f);
    if (b.kind == XM_J_FLOAT)
        return order_integer_to_real(a.u.i, b.u.f);
    return order_integers(a.u.i, b.u.i);
}

/* Sets *out to -1, 0 or 1, or to 2 if there is no order (NaN). */
int xm_jorder_values(xm_jinterp *interp, const char *op, xm_jvalue a,
                     xm_jvalue b, int *out)
{
    if (xm_jcount_work(interp, 1))
        return -1;
    if (xm_jis_number(a) && xm_jis_number(b)) {
        *out = order_numbers(a, b);
        return 0;
    }
    if (a.kind == XM_J_STR && b.kind == XM_J_STR) {
        int order = compare_text(a.u.str, b.u.str);
        *out = (order > 0) - (order < 0);
        return xm_jcount_work(interp, a.u.str->size / 64);
    }
    if (a.kind == b.kind && (a.kind == XM_J_LIST || a.kind == XM_J_TUPLE))
        return compare_lists(interp, op, a.u.list, b.u.list, out);
    if (a.kind == XM_J_UNDEF || b.kind == XM_J_UNDEF)
        return xm_jfail_undefined(interp, a.kind == XM_J_UNDEF ? a : b);
    return xm_jfail(interp,
                    "'%s' not supported between instances of '%s' and '%s'", op,
                    xm_jtype_name(a), xm_jtype_name(b));
}

int xm_jcontains(xm_jinterp *interp, xm_jvalue item, xm_jvalue in, int *out)
{
    *out = 0;
    if (in.kind == XM_J_STR) {
        size_t at;
        if (item.kind != XM_J_STR)
            return xm_jfail(
                interp, "'in <string>' requires string as left operand, not %s",
                xm_jtype_name(item));
        if (xm_jfind_first(interp, in.u.str->text, in.u.str->size, item.u.str,
                           &at))
            return -1;
        *out = at != SIZE_MAX;
        return 0;
    }
    if (in.kind == XM_J_DICT || (in.kind == XM_J_VIEW && in.sub == XM_J_KEYS)) {
        uint64_t hash;
        if (xm_jhash(interp, item, &hash))
            return xm_jfail_unhashable(interp, item);
        *out = xm_jdict_get(interp, in.u.dict, item) != NULL;
        return 0;
    }
    if (!xm_jis_iterable(in))
        return xm_jfail(interp, "argument of type '%s' is not iterable",
                        xm_jtype_name(in));
    xm_jlist items;
    if (xm_jread_items(interp, in, &items))
        return -1;
    for (size_t i = 0; !*out && i < items.count; i++)
        if (xm_jcount_work(interp, 1) ||
            xm_jequal(interp, items.at[i], item, out))
            return -1;
    return 0;
}

int xm_jcompare_op(xm_jinterp *interp, int op, xm_jvalue a, xm_jvalue b,
                   int *out)
{
    static const char *const names[] = { ">", ">=", "<", "<=" };
    int order;
    if (op == XM_T_EQ || op == XM_T_NE) {
        if (xm_jequal(interp, a, b, out))
            return -1;
        *out ^= op == XM_T_NE;
        return 0;
    }
    if (op == XM_T_IN || op == XM_T_NOTIN) {
        if (xm_jcontains(interp, a, b, out))
            return -1;
        *out ^= op == XM_T_NOTIN;
        return 0;
    }
    if (xm_jorder_values(interp, names[op - XM_T_GT], a, b, &order))
        return -1;
    *out = order != 2 && (op == XM_T_GT   ? order > 0
                          : op == XM_T_GE ? order >= 0
                          : op == XM_T_LT ? order < 0
                                          : order <= 0);
    return 0;
}
