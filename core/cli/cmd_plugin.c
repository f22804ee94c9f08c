/* SPDX-License-Identifier: Apache-2.0
 *
 * xray plugin list and xray plugin inspect: print the plugins of the search
 * path and the options of one.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/str.h"
#include "core/cli/cli.h"
#include "core/cli/inspect.h"
#include "core/plugin/plugin.h"

/* ---- list --------------------------------------------------------------- */

static void put_list_json(const xr_plugins *plugins, xr_str *out)
{
    xr_str_puts(out, "[");
    for (size_t i = 0; i < xr_plugins_count(plugins); i++) {
        const xr_plugin_file *file = xr_plugins_at(plugins, i);
        xr_str_puts(out, i ? ",\n {" : "\n {");
        cli_json_member("name", file->name, out);
        xr_str_puts(out, ",");
        cli_json_member("version", file->version, out);
        xr_str_puts(out, ",");
        cli_json_member("provides", file->provides, out);
        xr_str_puts(out, ",");
        cli_json_member("path", file->path, out);
        xr_str_puts(out, ",");
        cli_json_member("refused", file->refused, out);
        xr_str_puts(out, "}");
    }
    xr_str_puts(out, "\n]\n");
}

static void put_list_text(const xr_plugins *plugins, xr_str *out)
{
    for (size_t i = 0; i < xr_plugins_count(plugins); i++) {
        const xr_plugin_file *file = xr_plugins_at(plugins, i);
        if (file->refused)
            xr_str_printf(out, "%-16s  %s\n  %s\n",
                          file->hidden ? "hidden" : "refused", file->path,
                          file->refused);
        else
            xr_str_printf(out, "%-16s  %-8s  %s\n  %s\n", file->name,
                          file->version, file->provides, file->path);
    }
    if (!xr_plugins_count(plugins))
        xr_str_puts(out, "no plugin was found\n");
}

static int print_output(const xr_str *text)
{
    if (text->failed) {
        cli_say("out of memory");
        return CLI_FAILED;
    }
    (void)fputs(xr_str_text(text), stdout);
    return CLI_OK;
}

static int run_plugin_list(const cli_args *args)
{
    xr_err err = { "" };
    xr_plugins *plugins = NULL;
    xr_str out = { 0 };
    if (xr_plugins_open(args->plugin_path, &err, &plugins) != XRAY_OK)
        return cli_fail(XRAY_E_CONFIG, &err);
    if (args->json)
        put_list_json(plugins, &out);
    else
        put_list_text(plugins, &out);
    int code = print_output(&out);
    xr_str_free(&out);
    xr_plugins_close(plugins);
    return code;
}

static const cli_flag list_flags[] = { { "--json", NULL, CLI_SWITCH, 0,
                                         offsetof(cli_args, json), NULL, 1, 0,
                                         "as a JSON array" },
                                       CLI_PLUGIN_PATH_FLAG,
                                       { 0 } };

const cli_command cli_plugin_list = {
    .name = "plugin list",
    .usage = "[options]",
    .summary = "plugins of the search path",
    .about =
        "Prints name, version, what it provides and file of every plugin, "
        "and why a file\nis refused or hidden. No code of a plugin is run. "
        "The search path is --plugin-path,\nXRAY_PLUGIN_PATH, then the "
        "folder plugins beside the program; a plugin hides those\nof its "
        "name in later folders.",
    .examples = "  xray plugin list\n  xray plugin list --json\n",
    .flags = list_flags,
    .run = run_plugin_list,
};

/* ---- inspect ------------------------------------------------------------ */

/* True if `provides` ("xray.algo/0:NAME ...") holds the name. */
static int provides_name(const char *provides, const char *name)
{
    size_t size = strlen(name);
    for (const char *at = strchr(provides, ':'); at; at = strchr(at, ':')) {
        at++;
        if (strncmp(at, name, size) == 0 && (!at[size] || at[size] == ' '))
            return 1;
    }
    return 0;
}

static int plugin_matches(const xr_plugin_file *file, const char *name)
{
    return (file->name && strcmp(file->name, name) == 0) ||
           (file->provides && provides_name(file->provides, name));
}

static xray_status find_plugin_file(const xr_plugins *plugins, const char *name,
                                    xr_err *err, const char **out_path)
{
    *out_path = NULL;
    for (size_t i = 0; i < xr_plugins_count(plugins); i++) {
        const xr_plugin_file *file = xr_plugins_at(plugins, i);
        if (!plugin_matches(file, name))
            continue;
        if (*out_path)
            return xr_fail(err, XRAY_E_CONFIG,
                           "'%s' is in %s and in %s; name the file", name,
                           *out_path, file->path);
        *out_path = file->path;
    }
    if (!*out_path)
        return xr_fail(err, XRAY_E_CONFIG,
                       "there is no plugin '%s'; see 'xray plugin list'", name);
    return XRAY_OK;
}

static int inspect_plugin_file(const char *path, const cli_args *args)
{
    xr_err err = { "" };
    const xray_plugin *plugin = NULL;
    xr_str out = { 0 };
    if (xr_plugin_load(path, &err, &plugin) != XRAY_OK)
        return cli_fail(XRAY_E_IO, &err);
    if (strcmp(args->format, "json") == 0)
        cli_inspect_json(plugin, path, &out);
    else if (strcmp(args->format, "ini") == 0)
        cli_inspect_ini(plugin, &out);
    else
        cli_inspect_text(plugin, path, &out);
    int code = print_output(&out);
    xr_str_free(&out);
    return code;
}

static int run_plugin_inspect(const cli_args *args)
{
    const char *word = args->words.items[0];
    xr_err err = { "" };
    xr_plugins *plugins = NULL;
    const char *path = NULL;
    if (strchr(word, '/'))
        return inspect_plugin_file(word, args);
    if (xr_plugins_open(args->plugin_path, &err, &plugins) != XRAY_OK)
        return cli_fail(XRAY_E_CONFIG, &err);
    xray_status status = find_plugin_file(plugins, word, &err, &path);
    int code = status == XRAY_OK ? inspect_plugin_file(path, args)
                                 : cli_fail(status, &err);
    xr_plugins_close(plugins);
    return code;
}

static const cli_flag inspect_flags[] = {
    { "--format", "text|ini|json", CLI_TEXT, 0, offsetof(cli_args, format),
      "text", 1, 0, "a manual page, a commented INI template, or JSON" },
    CLI_PLUGIN_PATH_FLAG,
    { 0 }
};

const cli_command cli_plugin_inspect = {
    .name = "plugin inspect",
    .usage = "NAME|FILE [options]",
    .summary = "a plugin's components and their options",
    .about = "Loads a plugin, by its name, by that of a component or by its "
             "file (a path with\na '/'), checks it against the ABI and prints "
             "its options with ranges, choices,\ndefaults and documentation.",
    .examples = "  xray plugin inspect grpo\n  xray plugin inspect "
                "./mine.so --format=json\n",
    .flags = inspect_flags,
    .min_words = 1,
    .max_words = 1,
    .run = run_plugin_inspect,
};
