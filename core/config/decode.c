/* SPDX-License-Identifier: Apache-2.0
 *
 * From text to typed fields by option tables, and what is left over.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/config/internal.h"

/* Where a value goes, and what is said when it cannot. */
typedef struct place {
    xr_config *config;
    const char *section;
    const xray_option *option;
    xr_entry *entry;
    unsigned char *field;
    xr_errors *errors;
} place;

XRAY_PRINTF(2, 3)
static void complain(const place *p, const char *fmt, ...)
{
    char text[768];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (p->entry)
        p->entry->flags |= XR_ENTRY_REFUSED;
    xr_errors_add(p->errors, "%s: [%s] %s: %s",
                  p->entry ? p->entry->origin : "default", p->section,
                  p->option->name, text);
}

const char *xr_option_bound(const xray_option *o, double value, char *buffer,
                            size_t cap)
{
    if (o->type == XRAY_OPT_DURATION) {
        (void)snprintf(buffer, cap, "%.15gs", value / 1e9);
        return buffer;
    }
    int whole =
        value > -1e18 && value < 1e18 && value == (double)(int64_t)value;
    (void)snprintf(buffer, cap, whole ? "%.0f" : "%.15g", value);
    return buffer;
}

static int in_range(const place *p, const char *text, double value)
{
    char least[40];
    char most[40];
    const xray_option *o = p->option;
    if (o->min > o->max || (value >= o->min && value <= o->max))
        return 1;
    const char *unit = o->type == XRAY_OPT_DURATION ? NULL : o->unit;
    complain(p, "%s%s%s is out of range, %s to %s are taken", text,
             unit ? " " : "", unit ? unit : "",
             xr_option_bound(o, o->min, least, sizeof(least)),
             xr_option_bound(o, o->max, most, sizeof(most)));
    return 0;
}

static void store(const place *p, const void *value, size_t size)
{
    memcpy(p->field, value, size);
}

/* ---- one function a type ------------------------------------------------ */

static void to_bool(const place *p, const char *text)
{
    static const char *const words[] = { "false", "true", "no", "yes",
                                         "off",   "on",   "0",  "1" };
    for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasecmp(text, words[i]) == 0) {
            uint32_t value = i & 1u;
            store(p, &value, sizeof(value));
            return;
        }
    complain(p, "'%s' is neither true nor false", text);
}

static void to_int(const place *p, const char *text)
{
    int64_t value;
    const char *digits = text + (*text == '-');
    int whole = *digits && !digits[strspn(digits, "0123456789")];
    if (xr_parse_int(text, &value) != 0 && whole)
        (void)in_range(p, text, *text == '-' ? -HUGE_VAL : HUGE_VAL);
    else if (xr_parse_int(text, &value) != 0)
        complain(p, "'%s' is no whole number", text);
    else if (in_range(p, text, (double)value))
        store(p, &value, sizeof(value));
}

static void to_real(const place *p, const char *text)
{
    double value;
    if (xr_parse_real(text, &value) != 0)
        complain(p, "'%s' is no number", text);
    else if (in_range(p, text, value))
        store(p, &value, sizeof(value));
}

static void to_bytes(const place *p, const char *text)
{
    uint64_t value;
    if (xr_parse_bytes(text, &value) != 0)
        complain(p, "'%s' is no size, such as 4096, 64M or 1.5G", text);
    else if (in_range(p, text, (double)value))
        store(p, &value, sizeof(value));
}

static void to_duration(const place *p, const char *text)
{
    int64_t value;
    if (xr_parse_duration(text, p->option->unit, &value) != 0)
        complain(p, "'%s' is no duration, such as 500ms, 1.5s or 2h", text);
    else if (in_range(p, text, (double)value))
        store(p, &value, sizeof(value));
}

