/* SPDX-License-Identifier: Apache-2.0
 *
 * Visits the keys of a DeepSpeed JSON, applies or refuses each of them, and
 * reports unknown ones.
 */
#include "core/deepspeed/deepspeed.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <xray/host.h>

#include "core/base/file.h"
#include "core/deepspeed/internal.h"
#include "core/plugin/plugin.h"

#define FILE_LIMIT (1u << 20)
#define MEMBERS_MAX 1000u

/* ---- messages ----------------------------------------------------------- */

void xr_ds_refuse(ds_read *d, const char *path, const char *fmt, ...)
{
    char text[768];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    d->refused = 1;
    if (!d->config->failed) /* otherwise lack of memory may be the cause */
        xr_errors_add(d->errors, "%s: %s: %s", d->file, path, text);
}

void xr_ds_note(ds_read *d, int warn, const char *path, const char *why)
{
    xr_config *config = d->config;
    xr_note *note = xr_config_array(config, 1, sizeof(*note));
    xr_note **end = &config->notes;
    if (!note)
        return;
    note->text = xr_config_keepf(config, "%s: %s: no effect here: %s", d->file,
                                 path, why);
    note->level = warn ? XRAY_LOG_WARN : XRAY_LOG_INFO;
    while (*end)
        end = &(*end)->next;
    *end = note;
}

const xr_note *xr_config_notes(const xr_config *config)
{
    return config->notes;
}

/* ---- values ------------------------------------------------------------- */

static uint32_t find_json_type(const cJSON *item)
{
    if (cJSON_IsBool(item))
        return XR_DS_BOOL;
    if (cJSON_IsString(item))
        return XR_DS_STRING;
    if (cJSON_IsArray(item))
        return XR_DS_LIST;
    if (cJSON_IsObject(item))
        return XR_DS_OBJECT;
    double v = item->valuedouble;
    return v == floor(v) && fabs(v) < 0x1p53 ? XR_DS_INT | XR_DS_REAL
                                             : XR_DS_REAL;
}

static const char *describe_types(uint32_t types)
{
    return types & XR_DS_REAL     ? "a number"
           : types & XR_DS_INT    ? "an integer"
           : types & XR_DS_BOOL   ? "true or false"
           : types & XR_DS_STRING ? "a string"
           : types & XR_DS_LIST   ? "an array"
                                  : "an object";
}

static int is_auto_value(const cJSON *item)
{
    return cJSON_IsString(item) && strcmp(item->valuestring, "auto") == 0;
}

const char *xr_ds_number(ds_read *d, double value)
{
    xr_str text = { 0 };
    if (value == floor(value) && fabs(value) < 0x1p53)
        return xr_config_keepf(d->config, "%.0f", value);
    xr_str_number(&text, value);
    d->config->failed |= text.failed;
    const char *kept = xr_config_keep(d->config, xr_str_text(&text), text.size);
    xr_str_free(&text);
    return kept;
}

/* Writes a scalar as in an INI file. */
static const char *print_scalar(ds_read *d, const cJSON *item)
{
    if (cJSON_IsBool(item))
        return cJSON_IsTrue(item) ? "true" : "false";
    return cJSON_IsString(item) ? item->valuestring
                                : xr_ds_number(d, item->valuedouble);
}

int xr_ds_among(const char *name, const char *words)
{
    size_t size = strlen(name);
    for (const char *at = words; at && *at;) {
        size_t n = strcspn(at, " ");
        if (n == size && strncmp(at, name, n) == 0)
            return 1;
        at += n + strspn(at + n, " ");
    }
    return 0;
}

const cJSON *xr_ds_get(const ds_read *d, const char *path)
{
    const cJSON *at = *path ? d->root : NULL;
    while (at && *path) {
        char name[XR_NAME_MAX + 1];
        size_t size = strcspn(path, ".");
        if (!cJSON_IsObject(at) || size > XR_NAME_MAX)
            return NULL;
        memcpy(name, path, size);
        name[size] = '\0';
        at = xr_json_get(at, name);
        path += size + (path[size] == '.');
    }
    return at && !is_auto_value(at) ? at : NULL;
}

