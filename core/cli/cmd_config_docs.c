/* SPDX-License-Identifier: Apache-2.0
 *
 * xray config docs: prints docs/config.md from the tables that decode an INI.
 */
#include <string.h>

#include "core/cli/inspect.h"
#include "core/cli/option_tables.h"
#include "core/config/sections.h"

static const char intro[] =
    "# Configuration\n\n"
    "Every section and key of a run's INI file, with type, range, default and "
    "meaning, as `xray config docs` writes\nthem from the tables that decode "
    "the file. [cli.md](cli.md) describes the settings that override a file "
    "(the environment, "
    "`--set`),\nwhat `include` does and what paths are relative to. The name "
    "of a section or a key has at most 49 characters.\n\n"
    "| type | written |\n|---|---|\n"
    "| bool | `true` or `false`, also `yes`, `no`, `on`, `off`, `1`, `0` |\n"
    "| int, real | `16`, `0.5`, `1e-6` |\n"
    "| bytes | a number of bytes, or with a unit of 1024: `64M`, `1.5G` |\n"
    "| duration | with a unit: `500ms`, `1.5s`, `10min`, `2h` |\n"
    "| string, path | text; in double quotes where it holds `;` or `#` after a "
    "blank, or blanks at its ends |\n"
    "| choice | one of the values listed |\n"
    "| list | items with commas between them |\n";

/* Writes the text of a table cell, with the characters of Markdown escaped. */
static void put_cell(const char *text, size_t size, xr_str *out)
{
    for (const char *end = text + size; text < end; text++)
        if (*text == '|')
            xr_str_puts(out, "\\|");
        else if (*text == '<')
            xr_str_puts(out, "&lt;");
        else if (*text == '*')
            xr_str_puts(out, "\\*");
        else
            xr_str_append(out, *text == '\n' ? " " : text, 1);
}

static void put_escaped_text(const char *text, xr_str *out)
{
    put_cell(text ? text : "", text ? strlen(text) : 0, out);
}

static size_t ends_with_full_stop(const char *text)
{
    return text[strlen(text) - 1] == '.';
}

/* Writes the default as an INI has it. */
static void put_default(const xray_option *option, xr_str *out)
{
    if (option->preset && *option->preset) {
        xr_str text = { 0 };
        xr_config_put_value(option->preset, &text);
        xr_str_printf(out, "`%s`", xr_str_text(&text));
        out->failed |= text.failed;
        xr_str_free(&text);
    } else if (!option->preset) {
        xr_str_puts(out, "required");
    }
}

static void put_choices(const xray_option *option, xr_str *out)
{
    const char *before = option->doc && *option->doc ? " " : "";
    for (const xray_choice *c = option->choices; c && c->name;
         c = xray_next_choice(option, c)) {
        xr_str_printf(out, "%s`%s`", before, c->name);
        if (c->doc && *c->doc) {
            xr_str_puts(out, ": ");
            put_cell(c->doc, strlen(c->doc) - ends_with_full_stop(c->doc), out);
        }
        before = "; ";
    }
    if (option->choices && option->choices->name)
        xr_str_puts(out, ".");
}

static void put_table(xr_table table, xr_str *out)
{
    if (!table.count) {
        xr_str_puts(out, "\nNo keys.\n");
        return;
    }
    xr_str_puts(out, "\n| key | type, unit, range | default | meaning |\n"
                     "|---|---|---|---|\n");
    for (size_t i = 0; i < table.count; i++) {
        xray_option option = xr_option_at(table, i);
        xr_str_printf(out, "| `%s` | ", option.name);
        cli_put_kind(&option, out);
        xr_str_puts(out, " | ");
        put_default(&option, out);
        xr_str_puts(out, " | ");
        put_escaped_text(option.doc, out);
        put_choices(&option, out);
        xr_str_puts(out, " |\n");
    }
}

/* Names the sections whose keys replace those of a backend for one role. */
static void put_role_sections(const xray_component *c, xr_str *out)
{
    static const char *const models[] = { "reference", "critic",
                                          "reward model" };
    xr_str_puts(out, "Keys that are set in");
    for (size_t i = 0; i < 3; i++) {
        xr_str_printf(out, "%s `[%s",
                      i == 2 ? " and"
                      : i    ? ","
                             : "",
                      cli_role_prefix(i));
        cli_put_section_name(c, out);
        xr_str_printf(out, "]` (%s)", models[i]);
    }
    xr_str_puts(out, " hold for that model instead.\n");
}

static void put_component(const char *plugin, const xray_component *c,
                          xr_str *out)
{
    xr_str_puts(out, "\n## [");
    if (cli_is_reward(c))
        xr_str_printf(out, CLI_REWARD_SECTION "] with plugin = %s", c->name);
    else
        cli_put_section_name(c, out);
    xr_str_puts(out, cli_is_reward(c) ? "\n\n" : "]\n\n");
    if (plugin)
        xr_str_printf(out, "Of the plugin %s: ", plugin);
    else
        xr_str_puts(out, "Of the core: ");
    put_escaped_text(c->summary, out);
    xr_str_puts(out, ".\n");
    if (cli_is_trainer(c))
        put_role_sections(c, out);
    put_table(cli_table_of(c), out);
}

static void put_config_page(const cli_tables *tables)
{
    xr_str *out = tables->out;
    xr_str_puts(out, intro);
    for (size_t i = 0; xr_run_sections(i); i++) {
        const xr_section_info *info = xr_run_sections(i);
        xr_str_printf(out, "\n## [%s]\n\n", info->section);
        put_escaped_text(info->doc, out);
        xr_str_puts(out, "\n");
        put_table(info->table, out);
    }
    cli_each_component(tables, put_component);
}

static int run_docs(const cli_args *args)
{
    return cli_print_tables(args, put_config_page);
}

static const cli_flag flags[] = { CLI_PLUGIN_PATH_FLAG, { 0 } };

const cli_command cli_config_docs = {
    .name = "config docs",
    .usage = "[options]",
    .summary = "all sections and keys as a page of Markdown",
    .about =
        "Prints every section and key of a run's configuration with type, "
        "range, default\nand meaning: the core's and those of every "
        "plugin on the search path. The page\ndocs/config.md is this output.",
    .examples = "  xray config docs > docs/config.md\n",
    .flags = flags,
    .run = run_docs,
};
