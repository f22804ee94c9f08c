/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts JSON to values, and values to JSON as Python's json.dumps writes it.
 */
#include <math.h>
#include <string.h>

#include "model/chat/jinja.h"

static int read_json_text(xm_jinterp *interp, const char *text, xm_jvalue *out)
{
    size_t size = strlen(text);
    const char *end = text + size;
    size_t chars = 0;
    if (xm_jcount_work(interp, size / 32))
        return -1;
    for (const char *at = text; at < end; chars++) {
        uint32_t code;
        int step =
            (unsigned char)*at < 0x80 ? 1 : xr_utf8_decode(at, end, &code);
        if (!step)
            return xm_jfail(interp, "a text in the messages is not UTF-8");
        at += step;
    }
    return xm_jstr_borrow(interp, text, size, chars, out);
}

static xm_jvalue read_json_number(double value)
{
    if (value == floor(value) && fabs(value) < 0x1p63)
        return xm_jint((int64_t)value);
    return xm_jfloat(value);
}

static int read_json_array(xm_jinterp *interp, const cJSON *item,
                           xm_jvalue *out)
{
    xm_jlist *list;
    if (xm_jlist_new(interp, 0, &list))
        return -1;
    for (const cJSON *child = item->child; child; child = child->next) {
        xm_jvalue value;
        if (xm_jfrom_json(interp, child, &value) ||
            xm_jlist_add(interp, list, value))
            return -1;
    }
    *out = xm_jlist_value(list, XM_J_LIST);
    return 0;
}

static int read_json_object(xm_jinterp *interp, const cJSON *item,
                            xm_jvalue *out)
{
    xm_jdict *dict;
    if (xm_jdict_new(interp, 0, &dict))
        return -1;
    for (const cJSON *child = item->child; child; child = child->next) {
        xm_jvalue key;
        xm_jvalue value;
        if (read_json_text(interp, child->string ? child->string : "", &key) ||
            xm_jfrom_json(interp, child, &value) ||
            xm_jdict_put(interp, dict, key, value))
            return -1;
    }
    *out = xm_jvalue_of(XM_J_DICT);
    out->u.dict = dict;
    return 0;
}

int xm_jfrom_json(xm_jinterp *interp, const cJSON *item, xm_jvalue *out)
{
    int status = 0;
    if (xm_jcount_work(interp, 1) || xm_jenter_level(interp))
        return -1;
    if (cJSON_IsString(item))
        status = read_json_text(interp, item->valuestring, out);
    else if (cJSON_IsNumber(item))
        *out = read_json_number(item->valuedouble);
    else if (cJSON_IsBool(item))
        *out = xm_jbool(cJSON_IsTrue(item));
    else if (cJSON_IsArray(item))
        status = read_json_array(interp, item, out);
    else if (cJSON_IsObject(item))
        status = read_json_object(interp, item, out);
    else
        *out = xm_jnone();
    xm_jleave_level(interp);
    return status;
}

/* The arguments of json.dumps, and the output. */
struct style {
    xm_jinterp *interp;
    xr_str *out;
    const xm_jstr *item;   /* separator after an item */
    const xm_jstr *key;    /* separator after a key */
    const xm_jstr *indent; /* NULL: everything on one line */
    int ascii;
    int sort;
    unsigned depth;
};

static void write_escape(xr_str *out, uint32_t code)
{
    if (code >= 0x10000) {
        code -= 0x10000;
        xr_str_printf(out, "\\u%04x\\u%04x", (unsigned)(0xD800 + (code >> 10)),
                      (unsigned)(0xDC00 + (code & 0x3FF)));
    } else {
        xr_str_printf(out, "\\u%04x", (unsigned)code);
    }
}

