/* SPDX-License-Identifier: Apache-2.0
 *
 * xray config schema: prints the sections and keys of an INI as a JSON schema,
 * from the option tables that decode it.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/str.h"
#include "core/cli/inspect.h"
#include "core/cli/option_tables.h"
#include "core/config/sections.h"

/* ---- one option --------------------------------------------------------- */

static void put_option_type(const xray_option *o, xr_str *out)
{
    static const char *const types[] = {
        [XRAY_OPT_BOOL] = "\"type\":\"boolean\"",
        [XRAY_OPT_INT] = "\"type\":\"integer\"",
        [XRAY_OPT_REAL] = "\"type\":\"number\"",
        [XRAY_OPT_BYTES] = "\"type\":[\"integer\",\"string\"],"
                           "\"pattern\":\"^[0-9.eE+]+[KMGT]?$\"",
        [XRAY_OPT_DURATION] = "\"type\":\"string\",\"pattern\":"
                              "\"^[0-9.eE+-]+(ns|us|ms|s|min|h)?$\"",
        [XRAY_OPT_STRING] = "\"type\":\"string\"",
        [XRAY_OPT_PATH] = "\"type\":\"string\",\"x-path\":true",
        [XRAY_OPT_CHOICE] = "\"type\":\"string\"",
        [XRAY_OPT_LIST] = "\"type\":\"array\",\"items\":{\"type\":\"string\"}",
        [XRAY_OPT_TRISTATE] = "\"type\":[\"boolean\",\"string\"],"
                              "\"enum\":[true,false,\"auto\"]",
    };
    xr_str_puts(out, o->type <= XRAY_OPT_TRISTATE && types[o->type]
                         ? types[o->type]
                         : "\"type\":\"string\"");
    if (o->type == XRAY_OPT_LIST && o->flags & XRAY_OPT_PATHS)
        xr_str_puts(out, ",\"x-path\":true");
    if (o->min <= o->max && o->type != XRAY_OPT_DURATION) {
        xr_str_puts(out, ",\"minimum\":");
        xr_str_number(out, o->min);
        xr_str_puts(out, ",\"maximum\":");
        xr_str_number(out, o->max);
    } else if (o->type == XRAY_OPT_BYTES) {
        xr_str_puts(out, ",\"minimum\":0");
    }
}

static void put_option_choices(const xray_option *o, xr_str *out)
{
    xr_str_puts(out, ",\"enum\":[");
    for (const xray_choice *c = o->choices; c && c->name;
         c = xray_next_choice(o, c)) {
        xr_str_puts(out, c == o->choices ? "" : ",");
        xr_str_json(out, c->name, strlen(c->name));
    }
    xr_str_puts(out, "],\"x-enum-docs\":[");
    for (const xray_choice *c = o->choices; c && c->name;
         c = xray_next_choice(o, c)) {
        const char *doc = c->doc ? c->doc : "";
        xr_str_puts(out, c == o->choices ? "" : ",");
        xr_str_json(out, doc, strlen(doc));
    }
    xr_str_puts(out, "]");
}

static void put_list_default(const char *text, xr_str *out)
{
    xr_str_puts(out, "[");
    for (int first = 1; *text; first = 0) {
        text += strspn(text, " \t\n");
        size_t size = strcspn(text, ",");
        size_t trimmed = size;
        while (trimmed && strchr(" \t\n", text[trimmed - 1]))
            trimmed--;
        xr_str_puts(out, first ? "" : ",");
        xr_str_json(out, text, trimmed);
        text += size + (text[size] == ',');
    }
    xr_str_puts(out, "]");
}

/* Writes the default with the type that the option has in the schema. */
static void put_option_default(const xray_option *o, xr_str *out)
{
    int64_t integer = 0;
    double real = 0;
    xr_str_puts(out, ",\"default\":");
    int is_tristate =
        o->type == XRAY_OPT_TRISTATE && strcmp(o->preset, "auto") != 0;
    if (o->type == XRAY_OPT_BOOL || is_tristate)
        xr_str_puts(out, strchr("tTyY1", o->preset[0]) ||
                                 strcmp(o->preset, "on") == 0
                             ? "true"
                             : "false");
    else if ((o->type == XRAY_OPT_INT || o->type == XRAY_OPT_BYTES) &&
             xr_parse_int(o->preset, &integer) == 0)
        xr_str_printf(out, "%lld", (long long)integer);
    else if (o->type == XRAY_OPT_REAL && xr_parse_real(o->preset, &real) == 0)
        xr_str_number(out, real);
    else if (o->type == XRAY_OPT_LIST)
        put_list_default(o->preset, out);
    else
        xr_str_json(out, o->preset, strlen(o->preset));
}

