/* SPDX-License-Identifier: Apache-2.0
 *
 * Visits the option tables of the core and of every plugin, in a fixed order.
 */
#include "core/cli/option_tables.h"

#include <stdio.h>
#include <string.h>

#include "core/roles/reward_model.h"

xr_table cli_table_of(const xray_component *component)
{
    return (xr_table){ component->options, component->option_count,
                       component->option_stride };
}

int cli_is_reward(const xray_component *component)
{
    return strcmp(component->iface, XRAY_IFACE_REWARD) == 0;
}

int cli_is_trainer(const xray_component *component)
{
    return strcmp(component->iface, XRAY_IFACE_TRAIN) == 0;
}

const char *cli_role_prefix(size_t i)
{
    static const char *const prefixes[] = { "ref.", "critic.", "reward.",
                                            NULL };
    return prefixes[i];
}

void cli_put_section_name(const xray_component *component, xr_str *out)
{
    char section[XR_SECTION_CAP];
    xr_str_puts(out, xr_component_section(component, section));
}

/* The next plugin in the order of names, or NULL after the last one. */
static const xr_plugin_file *next_plugin(const xr_plugins *plugins,
                                         const char *last)
{
    const xr_plugin_file *next = NULL;
    for (size_t i = 0; i < xr_plugins_count(plugins); i++) {
        const xr_plugin_file *file = xr_plugins_at(plugins, i);
        if (!file->refused && strcmp(file->name, last) > 0 &&
            (!next || strcmp(file->name, next->name) < 0))
            next = file;
    }
    return next;
}

void cli_each_component(const cli_tables *tables,
                        void (*f)(const char *plugin, const xray_component *c,
                                  xr_str *out))
{
    const char *last = "";
    const xr_plugin_file *file;
    while ((file = next_plugin(tables->plugins, last))) {
        const xray_plugin *plugin = NULL;
        xr_err err = { "" };
        last = file->name;
        if (xr_plugin_load(file->path, &err, &plugin) != XRAY_OK)
            continue;
        for (uint32_t k = 0; k < plugin->component_count; k++)
            f(plugin->name, plugin->components[k], tables->out);
    }
    f(NULL, &xr_reward_model_component, tables->out);
}

int cli_print_tables(const cli_args *args, void (*put)(const cli_tables *))
{
    xr_err err = { "" };
    xr_str out = { 0 };
    cli_tables tables = { .out = &out };
    if (xr_plugins_open(args->plugin_path, &err, &tables.plugins) != XRAY_OK)
        return cli_fail(XRAY_E_CONFIG, &err);
    put(&tables);
    int code = CLI_OK;
    if (out.failed) {
        cli_say("out of memory");
        code = CLI_FAILED;
    } else {
        (void)fputs(xr_str_text(&out), stdout);
    }
    xr_str_free(&out);
    xr_plugins_close(tables.plugins);
    return code;
}