static void write_string(const struct style *s, const xm_jstr *str)
{
    static const char plain[] = "\"\"\\\\\nn\rr\tt\ff\bb";
    const char *end = str->text + str->size;
    xr_str_puts(s->out, "\"");
    for (const char *at = str->text; at < end;) {
        uint32_t code = 0;
        int size = xr_utf8_decode(at, end, &code);
        size = size ? size : 1;
        const char *p = plain;
        while (*p && (unsigned char)*p != code)
            p += 2;
        if (code && *p) {
            xr_str_puts(s->out, "\\");
            xr_str_append(s->out, p + 1, 1);
        } else if (code < 0x20 || (s->ascii && code >= 0x7F)) {
            write_escape(s->out, code);
        } else {
            xr_str_append(s->out, at, (size_t)size);
        }
        at += size;
    }
    xr_str_puts(s->out, "\"");
}

static void write_real(const struct style *s, double value)
{
    char text[XM_J_REAL];
    xm_jformat_real(value, text);
    xr_str_puts(s->out, isnan(value)   ? "NaN"
                        : isinf(value) ? (value < 0 ? "-Infinity" : "Infinity")
                                       : text);
}

static void write_line_break(const struct style *s)
{
    if (!s->indent)
        return;
    xr_str_puts(s->out, "\n");
    for (unsigned i = 0; i < s->depth; i++)
        xr_str_append(s->out, s->indent->text, s->indent->size);
}

static int write_value(struct style *s, xm_jvalue value);

static int write_list(struct style *s, const xm_jlist *list)
{
    if (!list->count) {
        xr_str_puts(s->out, "[]");
        return 0;
    }
    xr_str_puts(s->out, "[");
    s->depth++;
    for (size_t i = 0; i < list->count; i++) {
        if (i)
            xr_str_append(s->out, s->item->text, s->item->size);
        write_line_break(s);
        if (write_value(s, list->at[i]))
            return -1;
    }
    s->depth--;
    write_line_break(s);
    xr_str_puts(s->out, "]");
    return 0;
}

static int write_key(struct style *s, xm_jvalue key)
{
    if (key.kind == XM_J_STR) {
        write_string(s, key.u.str);
        return 0;
    }
    if (!xm_jis_number(key) && key.kind != XM_J_NONE)
        return xm_jfail(s->interp,
                        "keys must be str, int, float, bool or None, not %s",
                        xm_jtype_name(key));
    xr_str_puts(s->out, "\"");
    if (write_value(s, key))
        return -1;
    xr_str_puts(s->out, "\"");
    return 0;
}

/* Copies the entries in order of their keys, by insertion. */
static int sort_entries(struct style *s, const xm_jdict *dict, xm_jdict *out)
{
    out->at = xm_jalloc(s->interp, dict->count + 1, sizeof *out->at);
    out->count = dict->count;
    if (!out->at)
        return -1;
    for (size_t i = 0; i < dict->count; i++) {
        size_t at = i;
        while (at) {
            int order;
            if (xm_jorder_values(s->interp, "<", dict->at[i].key,
                                 out->at[at - 1].key, &order))
                return -1;
            if (order >= 0)
                break;
            out->at[at] = out->at[at - 1];
            at--;
        }
        out->at[at] = dict->at[i];
    }
    return 0;
}

static int write_dict(struct style *s, const xm_jdict *dict)
{
    xm_jdict copy;
    if (!dict->count) {
        xr_str_puts(s->out, "{}");
        return 0;
    }
    if (s->sort) {
        if (sort_entries(s, dict, &copy))
            return -1;
        dict = &copy;
    }
    xr_str_puts(s->out, "{");
    s->depth++;
    for (size_t i = 0; i < dict->count; i++) {
        if (i)
            xr_str_append(s->out, s->item->text, s->item->size);
        write_line_break(s);
        if (write_key(s, dict->at[i].key))
            return -1;
        xr_str_append(s->out, s->key->text, s->key->size);
        if (write_value(s, dict->at[i].value))
            return -1;
    }
    s->depth--;
    write_line_break(s);
    xr_str_puts(s->out, "}");
    return 0;
}

