/* SPDX-License-Identifier: Apache-2.0
 *
 * Stores sections, keys and values of a configuration by layer, and collects
 * errors.
 */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/config/internal.h"

struct xr_kept {
    xr_kept *next;
    char data[];
};

/* ---- errors ------------------------------------------------------------- */

/* Replaces a sentence that could not be allocated; `lone_error` replaces the
 * list, so that an error is never lost. */
static char out_of_memory[] = "out of memory";
static char *lone_error[] = { out_of_memory };

void xr_errors_add(xr_errors *errors, const char *fmt, ...)
{
    if (errors->items == lone_error)
        return;
    if (errors->count == errors->cap) {
        size_t cap = errors->cap ? 2 * errors->cap : 16;
        char **items = realloc(errors->items, cap * sizeof(*items));
        if (!items && !errors->count) {
            errors->items = lone_error;
            errors->count = 1;
        }
        if (!items)
            return;
        errors->items = items;
        errors->cap = cap;
    }
    va_list args;
    va_start(args, fmt);
    int size = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = size < 0 ? NULL : malloc((size_t)size + 1);
    if (text) {
        va_start(args, fmt);
        (void)vsnprintf(text, (size_t)size + 1, fmt, args);
        va_end(args);
        xr_one_line(text);
    }
    errors->items[errors->count++] = text ? text : out_of_memory;
}

void xr_errors_free(xr_errors *errors)
{
    for (size_t i = 0; i < errors->count; i++)
        if (errors->items[i] != out_of_memory)
            free(errors->items[i]);
    if (errors->items != lone_error)
        free(errors->items);
    *errors = (xr_errors){ 0 };
}

/* ---- memory ------------------------------------------------------------- */

xr_config *xr_config_new(void)
{
    return calloc(1, sizeof(xr_config));
}

void xr_config_free(xr_config *config)
{
    if (!config)
        return;
    for (size_t i = 0; i < config->count; i++)
        free(config->sections[i].entries);
    free(config->sections);
    free(config->variables);
    while (config->kept) {
        xr_kept *next = config->kept->next;
        free(config->kept);
        config->kept = next;
    }
    free(config);
}

static char *allocate_kept(xr_config *config, size_t size)
{
    xr_kept *kept = calloc(1, sizeof(*kept) + size);
    if (!kept) {
        config->failed = 1;
        return NULL;
    }
    kept->next = config->kept;
    config->kept = kept;
    return kept->data;
}

void *xr_config_array(xr_config *config, size_t count, size_t size)
{
    return allocate_kept(config, count * size);
}

const char *xr_config_keep(xr_config *config, const char *text, size_t size)
{
    char *to = allocate_kept(config, size + 1);
    if (!to)
        return "";
    memcpy(to, text, size);
    return to;
}

const char *xr_config_keepf(xr_config *config, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int size = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *to = size < 0 ? NULL : allocate_kept(config, (size_t)size + 1);
    if (!to)
        return "";
    va_start(args, fmt);
    (void)vsnprintf(to, (size_t)size + 1, fmt, args);
    va_end(args);
    return to;
}

/* ---- sections and entries ----------------------------------------------- */

int xr_config_name_ok(const char *name, size_t size, int dots)
{
    for (size_t i = 0; i < size; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '_' &&
            name[i] != '-' && !(dots && name[i] == '.'))
            return 0;
    return size > 0;
}

xr_section *xr_section_find(const xr_config *config, const char *name)
{
    for (size_t i = 0; i < config->count; i++)
        if (strcmp(config->sections[i].name, name) == 0)
            return &config->sections[i];
    return NULL;
}

xr_section *xr_section_get(xr_config *config, const char *name,
                           const char *origin)
{
    xr_section *found = xr_section_find(config, name);
    if (found)
        return found;
    if (config->count == config->cap) {
        size_t cap = config->cap ? 2 * config->cap : 16;
        xr_section *all = realloc(config->sections, cap * sizeof(*all));
        if (!all) {
            config->failed = 1;
            return NULL;
        }
        config->sections = all;
        config->cap = cap;
    }
    xr_section *section = &config->sections[config->count++];
    *section = (xr_section){
        .name = xr_config_keep(config, name, strlen(name)),
        .origin = xr_config_keep(config, origin, strlen(origin)),
    };
    return section;
}

xr_entry *xr_entry_find(const xr_section *section, const char *key)
{
    for (size_t i = 0; section && i < section->count; i++)
        if (strcmp(section->entries[i].key, key) == 0)
            return &section->entries[i];
    return NULL;
}

xr_entry *xr_entry_get(xr_config *config, xr_section *section, const char *key)
{
    xr_entry *found = xr_entry_find(section, key);
    if (found || !section)
        return found;
    if (section->count == section->cap) {
        size_t cap = section->cap ? 2 * section->cap : 16;
        xr_entry *all = realloc(section->entries, cap * sizeof(*all));
        if (!all) {
            config->failed = 1;
            return NULL;
        }
        section->entries = all;
        section->cap = cap;
    }
    xr_entry *entry = &section->entries[section->count++];
    *entry = (xr_entry){ .key = xr_config_keep(config, key, strlen(key)),
                         .origin = "default" };
    return entry;
}

void xr_entry_set(xr_entry *entry, const char *text, const char *origin,
                  uint32_t layer)
{
    if (!entry || layer < entry->layer)
        return;
    entry->text = text;
    entry->printed = NULL;
    entry->origin = origin;
    entry->layer = layer;
}

void xr_config_preset(xr_config *config, const char *section, const char *key,
                      const char *text)
{
    xr_section *s = xr_section_get(config, section, "default");
    if (s)
        xr_entry_set(xr_entry_get(config, s, key),
                     xr_config_keep(config, text, strlen(text)), "default",
                     XR_LAYER_DEFAULT);
}

