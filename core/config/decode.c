/* SPDX-License-Identifier: Apache-2.0
 *
 * Decodes the text of values into typed fields by option tables, and reports
 * keys and sections that no table has.
 */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "core/base/elements.h"
#include "core/base/file.h"
#include "core/base/hub.h"
#include "core/base/system_error.h"
#include "core/config/internal.h"

/* An option of a section with its entry and the field that receives its
 * value. */
typedef struct setting {
    xr_config *config;
    const char *section;
    const xray_option *option;
    xr_entry *entry;
    unsigned char *field;
    xr_errors *errors;
} setting;

XRAY_PRINTF(2, 3)
static void report_bad_value(const setting *s, const char *fmt, ...)
{
    char text[768];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (s->entry)
        s->entry->flags |= XR_ENTRY_REFUSED;
    xr_errors_add(s->errors, "%s: [%s] %s: %s",
                  s->entry ? s->entry->origin : "default", s->section,
                  s->option->name, text);
}

xray_option xr_option_at(xr_table table, size_t i)
{
    xray_option option;
    xr_element_read(table.options, table.stride, i, sizeof(option), &option);
    return option;
}

const char *xr_option_bound(const xray_option *o, double value, char *buffer,
                            size_t cap)
{
    if (o->type == XRAY_OPT_DURATION) {
        (void)snprintf(buffer, cap, "%.15gs", value / 1e9);
        return buffer;
    }
    if (o->type == XRAY_OPT_BYTES && value >= 1024 && value <= 0x1p62 &&
        !((uint64_t)value % 1024)) {
        static const char suffixes[] = "KMGT";
        uint64_t size = (uint64_t)value / 1024;
        size_t i = 0;
        for (; i < 3 && size % 1024 == 0; i++)
            size /= 1024;
        (void)snprintf(buffer, cap, "%llu%c", (unsigned long long)size,
                       suffixes[i]);
        return buffer;
    }
    int is_integer =
        value > -1e18 && value < 1e18 && value == (double)(int64_t)value;
    (void)snprintf(buffer, cap, is_integer ? "%.0f" : "%.15g", value);
    return buffer;
}

/* The text of a value in a message. */
static const char *shown_text(const setting *s, const char *text)
{
    return s->option->flags & XRAY_OPT_SECRET ? "(secret)" : text;
}

static int is_in_range(const setting *s, const char *text, double value)
{
    char least[40];
    char most[40];
    const xray_option *o = s->option;
    if (o->min > o->max || (value >= o->min && value <= o->max))
        return 1;
    const char *unit = o->type == XRAY_OPT_DURATION ? NULL : o->unit;
    report_bad_value(s, "%s%s%s is out of range; expected %s to %s",
                     shown_text(s, text), unit ? " " : "", unit ? unit : "",
                     xr_option_bound(o, o->min, least, sizeof(least)),
                     xr_option_bound(o, o->max, most, sizeof(most)));
    return 0;
}

static void store_field(const setting *s, const void *value, size_t size)
{
    memcpy(s->field, value, size);
}

/* ---- one function per type ---------------------------------------------- */

/* Returns 0 or 1, or -1 if the text is neither. */
static int parse_bool(const char *text)
{
    static const char *const words[] = { "false", "true", "no", "yes",
                                         "off",   "on",   "0",  "1" };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasecmp(text, words[i]) == 0)
            return (int)(i & 1u);
    return -1;
}

static void decode_bool(const setting *s, const char *text)
{
    int parsed = parse_bool(text);
    uint32_t value = parsed > 0;
    if (parsed < 0)
        report_bad_value(s, "'%s' is neither true nor false",
                         shown_text(s, text));
    else
        store_field(s, &value, sizeof(value));
}

static void decode_tristate(const setting *s, const char *text)
{
    int64_t value = XRAY_AUTO;
    int parsed = parse_bool(text);
    if (parsed < 0 && strcasecmp(text, "auto") != 0) {
        report_bad_value(s, "'%s' is not true, false or auto",
                         shown_text(s, text));
        return;
    }
    if (parsed >= 0)
        value = parsed;
    store_field(s, &value, sizeof(value));
}

static void decode_int(const setting *s, const char *text)
{
    int64_t value;
    const char *digits = text + (*text == '-');
    int is_integer = *digits && !digits[strspn(digits, "0123456789")];
    if (xr_parse_int(text, &value) == 0) {
        if (is_in_range(s, text, (double)value))
            store_field(s, &value, sizeof(value));
    } else if (!is_integer) {
        report_bad_value(s, "'%s' is not an integer", shown_text(s, text));
    } else if (is_in_range(s, text, *text == '-' ? -HUGE_VAL : HUGE_VAL)) {
        report_bad_value(s, "%s does not fit in 64 bits", shown_text(s, text));
    }
}