static void put_option_schema(const xray_option *o, xr_str *out)
{
    xr_str_puts(out, "\n   ");
    xr_str_json(out, o->name, strlen(o->name));
    xr_str_puts(out, ":{");
    put_option_type(o, out);
    if (o->type == XRAY_OPT_CHOICE)
        put_option_choices(o, out);
    if (o->preset)
        put_option_default(o, out);
    if (o->doc) {
        xr_str_puts(out, ",");
        cli_json_member("description", o->doc, out);
    }
    if (o->unit) {
        xr_str_puts(out, ",");
        cli_json_member("x-unit", o->unit, out);
    }
    if (o->since) {
        xr_str_puts(out, ",");
        cli_json_member("x-since", o->since, out);
    }
    if (o->flags & XRAY_OPT_DEPRECATED)
        xr_str_puts(out, ",\"deprecated\":true");
    if (o->flags & XRAY_OPT_SECRET)
        xr_str_puts(out, ",\"writeOnly\":true");
    if (o->flags & XRAY_OPT_ADVANCED)
        xr_str_puts(out, ",\"x-advanced\":true");
    xr_str_puts(out, "}");
}

/* ---- sections ----------------------------------------------------------- */

/* Writes "properties", and "required" if any option is. */
static void put_table_properties(xr_table table, xr_str *out)
{
    size_t required = 0;
    xr_str_puts(out, "\"properties\":{");
    for (size_t i = 0; i < table.count; i++) {
        xray_option option = xr_option_at(table, i);
        xr_str_puts(out, i ? "," : "");
        put_option_schema(&option, out);
    }
    xr_str_puts(out, "}");
    for (size_t i = 0; i < table.count; i++) {
        xray_option option = xr_option_at(table, i);
        if (!(option.flags & XRAY_OPT_REQUIRED))
            continue;
        xr_str_puts(out, required++ ? "," : ",\"required\":[");
        xr_str_json(out, option.name, strlen(option.name));
    }
    xr_str_puts(out, required ? "]" : "");
}

static void put_section_schema(const char *name, const char *doc,
                               xr_table table, xr_str *out)
{
    xr_str_puts(out, ",\n  ");
    xr_str_json(out, name, strlen(name));
    xr_str_puts(out, ":{\"type\":\"object\",");
    cli_json_member("description", doc ? doc : "", out);
    xr_str_puts(out, ",");
    put_table_properties(table, out);
    xr_str_puts(out, ",\"additionalProperties\":false}");
}

static void put_component_section(const char *plugin, const xray_component *c,
                                  xr_str *out)
{
    xr_str name = { 0 };
    (void)plugin;
    if (cli_is_reward(c))
        return;
    cli_put_section_name(c, &name);
    put_section_schema(xr_str_text(&name), c->summary, cli_table_of(c), out);
    out->failed |= name.failed;
    xr_str_free(&name);
}

/* The sections of a backend for one role have the keys of its own section. */
static void put_role_schemas(const char *plugin, const xray_component *c,
                             xr_str *out)
{
    xr_str base = { 0 };
    (void)plugin;
    if (!cli_is_trainer(c))
        return;
    cli_put_section_name(c, &base);
    for (size_t i = 0; cli_role_prefix(i); i++)
        xr_str_printf(out,
                      ",\n  \"%s%s\":{\"description\":\"%s for one role: "
                      "what is set here replaces [%s]\",\"$ref\":"
                      "\"#/properties/%s\"}",
                      cli_role_prefix(i), xr_str_text(&base), c->name,
                      xr_str_text(&base), xr_str_text(&base));
    out->failed |= base.failed;
    xr_str_free(&base);
}

static void put_conditional_table(const xray_component *c,
                                  const char *condition, xr_str *out)
{
    xr_str_puts(out, out->data[out->size - 1] == '[' ? "" : ",");
    xr_str_printf(out, "\n  {\"if\":%s,\"then\":{", condition);
    put_table_properties(cli_table_of(c), out);
    xr_str_puts(out, "}}");
}

/* Allows the keys of a reward in a section whose instance name selects it: a
 * pattern cannot test that name, so no key is unknown there. */
