/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes LaTeX as plain text, approximately as pylatexenc does, which PRM800K
 * uses before it compares answers.
 */
#include <string.h>

#include "plugins/reward-rule/math.h"

#define MAX_DEPTH 32

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

static void convert_text(rule_text text, int depth, rule_buffer *out);

/* Takes {x}, one character or one command from the front of *rest. */
static rule_text take_argument(rule_text *rest)
{
    while (rest->size && *rest->data == ' ')
        *rest = rule_text_from(*rest, 1);
    size_t size = rule_char_size(*rest);
    if (size && *rest->data == '{') {
        int depth = 0;
        for (size_t i = 0; i < rest->size; i++) {
            depth += (rest->data[i] == '{') - (rest->data[i] == '}');
            if (depth == 0) {
                rule_text inside = { rest->data + 1, i - 1 };
                *rest = rule_text_from(*rest, i + 1);
                return inside;
            }
        }
    }
    if (size && *rest->data == '\\')
        while (size < rest->size && rule_ascii_letter(rest->data[size]))
            size++;
    rule_text one = { rest->data, size };
    *rest = rule_text_from(*rest, size);
    return one;
}

static void convert_command(rule_text name, rule_text *rest, int depth,
                            rule_buffer *out)
{
    int fraction = rule_equal(name, rule_text_of("frac"), 0) ||
                   rule_equal(name, rule_text_of("dfrac"), 0) ||
                   rule_equal(name, rule_text_of("tfrac"), 0);
    if (fraction) {
        rule_buffer_puts(out, " ");
        convert_text(take_argument(rest), depth + 1, out);
        rule_buffer_puts(out, "/");
        convert_text(take_argument(rest), depth + 1, out);
        return;
    }
    if (rule_equal(name, rule_text_of("sqrt"), 0)) {
        if (rule_begins(*rest, "["))
            *rest = rule_text_from(*rest, rule_seek(*rest, "]") + 1);
        rule_buffer_puts(out, "sqrt(");
        convert_text(take_argument(rest), depth + 1, out);
        rule_buffer_puts(out, ")");
        return;
    }
    if (rule_equal(name, rule_text_of("begin"), 0)) {
        (void)take_argument(rest);
        rule_buffer_puts(out, "[ ");
    } else if (rule_equal(name, rule_text_of("end"), 0)) {
        (void)take_argument(rest);
        rule_buffer_puts(out, " ]");
    }
    for (size_t i = 0; commands[i][0]; i++)
        if (rule_equal(name, rule_text_of(commands[i][0]), 0))
            rule_buffer_puts(out, commands[i][1]);
}

static void convert_text(rule_text text, int depth, rule_buffer *out)
{
    if (depth > MAX_DEPTH) {
        out->full = 1;
        return;
    }
    while (text.size && !out->full) {
        char c = *text.data;
        text = rule_text_from(text, 1);
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
            text = rule_text_from(text, 1);
        } else {
            rule_text name = { text.data, 0 };
            while (name.size < text.size &&
                   rule_ascii_letter(name.data[name.size]))
                name.size++;
            text = rule_text_from(text, name.size);
            convert_command(name, &text, depth, out);
        }
    }
}

void rule_latex_to_text(rule_text latex, rule_buffer *out)
{
    out->size = 0;
    out->full = 0;
    convert_text(latex, 0, out);
}
