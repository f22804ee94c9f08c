/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the tests of Jinja, which follow "is" in an expression.
 */
#include <math.h>
#include <string.h>

#include "model/chat/jinja_lex.h"

enum test {
    T_BOOLEAN,
    T_CALLABLE,
    T_DEFINED,
    T_DIVISIBLE,
    T_ESCAPED,
    T_EVEN,
    T_FALSE,
    T_FILTER,
    T_FLOAT,
    T_IN,
    T_INTEGER,
    T_ITERABLE,
    T_LOWER,
    T_MAPPING,
    T_NONE,
    T_NUMBER,
    T_ODD,
    T_SAMEAS,
    T_SEQUENCE,
    T_STRING,
    T_TEST,
    T_TRUE,
    T_UNDEFINED,
    T_UPPER,
    T_COMPARE /* comparison by an operator */
};

static const struct {
    const char *name;
    enum test test;
    int op;
} tests[] = {
    { "boolean", T_BOOLEAN, 0 },
    { "callable", T_CALLABLE, 0 },
    { "defined", T_DEFINED, 0 },
    { "divisibleby", T_DIVISIBLE, 0 },
    { "escaped", T_ESCAPED, 0 },
    { "even", T_EVEN, 0 },
    { "false", T_FALSE, 0 },
    { "filter", T_FILTER, 0 },
    { "float", T_FLOAT, 0 },
    { "in", T_IN, 0 },
    { "integer", T_INTEGER, 0 },
    { "iterable", T_ITERABLE, 0 },
    { "lower", T_LOWER, 0 },
    { "mapping", T_MAPPING, 0 },
    { "none", T_NONE, 0 },
    { "number", T_NUMBER, 0 },
    { "odd", T_ODD, 0 },
    { "sameas", T_SAMEAS, 0 },
    { "sequence", T_SEQUENCE, 0 },
    { "string", T_STRING, 0 },
    { "test", T_TEST, 0 },
    { "true", T_TRUE, 0 },
    { "undefined", T_UNDEFINED, 0 },
    { "upper", T_UPPER, 0 },
    { "==", T_COMPARE, XM_T_EQ },
    { "eq", T_COMPARE, XM_T_EQ },
    { "equalto", T_COMPARE, XM_T_EQ },
    { "!=", T_COMPARE, XM_T_NE },
    { "ne", T_COMPARE, XM_T_NE },
    { ">", T_COMPARE, XM_T_GT },
    { "gt", T_COMPARE, XM_T_GT },
    { "greaterthan", T_COMPARE, XM_T_GT },
    { ">=", T_COMPARE, XM_T_GE },
    { "ge", T_COMPARE, XM_T_GE },
    { "<", T_COMPARE, XM_T_LT },
    { "lt", T_COMPARE, XM_T_LT },
    { "lessthan", T_COMPARE, XM_T_LT },
    { "<=", T_COMPARE, XM_T_LE },
    { "le", T_COMPARE, XM_T_LE },
};

int xm_jfind_test(const char *name, size_t size)
{
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        if (strlen(tests[i].name) == size && !memcmp(tests[i].name, name, size))
            return (int)i;
    return -1;
}

/* An undefined value is callable, since jinja2's class Undefined has a
 * __call__, which raises. */
static int is_callable(xm_jvalue in)
{
    return in.kind == XM_J_FUNC || in.kind == XM_J_BOUND ||
           in.kind == XM_J_MACRO || in.kind == XM_J_JOINER ||
           in.kind == XM_J_LOOP || in.kind == XM_J_UNDEF;
}

/* Tells in *out whether in % by == rest, by Python's rules for any types. */
static int is_remainder(xm_jinterp *interp, xm_jvalue in, xm_jvalue by,
                        int64_t rest, int *out)
{
    xm_jvalue value;
    return xm_jbinary_op(interp, XM_T_MOD, in, by, &value) ||
           xm_jequal(interp, value, xm_jint(rest), out);
}

/* Python's `is`. Equal integers count as one object, floats never do. */
static int is_same_object(xm_jvalue a, xm_jvalue b)
{
    if (a.kind != b.kind)
        return 0;
    switch ((enum xm_jkind)a.kind) {
    case XM_J_NONE:
        return 1;
    case XM_J_BOOL:
    case XM_J_INT:
        return a.u.i == b.u.i;
    case XM_J_FUNC:
        return a.sub == b.sub;
    case XM_J_FLOAT:
        return 0;
    default:
        return (const void *)a.u.list == (const void *)b.u.list &&
               a.sub == b.sub;
    }
}

