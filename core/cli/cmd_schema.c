/* SPDX-License-Identifier: Apache-2.0
 *
 * xray config schema: the sections and keys an INI may have as a JSON schema,
 * from the same option tables that decode it.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/str.h"
#include "core/cli/inspect.h"
#include "core/cli/tables.h"
#include "core/config/sections.h"

/* ---- one option --------------------------------------------------------- */

static void put_type(const xray_option *o, xr_str *out)
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
    };
    xr_str_puts(out, o->type <= XRAY_OPT_LIST && types[o->type]
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

static void put_choices(const xray_option *o, xr_str *out)
{
    xr_str_puts(out, ",\"enum\":[");
    for (const xray_choice *c = o->choices; c && c->name; c++) {
        xr_str_puts(out, c == o->choices ? "" : ",");
        xr_str_json(out, c->name, strlen(c->name));
    }
    xr_str_puts(out, "],\"x-enum-docs\":[");
    for (const xray_choice *c = o->choices; c && c->name; c++) {
        const char *doc = c->doc ? c->doc : "";
        xr_str_puts(out, c == o->choices ? "" : ",");
        xr_str_json(out, doc, strlen(doc));
    }
    xr_str_puts(out, "]");
}

static void put_items(const char *text, xr_str *out)
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

/* The preset in the type that the schema gives the option. */
static void put_default(const xray_option *o, xr_str *out)
{
    int64_t whole = 0;
    double real = 0;
    xr_str_puts(out, ",\"default\":");
    if (o->type == XRAY_OPT_BOOL)
        xr_str_puts(out, strchr("tTyY1", o->preset[0]) ||
                                 strcmp(o->preset, "on") == 0
                             ? "true"
                             : "false");
    else if ((o->type == XRAY_OPT_INT || o->type == XRAY_OPT_BYTES) &&
             xr_parse_int(o->preset, &whole) == 0)
        xr_str_printf(out, "%lld", (long long)whole);
    else if (o->type == XRAY_OPT_REAL && xr_parse_real(o->preset, &real) == 0)
        xr_str_number(out, real);
    else if (o->type == XRAY_OPT_LIST)
        put_items(o->preset, out);
    else
        xr_str_json(out, o->preset, strlen(o->preset));
}

static void put_option(const xray_option *o, xr_str *out)
{
    xr_str_puts(out, "\n   ");
    xr_str_json(out, o->name, strlen(o->name));
    xr_str_puts(out, ":{");
    put_type(o, out);
    if (o->type == XRAY_OPT_CHOICE)
        put_choices(o, out);
    if (o->preset)
        put_default(o, out);
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

/* "properties", and "required" where an option is. */
static void put_table(xr_table table, xr_str *out)
{
    size_t required = 0;
    xr_str_puts(out, "\"properties\":{");
    for (size_t i = 0; i < table.count; i++) {
        xray_option option = cli_option_at(table, i);
        xr_str_puts(out, i ? "," : "");
        put_option(&option, out);
    }
    xr_str_puts(out, "}");
    for (size_t i = 0; i < table.count; i++) {
        xray_option option = cli_option_at(table, i);
        if (!(option.flags & XRAY_OPT_REQUIRED))
            continue;
        xr_str_puts(out, required++ ? "," : ",\"required\":[");
        xr_str_json(out, option.name, strlen(option.name));
    }
    xr_str_puts(out, required ? "]" : "");
}

static void put_section(const char *name, const char *doc, xr_table table,
                        xr_str *out)
{
    xr_str_puts(out, ",\n  ");
    xr_str_json(out, name, strlen(name));
    xr_str_puts(out, ":{\"type\":\"object\",");
    cli_json_member("description", doc ? doc : "", out);
    xr_str_puts(out, ",");
    put_table(table, out);
    xr_str_puts(out, ",\"additionalProperties\":false}");
}

static void put_component(const char *plugin, const xray_component *c,
                          xr_str *out)
{
    xr_str name = { 0 };
    (void)plugin;
    if (cli_is_reward(c))
        return;
    cli_put_section_name(c, &name);
    put_section(xr_str_text(&name), c->summary, cli_table_of(c), out);
    out->failed |= name.failed;
    xr_str_free(&name);
}

static void put_condition(const xray_component *c, const char *condition,
                          xr_str *out)
{
    xr_str_puts(out, out->data[out->size - 1] == '[' ? "" : ",");
    xr_str_printf(out, "\n  {\"if\":%s,\"then\":{", condition);
    put_table(cli_table_of(c), out);
    xr_str_puts(out, "}}");
}

/* The keys of a reward that stand where its instance's name selects it, which
 * this pattern does not see: none is unknown there. */
static void put_by_name(const xray_component *c, xr_str *out)
{
    xr_str_puts(out, ",\n  {\"if\":{\"not\":{\"anyOf\":[{\"required\":["
                     "\"plugin\"]},{\"required\":[\"grader\"]}]}},\"then\":"
                     "{\"properties\":{");
    xr_table table = cli_table_of(c);
    for (size_t i = 0; i < table.count; i++) {
        xray_option option = cli_option_at(table, i);
        xr_str_puts(out, i ? "," : "");
        xr_str_json(out, option.name, strlen(option.name));
        xr_str_puts(out, ":true");
    }
    xr_str_puts(out, "}}}");
}

/* The options of a reward hold where [reward.NAME] plugin names it; those of
 * rule also where nothing does and `grader` is set. */
static void put_reward(const char *plugin, const xray_component *c, xr_str *out)
{
    xr_str condition = { 0 };
    (void)plugin;
    if (!cli_is_reward(c))
        return;
    xr_str_puts(&condition, "{\"properties\":{\"plugin\":{\"const\":");
    xr_str_json(&condition, c->name, strlen(c->name));
    xr_str_puts(&condition, "}},\"required\":[\"plugin\"]}");
    put_condition(c, xr_str_text(&condition), out);
    if (strcmp(c->name, "rule") == 0)
        put_condition(c,
                      "{\"required\":[\"grader\"],\"not\":{\"required\":["
                      "\"plugin\"]}}",
                      out);
    put_by_name(c, out);
    out->failed |= condition.failed;
    xr_str_free(&condition);
}

static void put_rewards(const cli_tables *w, const xr_section_info *info)
{
    xr_str *out = w->out;
    xr_str_puts(out, "},\n \"patternProperties\":{\n  "
                     "\"^reward\\\\.[A-Za-z0-9_.-]+$\":{\"type\":\"object\",");
    cli_json_member("description", info->doc, out);
    xr_str_puts(out, ",");
    put_table(info->table, out);
    xr_str_puts(out, ",\"allOf\":[");
    cli_each_component(w, put_reward);
    /* An empty allOf is no schema. */
    if (out->data && out->data[out->size - 1] == '[')
        xr_str_puts(out, "true");
    xr_str_puts(out, "],\"unevaluatedProperties\":false}}");
}

static void put_schema(const cli_tables *w)
{
    const xr_section_info *reward = NULL;
    xr_str *out = w->out;
    xr_str_puts(out,
                "{\"$schema\":\"https://json-schema.org/draft/2020-12/"
                "schema\",\n \"title\":\"xray run\",\n \"description\":"
                "\"Sections and keys of a run's INI file. A list stands there "
                "as text between commas.\",\n \"type\":\"object\",\n "
                "\"properties\":{\n  \"include\":{\"type\":\"string\","
                "\"x-path\":true,\"description\":\"A file that is read first; "
                "stands before the first section.\"}");
    for (size_t i = 0; xr_run_sections(i); i++) {
        const xr_section_info *info = xr_run_sections(i);
        if (strcmp(info->section, CLI_REWARD_SECTION) == 0)
            reward = info;
        else
            put_section(info->section, info->doc, info->table, out);
    }
    cli_each_component(w, put_component);
    if (reward)
        put_rewards(w, reward);
    else
        xr_str_puts(out, "}");
    xr_str_puts(out, ",\n \"additionalProperties\":false}\n");
}

static int run_schema(const cli_args *args)
{
    return cli_print_tables(args, put_schema);
}

static const cli_flag flags[] = { CLI_PLUGIN_PATH_FLAG, { 0 } };

const cli_command cli_config_schema = {
    .name = "config schema",
    .usage = "[options]",
    .summary = "all sections and keys as a JSON schema",
    .about = "Prints a JSON schema (draft 2020-12) of a run's configuration: "
             "the core's sections\nand the options of every plugin on the "
             "search path, with types, ranges, choices,\ndefaults, units and "
             "documentation. A list of an INI is an array there.",
    .examples = "  xray config schema > xray.schema.json\n",
    .flags = flags,
    .run = run_schema,
};
