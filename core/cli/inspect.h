/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints a plugin's descriptor as text, as an INI template and as JSON.
 */
#ifndef XR_CLI_INSPECT_H
#define XR_CLI_INSPECT_H

#include <xray/plugin.h>

#include "core/base/str.h"

void cli_inspect_text(const xray_plugin *plugin, const char *path, xr_str *out);
void cli_inspect_ini(const xray_plugin *plugin, xr_str *out);
void cli_inspect_json(const xray_plugin *plugin, const char *path, xr_str *out);

/* Appends type, unit and range: "int, tokens, 1 to 8". */
void cli_put_kind(const xray_option *option, xr_str *out);
/* Appends "name":"value", or "name":null. */
void cli_json_member(const char *name, const char *value, xr_str *out);

#endif
