/* SPDX-License-Identifier: Apache-2.0
 *
 * LaTeX as plain text, about as pylatexenc writes it: PRM800K compares that.
 */
#include <string.h>

#include "plugins/reward-rule/math.h"

#define DEEPEST 32

static const char *const commands[][2] = {
    { "cdot", "*" },         { "times", "*" },        { "div", "/" },
    { "pi", "pi" },          { "infty", "inf" },      { "cup", "U" },
    { "le", "<=" },          { "leq", "<=" },         { "ge", ">=" },
    { "geq", ">=" },         { "ne", "!=" },          { "neq", "!=" },
    { "lt", "<" },           { "gt", ">" },           { "pm", "+-" },
    { "quad", " " },         { "qquad", " " },        { "sin", "sin" },
    { "cos", "cos" },        { "tan", "tan" },        { "log", "log" },
    { "ln", "ln" },          { "exp", "exp" },        { "ldots", "..." },
    { "dots", "..." },       { "in", "in" },          { "cap", "cap" },
    { "alpha", "\xCE\xB1" }, { "beta", "\xCE\xB2" },  { "gamma", "\xCE\xB3" },
    { "delta", "\xCE\xB4" }, { "theta", "\xCE\xB8" }, { "lambda", "\xCE\xBB" },
    { "mu", "\xCE\xBC" },    { "phi", "\xCF\x95" },   { "omega", "\xCF\x89" },
    { NULL, NULL },
};

static void convert(rule_text text, int depth, rule_buffer *out);

/* {x} or one character or command; *rest moves behind it. */
static rule_text argument(rule_text *rest)
{
    while (rest->size && *rest->data == ' ')
        *rest = rule_from(*rest, 1);
    size_t size = rule_char_size(*rest);
    if (size && *rest->data == '{') {
        int depth = 0;
        for (size_t i = 0; i < rest->size; i++) {
            depth += (rest->data[i] == '{') - (rest->data[i] == '}');
            if (depth == 0) {
                rule_text inside = { rest->data + 1, i - 1 };
                *rest = rule_from(*rest, i + 1);
                return inside;
            }
        }
    }
    if (size && *rest->data == '\\')
        while (size < rest->size && rule_ascii_letter(rest->data[size]))
            size++;
    rule_text one = { rest->data, size };
    *rest = rule_from(*rest, size);
    return one;
}

static void convert_named(rule_text name, rule_text *rest, int depth,
                          rule_buffer *out)
{
    int fraction = rule_equal(name, rule_text_of("frac"), 0) ||
                   rule_equal(name, rule_text_of("dfrac"), 0) ||
                   rule_equal(name, rule_text_of("tfrac"), 0);
    if (fraction) {
        rule_buffer_puts(out, " ");
        convert(argument(rest), depth + 1, out);
        rule_buffer_puts(out, "/");
        convert(argument(rest), depth + 1, out);
        return;
    }
    if (rule_equal(name, rule_text_of("sqrt"), 0)) {
        if (rule_begins(*rest, "["))
            *rest = rule_from(*rest, rule_seek(*rest, "]") + 1);
        rule_buffer_puts(out, "sqrt(");
        convert(argument(rest), depth + 1, out);
        rule_buffer_puts(out, ")");
        return;
    }
    if (rule_equal(name, rule_text_of("begin"), 0)) {
        (void)argument(rest);
        rule_buffer_puts(out, "[ ");
    } else if (rule_equal(name, rule_text_of("end"), 0)) {
        (void)argument(rest);
        rule_buffer_puts(out, " ]");
    }
    for (size_t i = 0; commands[i][0]; i++)
        if (rule_equal(name, rule_text_of(commands[i][0]), 0))
            rule_buffer_puts(out, commands[i][1]);
}

static void convert(rule_text text, int depth, rule_buffer *out)
{
    if (depth > DEEPEST) {
        out->full = 1;
        return;
    }
    while (text.size && !out->full) {
        char c = *text.data;
        text = rule_from(text, 1);
        if (c == '&' || c == '~') {
            rule_buffer_puts(out, " ");
        } else if (c != '\\') {
            if (c != '{' && c != '}' && c != '$')
                rule_buffer_add(out, &c, 1);
        } else if (text.size && !rule_ascii_letter(*text.data)) {
            char mark = *text.data;
            if (mark == '\\')
                rule_buffer_puts(out, "; ");
            else if (mark == ' ' || mark == ',' || mark == ';' || mark == ':')
                rule_buffer_puts(out, " ");
            else if (mark != '!')
                rule_buffer_add(out, &mark, 1);
            text = rule_from(text, 1);
        } else {
            rule_text name = { text.data, 0 };
            while (name.size < text.size &&
                   rule_ascii_letter(name.data[name.size]))
                name.size++;
            text = rule_from(text, name.size);
            convert_named(name, &text, depth, out);
        }
    }
}

void rule_plain(rule_text latex, rule_buffer *out)
{
    out->size = 0;
    out->full = 0;
    convert(latex, 0, out);
}