/* Tells in *out whether str(in).islower() or .isupper(), as `what` says. */
static int is_text_of_class(xm_jinterp *interp, xm_jvalue in,
                            enum xm_jclass what, int *out)
{
    if (xm_jto_str(interp, in, &in))
        return -1;
    *out = xm_jis_class(in.u.str, what);
    return xm_jcount_work(interp, in.u.str->size / 8);
}

static int run_test_with_arg(xm_jinterp *interp, enum test test, int op,
                             xm_jvalue in, xm_jvalue arg, int *out)
{
    switch (test) {
    case T_DIVISIBLE:
        return is_remainder(interp, in, arg, 0, out);
    case T_IN:
        return xm_jcontains(interp, in, arg, out);
    case T_SAMEAS:
        *out = is_same_object(in, arg);
        return 0;
    default:
        return xm_jcompare_op(interp, op, in, arg, out);
    }
}

static int run_plain_test(xm_jinterp *interp, enum test test, xm_jvalue in,
                          int *out)
{
    size_t length;
    switch (test) {
    case T_BOOLEAN:
        *out = in.kind == XM_J_BOOL;
        return 0;
    case T_CALLABLE:
        *out = is_callable(in);
        return 0;
    case T_DEFINED:
        *out = in.kind != XM_J_UNDEF;
        return 0;
    case T_UNDEFINED:
        *out = in.kind == XM_J_UNDEF;
        return 0;
    case T_ESCAPED:
        *out = in.markup;
        return 0;
    case T_EVEN:
    case T_ODD:
        return is_remainder(interp, in, xm_jint(2), test == T_ODD, out);
    case T_FALSE:
    case T_TRUE:
        *out = in.kind == XM_J_BOOL && in.u.i == (test == T_TRUE);
        return 0;
    case T_FILTER:
        *out = in.kind == XM_J_STR &&
               xm_jfind_filter(in.u.str->text, in.u.str->size) >= 0;
        return 0;
    case T_TEST:
        *out = in.kind == XM_J_STR &&
               xm_jfind_test(in.u.str->text, in.u.str->size) >= 0;
        return 0;
    case T_FLOAT:
        *out = in.kind == XM_J_FLOAT;
        return 0;
    case T_INTEGER:
        *out = in.kind == XM_J_INT;
        return 0;
    case T_NUMBER:
        *out = xm_jis_number(in);
        return 0;
    case T_ITERABLE:
        *out = xm_jis_iterable(in);
        return 0;
    case T_LOWER:
        return is_text_of_class(interp, in, XM_J_ISLOWER, out);
    case T_UPPER:
        return is_text_of_class(interp, in, XM_J_ISUPPER, out);
    case T_MAPPING:
        *out = in.kind == XM_J_DICT;
        return 0;
    case T_NONE:
        *out = in.kind == XM_J_NONE;
        return 0;
    case T_SEQUENCE:
        *out = in.kind != XM_J_VIEW && in.kind != XM_J_LOOP &&
               !xm_jlength(in, &length);
        return 0;
    case T_STRING:
        *out = in.kind == XM_J_STR;
        return 0;
    default:
        return xm_jfail(interp, "this is not a test");
    }
}

int xm_jcall_test(xm_jinterp *interp, int id, xm_jvalue in,
                  const xm_jargs *args, int *out)
{
    enum test test = tests[id].test;
    int takes_arg = test == T_DIVISIBLE || test == T_IN || test == T_SAMEAS ||
                    test == T_COMPARE;
    static const char *const other_name[] = { "other", NULL };
    static const char *const num_name[] = { "num", NULL };
    static const char *const seq_name[] = { "seq", NULL };
    static const char *const no_names[] = { NULL };
    xm_jvalue arg;
    const char *const *names = !takes_arg            ? no_names
                               : test == T_DIVISIBLE ? num_name
                               : test == T_IN        ? seq_name
                                                     : other_name;
    if (xm_jcount_work(interp, 1) ||
        xm_jbind_args(interp, tests[id].name, args, names, (size_t)takes_arg,
                      &arg))
        return -1;
    return takes_arg
               ? run_test_with_arg(interp, test, tests[id].op, in, arg, out)
               : run_plain_test(interp, test, in, out);
}