static int write_plain_value(struct style *s, xm_jvalue value)
{
    switch ((enum xm_jkind)value.kind) {
    case XM_J_NONE:
        xr_str_puts(s->out, "null");
        return 0;
    case XM_J_BOOL:
        xr_str_puts(s->out, value.u.i ? "true" : "false");
        return 0;
    case XM_J_INT:
        xr_str_printf(s->out, "%lld", (long long)value.u.i);
        return 0;
    case XM_J_FLOAT:
        write_real(s, value.u.f);
        return 0;
    case XM_J_STR:
        write_string(s, value.u.str);
        return xm_jcount_work(s->interp, value.u.str->size / 8);
    case XM_J_LIST:
    case XM_J_TUPLE:
        return write_list(s, value.u.list);
    case XM_J_DICT:
        return write_dict(s, value.u.dict);
    default:
        return xm_jfail(s->interp, "Object of type %s is not JSON serializable",
                        xm_jtype_name(value));
    }
}

static int write_value(struct style *s, xm_jvalue value)
{
    size_t cost = 2 + (s->indent ? s->depth * s->indent->size / 16 : 0);
    if (xm_jcount_work(s->interp, cost) || xm_jenter_level(s->interp))
        return -1;
    int status = write_plain_value(s, value);
    xm_jleave_level(s->interp);
    if (!status && s->out->size > XM_CHAT_MAX_MEMORY)
        return xm_jfail(s->interp,
                        "the template needs more than %zu MiB of memory",
                        XM_CHAT_MAX_MEMORY >> 20);
    return status;
}

static int read_separators(xm_jinterp *interp, xm_jvalue arg, struct style *s)
{
    xm_jlist pair;
    if (xm_jread_items(interp, arg, &pair))
        return -1;
    if (pair.count != 2 || pair.at[0].kind != XM_J_STR ||
        pair.at[1].kind != XM_J_STR)
        return xm_jfail(interp, "tojson: separators must be two strings");
    s->item = pair.at[0].u.str;
    s->key = pair.at[1].u.str;
    return 0;
}

int xm_jto_json(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                xm_jvalue *out)
{
    static const char *const names[] = { "ensure_ascii", "indent", "separators",
                                         "sort_keys", NULL };
    static const xm_jstr comma_space = { ", ", 2, 2 };
    static const xm_jstr comma = { ",", 1, 1 };
    static const xm_jstr colon = { ": ", 2, 2 };
    xm_jvalue arg[4];
    xr_str text = { 0 };
    struct style s = { .interp = interp, .out = &text, .key = &colon };
    if (xm_jbind_args(interp, "tojson", args, names, 0, arg))
        return -1;
    s.ascii = xm_jis_true(arg[0]);
    s.sort = xm_jis_true(arg[3]);
    xm_jvalue indent = arg[1];
    if (indent.kind == XM_J_INT || indent.kind == XM_J_BOOL) {
        int64_t width = indent.u.i < 0 ? 0 : indent.u.i;
        if (width > 1000)
            return xm_jfail(interp, "tojson: the indent is above 1000");
        char spaces[1000];
        memset(spaces, ' ', sizeof spaces);
        if (xm_jstr_copy(interp, spaces, (size_t)width, &indent))
            return -1;
    } else if (indent.kind != XM_J_STR && indent.kind != XM_J_NONE &&
               indent.kind != XM_J_MISSING) {
        return xm_jfail(interp,
                        "tojson: indent must be an integer or a string");
    }
    if (indent.kind == XM_J_STR)
        s.indent = indent.u.str;
    s.item = s.indent ? &comma : &comma_space;
    if (arg[2].kind != XM_J_MISSING && arg[2].kind != XM_J_NONE &&
        read_separators(interp, arg[2], &s))
        return -1;
    if (write_value(&s, in)) {
        xr_str_free(&text);
        return -1;
    }
    return xm_jstr_take(interp, &text, out);
}
