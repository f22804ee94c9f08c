/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints the resolved configuration and visits its values.
 */
#include <string.h>

#include "core/config/internal.h"

/* True if the reader would not return the bare text. */
static int needs_quotes(const char *text)
{
    size_t size = strlen(text);
    if (!size || text[0] == '"' || text[0] == ';' || text[0] == '#')
        return 1;
    if (strchr(" \t", text[0]) || strchr(" \t", text[size - 1]))
        return 1;
    for (size_t i = 0; i < size; i++) {
        if ((unsigned char)text[i] < 0x20)
            return 1;
        if (i && strchr(";#", text[i]) && strchr(" \t", text[i - 1]))
            return 1;
    }
    return 0;
}

void xr_config_put_value(const char *text, xr_str *out)
{
    if (!needs_quotes(text)) {
        xr_str_puts(out, text);
        return;
    }
    xr_str_puts(out, "\"");
    for (; *text; text++) {
        if (*text == '\n')
            xr_str_puts(out, "\\n");
        else if (*text == '\t')
            xr_str_puts(out, "\\t");
        else if (*text == '"' || *text == '\\')
            xr_str_printf(out, "\\%c", *text);
        else
            xr_str_append(out, text, 1);
    }
    xr_str_puts(out, "\"");
}

static int is_printed(const xr_entry *entry)
{
    return entry->text && entry->flags & XR_ENTRY_KNOWN &&
           !(entry->flags & (XR_ENTRY_SECRET | XR_ENTRY_FOLDED));
}

int xr_config_next(const xr_config *config, size_t at[2], xr_config_value *out)
{
    int resolved = 0;
    for (size_t i = 0; i < config->count; i++)
        resolved |= config->sections[i].decoded;
    for (; at[0] < config->count; at[0]++, at[1] = 0) {
        const xr_section *section = &config->sections[at[0]];
        while (at[1] < section->count) {
            const xr_entry *e = &section->entries[at[1]++];
            if (resolved ? !is_printed(e) : !e->text)
                continue;
            *out = (xr_config_value){
                .section = section->name,
                .key = e->key,
                .text = e->printed ? e->printed : e->text,
                .origin = e->origin,
                .given = e->layer != XR_LAYER_DEFAULT,
                .is_paths = (e->flags & XR_ENTRY_PATHS) != 0,
            };
            return 1;
        }
    }
    return 0;
}

static void print_section(const xr_section *section, int origins, xr_str *out)
{
    int begun = 0;
    for (size_t i = 0; i < section->count; i++) {
        const xr_entry *entry = &section->entries[i];
        if (!is_printed(entry))
            continue;
        if (!begun)
            xr_str_printf(out, "%s[%s]\n", out->size ? "\n" : "",
                          section->name);
        begun = 1;
        xr_str_printf(out, "%s = ", entry->key);
        xr_config_put_value(entry->printed ? entry->printed : entry->text, out);
        if (origins)
            xr_str_printf(out, " ; %s", entry->origin);
        xr_str_puts(out, "\n");
    }
}

void xr_config_print(const xr_config *config, int origins, xr_str *out)
{
    for (size_t i = 0; i < config->count; i++)
        if (config->sections[i].decoded)
            print_section(&config->sections[i], origins, out);
}