/* ---- settings ----------------------------------------------------------- */

/* Values are equal as numbers, as booleans, or letter by letter. */
static const char *normalize_bool(const char *text)
{
    static const char *const words[] = { "false", "true", "no", "yes",
                                         "off",   "on",   "0",  "1" };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasecmp(text, words[i]) == 0)
            return i % 2 ? "1" : "0";
    return text;
}

static int is_same_value(const char *a, const char *b)
{
    double x;
    double y;
    if (xr_parse_real(a, &x) == 0 && xr_parse_real(b, &y) == 0)
        return x == y;
    return strcmp(normalize_bool(a), normalize_bool(b)) == 0;
}

const char *xr_ds_section(const ds_read *d, const char *section)
{
    if (strcmp(section, XR_DS_TRAIN) == 0)
        return d->train;
    if (strcmp(section, XR_DS_JOB) == 0)
        return d->sft ? "sft" : "actor";
    if (strcmp(section, XR_DS_OPTIM) == 0)
        return d->sft ? "sft.optim" : "actor.optim";
    return section;
}

const xr_entry *xr_ds_entry(const ds_read *d, const char *section,
                            const char *key)
{
    return xr_entry_find(xr_section_find(d->config, xr_ds_section(d, section)),
                         key);
}

void xr_ds_set(ds_read *d, const char *path, const char *in, const char *key,
               const char *text)
{
    const char *section = xr_ds_section(d, in);
    xr_section *s = xr_section_get(d->config, section, d->file);
    xr_entry *entry = s ? xr_entry_get(d->config, s, key) : NULL;
    if (!entry)
        return;
    if (entry->layer == XR_LAYER_FILE || entry->layer == XR_LAYER_JSON) {
        if (!is_same_value(entry->text, text))
            xr_ds_refuse(d, path,
                         "%s contradicts [%s] %s = %s, set by %s; leave one of "
                         "them out",
                         text, section, key, entry->text, entry->origin);
        return;
    }
    xr_entry_set(entry, xr_config_keep(d->config, text, strlen(text)),
                 xr_config_keepf(d->config, "%s: %s", d->file, path),
                 XR_LAYER_JSON);
}

/* ---- unknown keys ------------------------------------------------------- */

/* Returns the most similar key that the table has under `prefix`, which
 * includes its dot. */
static const char *find_similar_key(const char *name, const char *prefix)
{
    size_t size = strlen(prefix);
    unsigned best = strlen(name) < 5 ? 2 : 3;
    const char *near = NULL;
    const xr_ds_key *k = NULL;
    for (size_t i = 0; (k = xr_ds_keys(i)); i++) {
        if (strncmp(k->path, prefix, size) != 0 || strchr(k->path + size, '.'))
            continue;
        unsigned distance = xr_edit_distance(name, k->path + size, best);
        if (distance < best) {
            best = distance;
            near = k->path + size;
        }
    }
    return near;
}

/* Returns the path of another key with that name. */
static const char *find_other_path(const char *name)
{
    const xr_ds_key *k = NULL;
    for (size_t i = 0; (k = xr_ds_keys(i)); i++) {
        const char *dot = strrchr(k->path, '.');
        if (strcmp(dot ? dot + 1 : k->path, name) == 0)
            return k->path;
    }
    return NULL;
}

static void refuse_unknown_key(ds_read *d, const char *path, const char *name,
                               const char *prefix)
{
    const char *near = find_similar_key(name, prefix);
    const char *other = near ? NULL : find_other_path(name);
    xr_ds_refuse(d, path, "no such key%s%s%s%s%s",
                 near ? "; did you mean " : "", near ? near : "",
                 near ? "?" : "", other ? "; there is " : "",
                 other ? other : "");
}

