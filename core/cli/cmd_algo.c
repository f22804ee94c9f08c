/* SPDX-License-Identifier: Apache-2.0
 *
 * xray algo list: the presets of all algorithms, and where equal names mean
 * different formulas.
 */
#include <stdio.h>
#include <string.h>

#include <xray/algo.h>

#include "core/base/str.h"
#include "core/cli/cli.h"
#include "core/cli/inspect.h"
#include "core/plugin/plugin.h"

static const xray_algo_presets *find_presets(const xray_component *component)
{
    const xray_algo_ops *ops = (const xray_algo_ops *)component->ops;
    if (!XRAY_HAS(xray_algo_ops, ops, extension))
        return NULL;
    return (const xray_algo_presets *)ops->extension(NULL, XRAY_ALGO_PRESETS);
}

#define PRESETS_MOST 1024u

/* Why a table cannot be used, or NULL. */
static const char *find_table_fault(const xray_algo_presets *table)
{
    if (!XRAY_REACHES(xray_algo_presets, table, cells))
        return "its header is too short";
    if (!table->columns || table->columns > PRESETS_MOST ||
        table->rows > PRESETS_MOST)
        return "it must have 1 to 1024 columns and at most 1024 rows";
    if (!table->titles || (table->rows && !table->cells))
        return "it has no titles or no cells";
    for (uint32_t c = 0; c < table->columns; c++)
        if (!table->titles[c])
            return "a title is NULL";
    for (uint32_t i = 0; i < table->rows * table->columns; i++)
        if (!table->cells[i])
            return "a cell is NULL";
    return NULL;
}

static const char *cell_text(const xray_algo_presets *table, uint32_t row,
                             uint32_t column)
{
    return table->cells[row * table->columns + column];
}

static size_t column_width(const xray_algo_presets *table, uint32_t column)
{
    size_t width = strlen(table->titles[column]);
    for (uint32_t r = 0; r < table->rows; r++) {
        size_t size = strlen(cell_text(table, r, column));
        width = size > width ? size : width;
    }
    return width;
}

/* Pads every column but the last one. */
static void put_cell(const xray_algo_presets *table, uint32_t column,
                     const char *text, xr_str *out)
{
    if (column + 1 == table->columns)
        xr_str_printf(out, "%s\n", text);
    else
        xr_str_printf(out, "%-*s  ", (int)column_width(table, column), text);
}

static void put_preset_text(const xray_component *component, xr_str *out)
{
    const xray_algo_presets *table = find_presets(component);
    xr_str_printf(out, "%s%s: %s\n", out->size ? "\n" : "", component->name,
                  component->summary);
    if (!table)
        return;
    for (uint32_t c = 0; c < table->columns; c++)
        put_cell(table, c, table->titles[c], out);
    for (uint32_t r = 0; r < table->rows; r++)
        for (uint32_t c = 0; c < table->columns; c++)
            put_cell(table, c, cell_text(table, r, c), out);
}

static void put_preset_json(const xray_component *component, xr_str *out)
{
    const xray_algo_presets *table = find_presets(component);
    xr_str_puts(out, out->size > 1 ? ",\n {" : "\n {");
    cli_json_member("algo", component->name, out);
    xr_str_puts(out, ",\"presets\":[");
    for (uint32_t r = 0; table && r < table->rows; r++) {
        xr_str_puts(out, r ? ",\n  {" : "\n  {");
        for (uint32_t c = 0; c < table->columns; c++) {
            xr_str_puts(out, c ? "," : "");
            cli_json_member(table->titles[c], cell_text(table, r, c), out);
        }
        xr_str_puts(out, "}");
    }
    xr_str_puts(out, "]}");
}

static int list_plugin_presets(const xr_plugin_file *file, int json,
                               xr_str *out)
{
    xr_err err = { "" };
    const xray_plugin *plugin = NULL;
    if (file->refused || !strstr(file->provides, XRAY_IFACE_ALGO ":"))
        return CLI_OK;
    if (xr_plugin_load(file->path, &err, &plugin) != XRAY_OK)
        return cli_fail(XRAY_E_IO, &err);
    for (uint32_t i = 0; i < plugin->component_count; i++) {
        const xray_component *component = plugin->components[i];
        if (strcmp(component->iface, XRAY_IFACE_ALGO) != 0)
            continue;
        const xray_algo_presets *table = find_presets(component);
        const char *fault = table ? find_table_fault(table) : NULL;
        if (fault) {
            cli_say("%s: the table of presets of '%s' is wrong: %s", file->path,
                    component->name, fault);
            return CLI_FAILED;
        }
        if (json)
            put_preset_json(component, out);
        else
            put_preset_text(component, out);
    }
    return CLI_OK;
}

static int run_algo_list(const cli_args *args)
{
    xr_err err = { "" };
    xr_plugins *plugins = NULL;
    xr_str out = { 0 };
    int code = CLI_OK;
    if (xr_plugins_open(args->plugin_path, &err, &plugins) != XRAY_OK)
        return cli_fail(XRAY_E_CONFIG, &err);
    if (args->json)
        xr_str_puts(&out, "[");
    for (size_t i = 0; i < xr_plugins_count(plugins) && code == CLI_OK; i++)
        code = list_plugin_presets(xr_plugins_at(plugins, i), args->json, &out);
    if (args->json)
        xr_str_puts(&out, "\n]\n");
    else if (!out.size)
        xr_str_puts(&out, "no plugin has an algorithm\n");
    if (out.failed) {
        cli_say("out of memory");
        code = CLI_FAILED;
    }
    if (code == CLI_OK)
        (void)fputs(xr_str_text(&out), stdout);
    xr_str_free(&out);
    xr_plugins_close(plugins);
    return code;
}

static const cli_flag flags[] = { { "--json", NULL, CLI_SWITCH, 0,
                                    offsetof(cli_args, json), NULL, 1, 0,
                                    "as a JSON array" },
                                  CLI_PLUGIN_PATH_FLAG,
                                  { 0 } };

const cli_command cli_algo_list = {
    .name = "algo list",
    .usage = "[options]",
    .summary = "algorithms, their presets, and where they differ",
    .about = "Loads every plugin with an algorithm and prints the published "
             "variants it knows:\nsource, file and what differs. A(1) and A(0) "
             "are the advantages of a group with\nthe rewards 1 0 0 1 0 0 0 0. "
             "docs/algorithms.md has the formulas.",
    .examples = "  xray algo list\n  xray algo list --json\n",
    .flags = flags,
    .run = run_algo_list,
};
