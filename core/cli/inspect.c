/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints a plugin's components and options as text, as an INI template and as
 * JSON.
 */
#include "core/cli/inspect.h"

#include <string.h>

#include "core/cli/option_tables.h"

static const char *option_type_name(uint32_t type)
{
    static const char *const names[] = {
        "unknown", "bool", "int",    "real", "bytes",    "duration",
        "string",  "path", "choice", "list", "tristate",
    };
    return names[type < sizeof names / sizeof names[0] ? type : 0];
}

static int option_has_range(const xray_option *option)
{
    return option->min <= option->max;
}

/* ---- text and INI ------------------------------------------------------- */

void cli_put_kind(const xray_option *option, xr_str *out)
{
    char least[40];
    char most[40];
    const char *type = option_type_name(option->type);
    xr_str_puts(out, type);
    if (option->flags & XRAY_OPT_PATHS)
        xr_str_puts(out, " of paths");
    if (option->unit && option->type != XRAY_OPT_DURATION &&
        strcmp(option->unit, type) != 0)
        xr_str_printf(out, ", %s", option->unit);
    if (option_has_range(option))
        xr_str_printf(out, ", %s to %s",
                      xr_option_bound(option, option->min, least, sizeof least),
                      xr_option_bound(option, option->max, most, sizeof most));
    if (option->flags & XRAY_OPT_REQUIRED)
        xr_str_puts(out, ", required");
    if (option->flags & XRAY_OPT_DEPRECATED)
        xr_str_puts(out, ", deprecated");
    if (option->flags & XRAY_OPT_SECRET)
        xr_str_puts(out, ", secret");
}

/* Appends type, unit, range and choices on one line. */
static void put_kind_and_choices(const xray_option *option, xr_str *out)
{
    cli_put_kind(option, out);
    const char *before = ": ";
    for (const xray_choice *c = option->choices; c && c->name;
         c = xray_next_choice(option, c)) {
        xr_str_printf(out, "%s%s", before, c->name);
        before = " | ";
    }
}

/* Appends `text` with `prefix` before every line. */
static void put_prefixed_lines(const char *prefix, const char *text,
                               xr_str *out)
{
    while (*text) {
        size_t size = strcspn(text, "\n");
        xr_str_puts(out, prefix);
        xr_str_append(out, text, size);
        xr_str_append(out, "\n", 1);
        text += size;
        text += *text == '\n';
    }
}

static void put_option_text(const xray_option *option, xr_str *out)
{
    xr_str_printf(out, "    %s = %s\n        (", option->name,
                  option->preset ? option->preset : "");
    put_kind_and_choices(option, out);
    xr_str_puts(out, ")\n");
    if (option->doc)
        put_prefixed_lines("        ", option->doc, out);
    for (const xray_choice *c = option->choices; c && c->name;
         c = xray_next_choice(option, c))
        if (c->doc)
            xr_str_printf(out, "        %s: %s\n", c->name, c->doc);
}

void cli_inspect_text(const xray_plugin *plugin, const char *path, xr_str *out)
{
    xr_str_printf(out, "%s %s\n%s\nvendor %s, license %s\n", plugin->name,
                  plugin->version, path, plugin->vendor ? plugin->vendor : "-",
                  plugin->license ? plugin->license : "-");
    for (uint32_t i = 0; i < plugin->component_count; i++) {
        const xray_component *c = plugin->components[i];
        xr_str_printf(out, "\n%s:%s\n", c->iface, c->name);
        if (c->summary)
            xr_str_printf(out, "  %s\n", c->summary);
        if (XRAY_HAS(xray_component, c, numerics))
            xr_str_printf(out, "  numerics contract %s\n", c->numerics);
        xr_str_puts(out, "  options of [");
        cli_put_section_name(c, out);
        xr_str_puts(out, c->option_count ? "]\n" : "]: none\n");
        for (uint32_t k = 0; k < c->option_count; k++) {
            xray_option option = xr_option_at(cli_table_of(c), k);
            put_option_text(&option, out);
        }
    }
}