static void refuse_unknown_member(ds_read *d, const char *path,
                                  const char *name, const char *members)
{
    char near[XR_NAME_MAX + 1] = "";
    unsigned best = strlen(name) < 5 ? 2 : 3;
    for (const char *at = members; *at;) {
        char word[XR_NAME_MAX + 1];
        size_t n = strcspn(at, " ");
        (void)snprintf(word, sizeof(word), "%.*s", (int)n, at);
        unsigned distance = xr_edit_distance(name, word, best);
        if (distance < best) {
            best = distance;
            (void)snprintf(near, sizeof(near), "%s", word);
        }
        at += n + strspn(at + n, " ");
    }
    xr_ds_refuse(d, path, "no such key%s%s%s", *near ? "; did you mean " : "",
                 near, *near ? "?" : "");
}

/* ---- visiting keys ------------------------------------------------------ */

/* Refuses objects and lists larger than any configuration has. */
static void check_member_counts(ds_read *d, const cJSON *object,
                                const char *path)
{
    size_t count = 0;
    const char *dot = *path ? "." : "";
    for (const cJSON *c = object->child; c; c = c->next) {
        if (++count > MEMBERS_MAX) {
            xr_ds_refuse(d, *path ? path : "the file",
                         "has more than %u members", MEMBERS_MAX);
            return;
        }
        if (!c->child)
            continue;
        const char *inner =
            cJSON_IsObject(object)
                ? xr_config_keepf(d->config, "%s%s%s", path, dot, c->string)
                : xr_config_keepf(d->config, "%s[%zu]", path, count - 1);
        check_member_counts(d, c, inner);
    }
}

static const xr_ds_key *find_key_entry(const char *path)
{
    const xr_ds_key *k = NULL;
    for (size_t i = 0; (k = xr_ds_keys(i)); i++)
        if (strcmp(k->path, path) == 0)
            return k;
    return NULL;
}

static void check_member_names(ds_read *d, const xr_ds_key *k,
                               const cJSON *object)
{
    for (const cJSON *c = object->child; c && k->members; c = c->next)
        if (!xr_ds_among(c->string, k->members))
            refuse_unknown_member(
                d, xr_config_keepf(d->config, "%s.%s", k->path, c->string),
                c->string, k->members);
}

/* 1 if a part of DeepSpeed is enabled. */
static int is_enabled(const cJSON *object)
{
    const cJSON *enabled = cJSON_GetObjectItemCaseSensitive(object, "enabled");
    return enabled ? cJSON_IsTrue(enabled) : object->child != NULL;
}

static void apply_scalar(ds_read *d, const xr_ds_key *k, const cJSON *item)
{
    const char *text = k->types & XR_DS_LIST ? "" : print_scalar(d, item);
    int agrees = k->agrees && xr_ds_among(text, k->agrees);
    if (k->kind == XR_DS_SET)
        xr_ds_set(d, k->path, k->section, k->key, text);
    else if (k->kind == XR_DS_IDLE && !agrees)
        xr_ds_note(d, (int)k->warn, k->path, k->why);
    else if (k->kind == XR_DS_WANT && !agrees)
        xr_ds_refuse(d, k->path, "%s is refused: %s; expected %.*s", text,
                     k->why, (int)strcspn(k->agrees, " "), k->agrees);
}

static void visit_members(ds_read *d, const cJSON *object, const char *prefix);

static void apply_key(ds_read *d, const xr_ds_key *k, const cJSON *item)
{
    if (cJSON_IsNull(item) ||
        (is_auto_value(item) && !(k->types & XR_DS_OBJECT)))
        return;
    if (!(find_json_type(item) & k->types)) {
        xr_ds_refuse(d, k->path, "must be %s%s", describe_types(k->types),
                     k->types & (XR_DS_OBJECT | XR_DS_LIST) ? ""
                                                            : " or \"auto\"");
        return;
    }
    if (k->kind == XR_DS_OPEN) {
        const char *prefix = xr_config_keepf(d->config, "%s.", k->path);
        visit_members(d, item, prefix);
    } else if (k->kind == XR_DS_UNUSED || k->kind == XR_DS_OFF) {
        check_member_names(d, k, item);
        if (is_enabled(item) && k->kind == XR_DS_OFF)
            xr_ds_refuse(d, k->path, "is refused: %s; expected it to be off",
                         k->why);
        else if (is_enabled(item))
            xr_ds_note(d, (int)k->warn, k->path, k->why);
    } else {
        apply_scalar(d, k, item);
    }
}