/* ---- environment and --set ----------------------------------------------- */

int xr_variable_names(const char *variable, const char *section,
                      const char **out_key)
{
    const char *at = variable + strlen("XRAY_");
    for (; *section; section++, at++) {
        int c = toupper((unsigned char)*section);
        if (*at != (isalnum(c) ? c : '_'))
            return 0;
    }
    *out_key = at + 2;
    return at[0] == '_' && at[1] == '_' && at[2] != '\0';
}

/* A file holds no control character but a tab, and text in quotes a newline as
 * an escape; what is set in another way can be printed and read back, too. */
static int report_control(const char *value, const char *name,
                          xr_errors *errors)
{
    for (; *value; value++)
        if ((unsigned char)*value < 0x20 && *value != '\t' && *value != '\n') {
            xr_errors_add(errors,
                          "%s: the value holds the control character 0x%02x",
                          name, (unsigned)(unsigned char)*value);
            return 1;
        }
    return 0;
}

void xr_config_environment(xr_config *config, char *const *environ_list,
                           xr_errors *errors)
{
    size_t count = 0;
    while (environ_list[count])
        count++;
    xr_variable *all = realloc(
        config->variables, (config->variable_count + count + 1) * sizeof(*all));
    if (!all) {
        xr_errors_add(errors, "out of memory");
        return;
    }
    config->variables = all;
    for (size_t i = 0; i < count; i++) {
        const char *text = environ_list[i];
        const char *equals = strchr(text, '=');
        if (strncmp(text, "XRAY_", 5) != 0 || !equals)
            continue;
        const char *name =
            xr_config_keep(config, text, (size_t)(equals - text));
        if (strstr(name, "__") && !report_control(equals + 1, name, errors))
            all[config->variable_count++] = (xr_variable){
                .name = name,
                .value = xr_config_keep(config, equals + 1, strlen(equals + 1)),
            };
    }
}

void xr_section_take_variables(xr_config *config, xr_section *section)
{
    for (size_t i = 0; i < config->variable_count; i++) {
        xr_variable *v = &config->variables[i];
        const char *rest = NULL;
        char key[XR_NAME_MAX + 1];
        if (v->used || !xr_variable_names(v->name, section->name, &rest) ||
            strlen(rest) > XR_NAME_MAX)
            continue;
        size_t size = strlen(rest);
        for (size_t j = 0; j <= size; j++)
            key[j] = (char)tolower((unsigned char)rest[j]);
        v->used = 1;
        xr_entry_set(xr_entry_get(config, section, key), v->value, v->name,
                     XR_LAYER_ENVIRONMENT);
    }
}

void xr_config_set(xr_config *config, const char *assignment, xr_errors *errors)
{
    const char *equals = strchr(assignment, '=');
    const char *dot = equals;
    while (dot && dot > assignment && *dot != '.')
        dot--;
    if (!dot || *dot != '.' ||
        !xr_config_name_ok(assignment, (size_t)(dot - assignment), 1) ||
        !xr_config_name_ok(dot + 1, (size_t)(equals - dot - 1), 0)) {
        xr_errors_add(errors, "--set %s: expected section.key=value",
                      assignment);
        return;
    }
    const char *section =
        xr_config_keep(config, assignment, (size_t)(dot - assignment));
    const char *key =
        xr_config_keep(config, dot + 1, (size_t)(equals - dot - 1));
    if (strlen(section) > XR_NAME_MAX || strlen(key) > XR_NAME_MAX) {
        xr_errors_add(errors,
                      "--set %s: a section or a key has at most %u characters",
                      assignment, XR_NAME_MAX);
        return;
    }
    char name[2 * XR_NAME_MAX + 16];
    (void)snprintf(name, sizeof(name), "--set %s.%s", section, key);
    if (report_control(equals + 1, name, errors))
        return;
    xr_section *s = xr_section_get(config, section, "--set");
    if (s)
        xr_entry_set(xr_entry_get(config, s, key),
                     xr_config_keep(config, equals + 1, strlen(equals + 1)),
                     "--set", XR_LAYER_SET);
}

/* ---- reading back ------------------------------------------------------- */

const char *xr_config_get(const xr_config *config, const char *section,
                          const char *key)
{
    const xr_entry *entry =
        xr_entry_find(xr_section_find(config, section), key);
    return entry ? entry->text : NULL;
}

const char *xr_config_origin(const xr_config *config, const char *section,
                             const char *key)
{
    const xr_entry *entry =
        xr_entry_find(xr_section_find(config, section), key);
    return entry ? entry->origin : "default";
}

int xr_config_refused(const xr_config *config, const char *section,
                      const char *key)
{
    const xr_entry *entry =
        xr_entry_find(xr_section_find(config, section), key);
    return entry && (entry->flags & XR_ENTRY_REFUSED) != 0;
}

const char *xr_config_path(const xr_config *config)
{
    return config->first ? config->first : "configuration";
}

const char *xr_config_location(const xr_config *config, const char *section,
                               const char *key)
{
    const xr_entry *entry =
        xr_entry_find(xr_section_find(config, section), key);
    return entry && entry->layer != XR_LAYER_DEFAULT ? entry->origin
                                                     : xr_config_path(config);
}

int xr_config_failed(const xr_config *config)
{
    return config->failed;
}

int xr_config_unread(const xr_config *config)
{
    return config->unread;
}

const char *xr_config_section(const xr_config *config, size_t i)
{
    return i < config->count ? config->sections[i].name : NULL;
}