void cli_inspect_ini(const xray_plugin *plugin, xr_str *out)
{
    for (uint32_t i = 0; i < plugin->component_count; i++) {
        const xray_component *c = plugin->components[i];
        xr_str_puts(out, i ? "\n[" : "[");
        cli_put_section_name(c, out);
        xr_str_puts(out, "]\n");
        for (uint32_t k = 0; k < c->option_count; k++) {
            xray_option option = xr_option_at(cli_table_of(c), k);
            if (option.doc)
                put_prefixed_lines("; ", option.doc, out);
            xr_str_puts(out, "; ");
            put_kind_and_choices(&option, out);
            xr_str_printf(out, "\n;%s = ", option.name);
            xr_config_put_value(option.preset ? option.preset : "", out);
            xr_str_puts(out, "\n\n");
        }
    }
}

/* ---- JSON --------------------------------------------------------------- */

void cli_json_member(const char *name, const char *value, xr_str *out)
{
    xr_str_json(out, name, strlen(name));
    xr_str_puts(out, ":");
    if (value)
        xr_str_json(out, value, strlen(value));
    else
        xr_str_puts(out, "null");
}

static void put_choices_json(const xray_option *option, xr_str *out)
{
    xr_str_puts(out, ",\"choices\":[");
    for (const xray_choice *c = option->choices; c->name;
         c = xray_next_choice(option, c)) {
        xr_str_puts(out, c == option->choices ? "{" : ",{");
        cli_json_member("name", c->name, out);
        xr_str_puts(out, ",");
        cli_json_member("doc", c->doc, out);
        xr_str_puts(out, "}");
    }
    xr_str_puts(out, "]");
}

static void put_option_json(const xray_option *option, xr_str *out)
{
    xr_str_puts(out, "{");
    cli_json_member("name", option->name, out);
    xr_str_puts(out, ",");
    cli_json_member("type", option_type_name(option->type), out);
    xr_str_puts(out, ",");
    cli_json_member("default", option->preset, out);
    xr_str_puts(out, ",");
    cli_json_member("doc", option->doc, out);
    xr_str_puts(out, ",");
    cli_json_member("unit", option->unit, out);
    xr_str_puts(out, ",");
    cli_json_member("since", option->since, out);
    xr_str_printf(out, ",\"required\":%s",
                  option->flags & XRAY_OPT_REQUIRED ? "true" : "false");
    if (option_has_range(option)) {
        xr_str_puts(out, ",\"min\":");
        xr_str_number(out, option->min);
        xr_str_puts(out, ",\"max\":");
        xr_str_number(out, option->max);
    }
    if (option->choices)
        put_choices_json(option, out);
    xr_str_puts(out, "}");
}

static void put_component_json(const xray_component *c, xr_str *out)
{
    xr_str_puts(out, "{");
    cli_json_member("iface", c->iface, out);
    xr_str_puts(out, ",");
    cli_json_member("name", c->name, out);
    xr_str_puts(out, ",");
    cli_json_member("summary", c->summary, out);
    xr_str_puts(out, ",");
    cli_json_member("numerics",
                    XRAY_HAS(xray_component, c, numerics) ? c->numerics : NULL,
                    out);
    xr_str_puts(out, ",\"options\":[");
    for (uint32_t i = 0; i < c->option_count; i++) {
        xr_str_puts(out, i ? ",\n   " : "\n   ");
        xray_option option = xr_option_at(cli_table_of(c), i);
        put_option_json(&option, out);
    }
    xr_str_puts(out, "]}");
}

void cli_inspect_json(const xray_plugin *plugin, const char *path, xr_str *out)
{
    xr_str_puts(out, "{");
    cli_json_member("name", plugin->name, out);
    xr_str_puts(out, ",");
    cli_json_member("version", plugin->version, out);
    xr_str_puts(out, ",");
    cli_json_member("vendor", plugin->vendor, out);
    xr_str_puts(out, ",");
    cli_json_member("license", plugin->license, out);
    xr_str_puts(out, ",");
    cli_json_member("path", path, out);
    xr_str_puts(out, ",\"components\":[");
    for (uint32_t i = 0; i < plugin->component_count; i++) {
        xr_str_puts(out, i ? ",\n  " : "\n  ");
        put_component_json(plugin->components[i], out);
    }
    xr_str_puts(out, "]}\n");
}