static void visit_members(ds_read *d, const cJSON *object, const char *prefix)
{
    for (const cJSON *c = object->child; c; c = c->next) {
        const char *path =
            xr_config_keepf(d->config, "%s%s", prefix, c->string);
        const xr_ds_key *k = find_key_entry(path);
        if (k && !strchr(c->string, '.'))
            apply_key(d, k, c);
        else
            refuse_unknown_key(d, path, c->string, prefix);
    }
}

/* ---- the file ----------------------------------------------------------- */

/* Returns the backend's option that names a DeepSpeed JSON; NULL if it has
 * none. */
static const char *find_file_option(const xray_component *train)
{
    const xr_table table = { train->options, train->option_count,
                             train->option_stride };
    for (uint32_t i = 0; i < train->option_count; i++) {
        xray_option o = xr_option_at(table, i);
        if (o.flags & XRAY_OPT_DEEPSPEED)
            return o.name;
    }
    return NULL;
}

/* Returns the path that the option has, resolved like every PATH. */
static const char *find_file_path(const ds_read *d)
{
    xr_config *config = d->config;
    const char *key = NULL;
    xr_section *s = xr_section_find(config, d->train);
    for (size_t i = 0; !s && i < config->variable_count; i++) {
        const char *variable = config->variables[i].name;
        if (xr_variable_names(variable, d->train, &key) &&
            strcasecmp(key, d->option) == 0)
            s = xr_section_get(config, d->train, variable);
    }
    if (s)
        xr_section_take_variables(config, s);
    xr_entry *entry = xr_entry_find(s, d->option);
    if (!entry || !entry->text || !*entry->text)
        return NULL;
    entry->flags |= XR_ENTRY_FOLDED;
    return xr_config_resolve(config, entry, entry->text);
}

static xray_status parse_file(ds_read *d, cJSON **out)
{
    xr_err err = { "" };
    char *text = NULL;
    size_t size = 0;
    xray_status status = xr_file_read(d->file, FILE_LIMIT, &err, &text, &size);
    if (status == XRAY_OK)
        status = xr_json_parse(text, size, d->file, &err, out);
    free(text);
    if (status == XRAY_OK && !cJSON_IsObject(*out))
        status =
            xr_fail(&err, XRAY_E_CONFIG, "%s: must be a JSON object", d->file);
    if (status != XRAY_OK)
        xr_errors_add(d->errors, "%s: [%s] %s: %s",
                      xr_config_origin(d->config, d->train, d->option),
                      d->train, d->option, err.text);
    return status;
}

/* Moves environment variables into the section, so that values they set are
 * known. */
static void move_variables(xr_config *config, const char *name)
{
    xr_section *s = xr_section_get(config, name, "default");
    if (s)
        xr_section_take_variables(config, s);
}

void xr_deepspeed_read(xr_config *config, const xray_component *train, int sft,
                       uint32_t ranks, xr_errors *errors)
{
    static const char *const sections[] = {
        "model", "data",        "rollout",   "trainer", "actor",
        "sft",   "actor.optim", "sft.optim", NULL
    };
    char section[XR_SECTION_CAP];
    ds_read d = { .config = config,
                  .errors = errors,
                  .train = xr_component_section(train, section),
                  .option = find_file_option(train),
                  .sft = sft,
                  .ranks = ranks ? ranks : 1 };
    d.file = d.option ? find_file_path(&d) : NULL;
    if (!d.file || config->failed)
        return;
    for (size_t i = 0; sections[i]; i++)
        move_variables(config, sections[i]);
    cJSON *root = NULL;
    if (parse_file(&d, &root) == XRAY_OK) {
        d.root = root;
        check_member_counts(&d, root, "");
        if (!d.refused)
            visit_members(&d, root, "");
        /* Combinations are evaluated once every single key is valid. */
        if (!d.refused)
            xr_ds_combine(&d);
    }
    cJSON_Delete(root);
}