static void put_keys_selected_by_name(const xray_component *c, xr_str *out)
{
    xr_str_puts(out, ",\n  {\"if\":{\"not\":{\"anyOf\":[{\"required\":["
                     "\"plugin\"]},{\"required\":[\"grader\"]}]}},\"then\":"
                     "{\"properties\":{");
    xr_table table = cli_table_of(c);
    for (size_t i = 0; i < table.count; i++) {
        xray_option option = xr_option_at(table, i);
        xr_str_puts(out, i ? "," : "");
        xr_str_json(out, option.name, strlen(option.name));
        xr_str_puts(out, ":true");
    }
    xr_str_puts(out, "}}}");
}

/* The options of a reward apply where `plugin` of [reward.NAME] names it; those
 * of `rule` also where `plugin` is absent and `grader` is set. */
static void put_reward_conditions(const char *plugin, const xray_component *c,
                                  xr_str *out)
{
    xr_str condition = { 0 };
    (void)plugin;
    if (!cli_is_reward(c))
        return;
    xr_str_puts(&condition, "{\"properties\":{\"plugin\":{\"const\":");
    xr_str_json(&condition, c->name, strlen(c->name));
    xr_str_puts(&condition, "}},\"required\":[\"plugin\"]}");
    put_conditional_table(c, xr_str_text(&condition), out);
    if (strcmp(c->name, "rule") == 0)
        put_conditional_table(
            c,
            "{\"required\":[\"grader\"],\"not\":{\"required\":["
            "\"plugin\"]}}",
            out);
    put_keys_selected_by_name(c, out);
    out->failed |= condition.failed;
    xr_str_free(&condition);
}

static void put_reward_sections(const cli_tables *w,
                                const xr_section_info *info)
{
    xr_str *out = w->out;
    xr_str_puts(
        out,
        "},\n \"patternProperties\":{\n  "
        "\"^reward\\\\.(?!train\\\\.)[A-Za-z0-9_.-]+$\":{\"type\":\"object\",");
    cli_json_member("description", info->doc, out);
    xr_str_puts(out, ",");
    put_table_properties(info->table, out);
    xr_str_puts(out, ",\"allOf\":[");
    cli_each_component(w, put_reward_conditions);
    /* An empty allOf is not a valid schema. */
    if (out->data && out->data[out->size - 1] == '[')
        xr_str_puts(out, "true");
    xr_str_puts(out, "],\"unevaluatedProperties\":false}}");
}

static void put_config_schema(const cli_tables *w)
{
    const xr_section_info *reward = NULL;
    xr_str *out = w->out;
    xr_str_puts(
        out, "{\"$schema\":\"https://json-schema.org/draft/2020-12/"
             "schema\",\n \"title\":\"xray run\",\n \"description\":"
             "\"Sections and keys of a run's INI file. In the file, a list is "
             "text with commas between its items.\",\n \"type\":\"object\",\n "
             "\"properties\":{\n  \"include\":{\"type\":\"string\","
             "\"x-path\":true,\"description\":\"A file that is read first; "
             "stands before the first section.\"}");
    for (size_t i = 0; xr_run_sections(i); i++) {
        const xr_section_info *info = xr_run_sections(i);
        if (strcmp(info->section, CLI_REWARD_SECTION) == 0)
            reward = info;
        else
            put_section_schema(info->section, info->doc, info->table, out);
    }
    cli_each_component(w, put_component_section);
    cli_each_component(w, put_role_schemas);
    if (reward)
        put_reward_sections(w, reward);
    else
        xr_str_puts(out, "}");
    xr_str_puts(out, ",\n \"additionalProperties\":false}\n");
}

static int run_schema(const cli_args *args)
{
    return cli_print_tables(args, put_config_schema);
}

static const cli_flag flags[] = { CLI_PLUGIN_PATH_FLAG, { 0 } };

const cli_command cli_config_schema = {
    .name = "config schema",
    .usage = "[options]",
    .summary = "all sections and keys as a JSON schema",
    .about = "Prints a JSON schema (draft 2020-12) of a run's configuration: "
             "the core's sections\nand the options of every plugin on the "
             "search path, with types, ranges, choices,\ndefaults, units and "
             "documentation. A list is an array in the schema.",
    .examples = "  xray config schema > xray.schema.json\n",
    .flags = flags,
    .run = run_schema,
};