static void decode_real(const setting *s, const char *text)
{
    double value;
    if (xr_parse_real(text, &value) != 0)
        report_bad_value(s, "'%s' is not a number", shown_text(s, text));
    else if (is_in_range(s, text, value))
        store_field(s, &value, sizeof(value));
}

static void decode_bytes(const setting *s, const char *text)
{
    uint64_t value;
    if (xr_parse_bytes(text, &value) != 0)
        report_bad_value(s, "'%s' is not a size such as 4096, 64M or 1.5G",
                         shown_text(s, text));
    else if (is_in_range(s, text, (double)value))
        store_field(s, &value, sizeof(value));
}

static void decode_duration(const setting *s, const char *text)
{
    int64_t value;
    if (xr_parse_duration(text, s->option->unit, &value) != 0)
        report_bad_value(s, "'%s' is not a duration such as 500ms, 1.5s or 2h",
                         shown_text(s, text));
    else if (is_in_range(s, text, (double)value))
        store_field(s, &value, sizeof(value));
}

static void decode_choice(const setting *s, const char *text)
{
    xr_str names = { 0 };
    const char *near = NULL;
    unsigned best = 3;
    const xray_choice *c = s->option->choices;
    for (; c && c->name; c = xray_next_choice(s->option, c)) {
        if (strcmp(c->name, text) == 0) {
            store_field(s, &c->value, sizeof(c->value));
            return;
        }
    }
    for (c = s->option->choices; c && c->name;
         c = xray_next_choice(s->option, c)) {
        unsigned distance = xr_edit_distance(text, c->name, 2);
        if (distance < best && !(s->option->flags & XRAY_OPT_SECRET)) {
            best = distance;
            near = c->name;
        }
        xr_str_printf(&names, "%s%s", names.size ? ", " : "", c->name);
    }
    report_bad_value(s, "'%s' is not one of %s%s%s%s", shown_text(s, text),
                     xr_str_text(&names), near ? "; did you mean " : "",
                     near ? near : "", near ? "?" : "");
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

/* A printed path must mean the same file in whatever folder it is read. */
static const char *make_absolute(const setting *s, const char *path)
{
    char here[XR_PATH_CAP];
    if (!*path || *path == '/')
        return path;
    if (getcwd(here, sizeof(here)))
        return xr_config_keepf(s->config, "%s/%s", here, path);
    report_bad_value(s, "%s: the working directory is unknown: %s",
                     shown_text(s, path), XR_SYSTEM_ERROR(errno));
    return path;
}

/* Adds a remark, once, however often the section is decoded. */
static void note_found(const setting *s, const char *id, const char *dir)
{
    xr_config *config = s->config;
    xr_found **end = &config->found;
    const char *text = xr_config_keepf(config, "[%s] %s: %s is %s", s->section,
                                       s->option->name, id, dir);
    for (; *end; end = &(*end)->next)
        if (strcmp((*end)->text, text) == 0)
            return;
    xr_found *found = xr_config_array(config, 1, sizeof(*found));
    if (!found)
        return;
    found->text = text;
    *end = found;
}

const char *xr_config_found(const xr_config *config, size_t i)
{
    const xr_found *found = config->found;
    while (found && i--)
        found = found->next;
    return found ? found->text : NULL;
}

/* Returns the snapshot in the hub's cache that an id stands for, or `path`,
 * which the id is as a path. A folder of that name comes first. A missing
 * snapshot is reported by whoever misses the folder. */
static const char *find_hub_model(const setting *s, const char *id,
                                  const char *path)
{
    char snapshot[XR_PATH_CAP];
    if (!xr_hub_is_id(id) || xr_path_exists(path) ||
        xr_hub_find(id, snapshot, sizeof(snapshot), NULL) != XRAY_OK)
        return path;
    note_found(s, id, snapshot);
    return xr_config_keep(s->config, snapshot, strlen(snapshot));
}

static void decode_string(const setting *s, const char *text)
{
    if (!*text && s->option->flags & XRAY_OPT_REQUIRED) {
        report_bad_value(s, "must not be empty");
        return;
    }
    const char *given = text;
    if (s->option->type == XRAY_OPT_PATH)
        text = xr_config_resolve(s->config, s->entry, text);
    if (s->option->flags & XRAY_OPT_MODEL)
        text = find_hub_model(s, given, text);
    if (s->entry && (s->option->type == XRAY_OPT_PATH || text != given))
        s->entry->printed = make_absolute(s, text);
    store_field(s, &text, sizeof(text));
}

static void decode_list(const setting *s, const char *text)
{
    size_t count = 1;
    for (const char *at = text; *at; at++)
        count += *at == ',';
    const char **items = xr_config_array(s->config, count, sizeof(*items));
    if (!items)
        return;
    xray_list list = { items, 0 };
    int refused = 0;
    int paths = (s->option->flags & XRAY_OPT_PATHS) != 0;
    xr_str printed = { 0 };
    for (const char *at = text; *text;) {
        at += strspn(at, " \t\n");
        size_t size = strcspn(at, ",");
        const char *next = at + size;
        while (size && strchr(" \t\n", at[size - 1]))
            size--;
        if (!size) {
            report_bad_value(s, "item %llu of the list is empty",
                             (unsigned long long)list.count + 1);
            refused = 1;
            break;
        }
        const char *item = xr_config_keep(s->config, at, size);
        if (paths)
            item = xr_config_resolve(s->config, s->entry, item);
        xr_str_printf(&printed, "%s%s", list.count ? ", " : "",
                      paths ? make_absolute(s, item) : item);
        items[list.count++] = item;
        if (!*next)
            break;
        at = next + 1;
    }
    if (printed.failed)
        s->config->failed = 1;
    else if (s->entry && paths && !refused)
        s->entry->printed =
            xr_config_keep(s->config, xr_str_text(&printed), printed.size);
    xr_str_free(&printed);
    if (!refused)
        store_field(s, &list, sizeof(list));
}

static void decode_value(const setting *s, const char *text)
{
    static void (*const by_type[])(const setting *, const char *) = {
        [XRAY_OPT_BOOL] = decode_bool,
        [XRAY_OPT_INT] = decode_int,
        [XRAY_OPT_REAL] = decode_real,
        [XRAY_OPT_BYTES] = decode_bytes,
        [XRAY_OPT_DURATION] = decode_duration,
        [XRAY_OPT_STRING] = decode_string,
        [XRAY_OPT_PATH] = decode_string,
        [XRAY_OPT_CHOICE] = decode_choice,
        [XRAY_OPT_LIST] = decode_list,
        [XRAY_OPT_TRISTATE] = decode_tristate,
    };
    uint32_t type = s->option->type;
    if (!*text && type != XRAY_OPT_STRING && type != XRAY_OPT_PATH &&
        type != XRAY_OPT_LIST)
        report_bad_value(s, "there is no value after '='");
    else if (type >= sizeof(by_type) / sizeof(by_type[0]) || !by_type[type])
        report_bad_value(s,
                         "the option is of type %u, which this xray "
                         "does not know",
                         type);
    else
        by_type[type](s, text);
}

/* ---- tables ------------------------------------------------------------- */

static void mark_known(xr_entry *entry, const xray_option *o)
{
    entry->flags |= XR_ENTRY_KNOWN;
    if (o->flags & XRAY_OPT_SECRET)
        entry->flags |= XR_ENTRY_SECRET;
    if (o->type == XRAY_OPT_PATH || o->flags & XRAY_OPT_PATHS)
        entry->flags |= XR_ENTRY_PATHS;
}

/* Decodes the text in force, or the preset if no layer sets the option. The
 * preset is also decoded before a set value, so that it remains if the value is
 * refused. */
static void decode_option(const setting *s)
{
    const xray_option *o = s->option;
    xr_entry *entry = s->entry;
    mark_known(entry, o);
    if (o->type == XRAY_OPT_STRING || o->type == XRAY_OPT_PATH)
        store_field(s, &(const char *){ "" }, sizeof(const char *));
    if (entry->text && o->preset) {
        setting preset = *s;
        preset.entry = NULL;
        decode_value(&preset, o->preset);
    } else if (o->preset) {
        xr_entry_set(entry,
                     xr_config_keep(s->config, o->preset, strlen(o->preset)),
                     "default", XR_LAYER_DEFAULT);
    }
    if (entry->text)
        decode_value(s, entry->text);
    else if (o->flags & XRAY_OPT_REQUIRED)
        xr_errors_add(s->errors, "%s: [%s] %s is required",
                      xr_config_path(s->config), s->section, o->name);
}

/* Keeps what the field holds unless a layer sets the option. */
static void decode_set_option(const setting *s)
{
    mark_known(s->entry, s->option);
    if (s->entry->text)
        decode_value(s, s->entry->text);
}

/* Returns the number of options that a layer sets. */
static size_t decode_options(xr_config *config, const char *name,
                             xr_table table, void *target, xr_errors *errors,
                             void (*decode)(const setting *))
{
    size_t given = 0;
    xr_section *section = xr_section_get(config, name, "default");
    if (!section)
        return 0;
    section->decoded = 1;
    xr_section_take_variables(config, section);
    for (size_t i = 0; i < table.count; i++) {
        xray_option option = xr_option_at(table, i);
        xr_entry *entry = xr_entry_get(config, section, option.name);
        if (!entry)
            return given;
        given += entry->text && entry->layer != XR_LAYER_DEFAULT;
        decode(&(setting){ config, section->name, &option, entry,
                           (unsigned char *)target + option.offset, errors });
    }
    return given;
}

void xr_config_decode(xr_config *config, const char *name, xr_table table,
                      void *target, xr_errors *errors)
{
    (void)decode_options(config, name, table, target, errors, decode_option);
}

size_t xr_config_decode_over(xr_config *config, const char *name,
                             const char *base, xr_table table, void *target,
                             xr_errors *errors)
{
    xr_errors reported = { 0 };
    xr_config_decode(config, base, table, target, &reported);
    xr_errors_free(&reported);
    return decode_options(config, name, table, target, errors,
                          decode_set_option);
}

void xr_config_ignore(xr_config *config, const char *name)
{
    xr_section *section = xr_section_get(config, name, "default");
    if (section) {
        section->ignored = 1;
        xr_section_take_variables(config, section);
    }
}

/* ---- unknown names ------------------------------------------------------ */

static void append_suggestion(xr_str *out, const char *near)
{
    if (near)
        xr_str_printf(out, "; did you mean %s?", near);
}

/* Number of letters that may be wrong in a suggestion: less than half of the
 * word. */
static unsigned allowed_typos(const char *word)
{
    size_t size = strlen(word);
    return size < 2 ? 0 : size < 5 ? 1 : 2;
}

static void report_unknown_key(const xr_config *config,
                               const xr_section *section, const xr_entry *entry,
                               xr_errors *errors)
{
    xr_str text = { 0 };
    const char *near = NULL;
    const char *elsewhere = NULL;
    unsigned best = allowed_typos(entry->key) + 1;
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
    if (!xr_verl_key(section->name, entry->key, &text))
        append_suggestion(&text, near);
    if (elsewhere && !text.size)
        xr_str_printf(&text, "; [%s] has an option of that name", elsewhere);
    xr_errors_add(errors, "%s: [%s] %s: no such option%s", entry->origin,
                  section->name, entry->key, xr_str_text(&text));
    xr_str_free(&text);
}

static void report_unknown_section(const xr_config *config, const char *name,
                                   const char *origin, xr_errors *errors)
{
    const char *near = NULL;
    unsigned best = allowed_typos(name) + 1;
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

/* Reports each key of a section that only veRL has; 0 if it is none. */
static int report_verl_section(const xr_config *config,
                               const xr_section *section, xr_errors *errors)
{
    int known = 0;
    for (size_t i = 0; i < section->count; i++) {
        const xr_entry *entry = &section->entries[i];
        xr_str text = { 0 };
        if (xr_verl_section_key(config, section->name, entry->key, &text)) {
            known = 1;
            xr_errors_add(errors, "%s: [%s] %s: no such option%s",
                          entry->origin, section->name, entry->key,
                          xr_str_text(&text));
        }
        xr_str_free(&text);
    }
    return known;
}

void xr_config_finish(xr_config *config, xr_errors *errors)
{
    for (size_t i = 0; i < config->count; i++) {
        const xr_section *section = &config->sections[i];
        if (!section->decoded) {
            if (!section->ignored &&
                !report_verl_section(config, section, errors))
                report_unknown_section(config, section->name, section->origin,
                                       errors);
            continue;
        }
        if (section->ignored) /* options of a plugin that is not installed */
            continue;
        for (size_t j = 0; j < section->count; j++)
            if (!(section->entries[j].flags & XR_ENTRY_KNOWN))
                report_unknown_key(config, section, &section->entries[j],
                                   errors);
    }
    for (size_t i = 0; i < config->variable_count; i++)
        if (!config->variables[i].used)
            xr_errors_add(errors,
                          "%s: the name matches no section and key of this run",
                          config->variables[i].name);
    if (config->failed)
        xr_errors_add(errors, "out of memory");
}