static void to_choice(const place *p, const char *text)
{
    xr_str names = { 0 };
    const char *near = NULL;
    unsigned best = 3;
    const xray_choice *c = p->option->choices;
    for (; c && c->name; c++) {
        if (strcmp(c->name, text) == 0) {
            store(p, &c->value, sizeof(c->value));
            return;
        }
    }
    for (c = p->option->choices; c && c->name; c++) {
        unsigned distance = xr_edit_distance(text, c->name, 2);
        if (distance < best) {
            best = distance;
            near = c->name;
        }
        xr_str_printf(&names, "%s%s", names.size ? ", " : "", c->name);
    }
    complain(p, "'%s' is none of %s%s%s%s", text, xr_str_text(&names),
             near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    xr_str_free(&names);
}

const char *xr_config_resolve(xr_config *config, const xr_entry *entry,
                              const char *path)
{
    const char *dir = entry && entry->layer == XR_LAYER_FILE ? entry->dir : "";
    if (!*dir || !*path || *path == '/')
        return path;
    return xr_config_keepf(config, "%s%s", dir, path);
}

/* What is printed must mean the same file in whatever folder it is read. */
static const char *absolute(xr_config *config, const char *path)
{
    char here[XR_PATH_CAP];
    if (!*path || *path == '/' || !getcwd(here, sizeof(here)))
        return path;
    return xr_config_keepf(config, "%s/%s", here, path);
}

static void to_string(const place *p, const char *text)
{
    if (!*text && p->option->flags & XRAY_OPT_REQUIRED) {
        complain(p, "must not be empty");
        return;
    }
    if (p->option->type == XRAY_OPT_PATH) {
        text = xr_config_resolve(p->config, p->entry, text);
        if (p->entry)
            p->entry->printed = absolute(p->config, text);
    }
    store(p, &text, sizeof(text));
}

static void to_list(const place *p, const char *text)
{
    size_t count = 1;
    for (const char *at = text; *at; at++)
        count += *at == ',';
    const char **items = xr_config_array(p->config, count, sizeof(*items));
    if (!items)
        return;
    xray_list list = { items, 0 };
    int refused = 0;
    int paths = (p->option->flags & XRAY_OPT_PATHS) != 0;
    xr_str printed = { 0 };
    for (const char *at = text; *text;) {
        at += strspn(at, " \t\n");
        size_t size = strcspn(at, ",");
        const char *next = at + size;
        while (size && strchr(" \t\n", at[size - 1]))
            size--;
        if (!size) {
            complain(p, "item %llu of the list is empty",
                     (unsigned long long)list.count + 1);
            refused = 1;
            break;
        }
        const char *item = xr_config_keep(p->config, at, size);
        if (paths)
            item = xr_config_resolve(p->config, p->entry, item);
        xr_str_printf(&printed, "%s%s", list.count ? ", " : "",
                      paths ? absolute(p->config, item) : item);
        items[list.count++] = item;
        if (!*next)
            break;
        at = next + 1;
    }
    if (printed.failed)
        p->config->failed = 1;
    else if (p->entry && paths && !refused)
        p->entry->printed =
            xr_config_keep(p->config, xr_str_text(&printed), printed.size);
    xr_str_free(&printed);
    if (!refused)
        store(p, &list, sizeof(list));
}

static void convert(const place *p, const char *text)
{
    static void (*const by_type[])(const place *, const char *) = {
        [XRAY_OPT_BOOL] = to_bool,         [XRAY_OPT_INT] = to_int,
        [XRAY_OPT_REAL] = to_real,         [XRAY_OPT_BYTES] = to_bytes,
        [XRAY_OPT_DURATION] = to_duration, [XRAY_OPT_STRING] = to_string,
        [XRAY_OPT_PATH] = to_string,       [XRAY_OPT_CHOICE] = to_choice,
        [XRAY_OPT_LIST] = to_list,
    };
    uint32_t type = p->option->type;
    if (!*text && type != XRAY_OPT_STRING && type != XRAY_OPT_PATH &&
        type != XRAY_OPT_LIST)
        complain(p, "there is no value behind '='");
    else if (type >= sizeof(by_type) / sizeof(by_type[0]) || !by_type[type])
        complain(p, "the option is of type %u, which this xray does not know",
                 type);
    else
        by_type[type](p, text);
}

/* ---- tables ------------------------------------------------------------- */

/* The text in force; a preset stands in for what no layer sets. A preset is
 * also converted below a value, so that a refused one leaves it in place. */
static void decode_one(const place *p)
{
    const xray_option *o = p->option;
    xr_entry *entry = p->entry;
    entry->flags |= XR_ENTRY_KNOWN;
    if (o->flags & XRAY_OPT_SECRET)
        entry->flags |= XR_ENTRY_SECRET;
    if (o->type == XRAY_OPT_PATH || o->flags & XRAY_OPT_PATHS)
        entry->flags |= XR_ENTRY_PATHS;
    if (o->type == XRAY_OPT_STRING || o->type == XRAY_OPT_PATH)
        store(p, &(const char *){ "" }, sizeof(const char *));
    if (entry->text && o->preset) {
        place preset = *p;
        preset.entry = NULL;
        convert(&preset, o->preset);
    } else if (o->preset) {
        xr_entry_set(entry,
                     xr_config_keep(p->config, o->preset, strlen(o->preset)),
                     "default", XR_LAYER_DEFAULT);
    }
    if (entry->text)
        convert(p, entry->text);
    else if (o->flags & XRAY_OPT_REQUIRED)
        xr_errors_add(p->errors, "%s: [%s] %s is required",
                      xr_config_path(p->config), p->section, o->name);
}

void xr_config_decode(xr_config *config, const char *name, xr_table table,
                      void *target, xr_errors *errors)
{
    xr_section *section = xr_section_get(config, name, "default");
    if (!section)
        return;
    section->decoded = 1;
    xr_section_take_variables(config, section);
    const unsigned char *at = (const unsigned char *)table.options;
    for (size_t i = 0; i < table.count; i++, at += table.stride) {
        xray_option option = { 0 };
        memcpy(&option, at,
               table.stride < sizeof(option) ? table.stride : sizeof(option));
        xr_entry *entry = xr_entry_get(config, section, option.name);
        if (!entry)
            return;
        decode_one(&(place){ config, section->name, &option, entry,
                             (unsigned char *)target + option.offset, errors });
    }
}

void xr_config_ignore(xr_config *config, const char *name)
{
    xr_section *section = xr_section_get(config, name, "default");
    if (section) {
        section->ignored = 1;
        xr_section_take_variables(config, section);
    }
}

/* ---- what no table knows ------------------------------------------------ */

static void hint(xr_str *out, const char *near)
{
    if (near)
        xr_str_printf(out, "; did you mean %s?", near);
}

/* How many letters may be wrong: less than half of a word. */
static unsigned reach(const char *word)
{
    size_t size = strlen(word);
    return size < 2 ? 0 : size < 5 ? 1 : 2;
}

static void unknown_key(const xr_config *config, const xr_section *section,
                        const xr_entry *entry, xr_errors *errors)
{
    xr_str text = { 0 };
    const char *near = NULL;
    const char *elsewhere = NULL;
    unsigned best = reach(entry->key) + 1;
    for (size_t i = 0; i < section->count; i++) {
        const xr_entry *known = &section->entries[i];
        if (!(known->flags & XR_ENTRY_KNOWN))
            continue;
        unsigned distance = xr_edit_distance(entry->key, known->key, best);
        if (distance < best) {
            best = distance;
            near = known->key;
        }
    }
    for (size_t i = 0; !near && !elsewhere && i < config->count; i++) {
        const xr_entry *known = xr_entry_find(&config->sections[i], entry->key);
        if (known && known->flags & XR_ENTRY_KNOWN)
            elsewhere = config->sections[i].name;
    }
    hint(&text, near);
    if (elsewhere)
        xr_str_printf(&text, "; [%s] has one of that name", elsewhere);
    xr_errors_add(errors, "%s: [%s] %s: no such option%s", entry->origin,
                  section->name, entry->key, xr_str_text(&text));
    xr_str_free(&text);
}

static void unknown_section(const xr_config *config, const char *name,
                            const char *origin, xr_errors *errors)
{
    const char *near = NULL;
    unsigned best = reach(name) + 1;
    for (size_t i = 0; i < config->count; i++) {
        const xr_section *s = &config->sections[i];
        if (!s->decoded && !s->ignored)
            continue;
        unsigned distance = xr_edit_distance(name, s->name, best);
        if (distance < best) {
            best = distance;
            near = s->name;
        }
    }
    xr_errors_add(errors, "%s: [%s]: no such section%s%s%s", origin, name,
                  near ? "; did you mean [" : "", near ? near : "",
                  near ? "]?" : "");
}

void xr_config_finish(xr_config *config, xr_errors *errors)
{
    for (size_t i = 0; i < config->count; i++) {
        const xr_section *section = &config->sections[i];
        if (!section->decoded) {
            if (!section->ignored)
                unknown_section(config, section->name, section->origin, errors);
            continue;
        }
        if (section->ignored) /* of a plugin that is not there */
            continue;
        for (size_t j = 0; j < section->count; j++)
            if (!(section->entries[j].flags & XR_ENTRY_KNOWN))
                unknown_key(config, section, &section->entries[j], errors);
    }
    for (size_t i = 0; i < config->variable_count; i++)
        if (!config->variables[i].used)
            xr_errors_add(errors,
                          "%s: no section and key of this run have that name",
                          config->variables[i].name);
    if (config->failed)
        xr_errors_add(errors, "out of memory");
}
