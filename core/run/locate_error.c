/* SPDX-License-Identifier: Apache-2.0
 *
 * Begins the errors of plugins with the location of the key they are about.
 */
#include <stdio.h>

#include <string.h>

#include "core/run/run_setup.h"

/* A role has most of its options from the backend's own section, where the key
 * is then found. */
static const char *find_setting_section(const xr_run *run,
                                        const xr_location *location)
{
    const char *base = xr_run_role_section(location->section);
    return base && strcmp(xr_config_origin(run->config, location->section,
                                           location->key),
                          "default") == 0
               ? base
               : location->section;
}

void xr_run_locate(const xr_run *run, xr_err *err)
{
    const xr_err said = *err;
    const xr_location *location = &said.location;
    if (!*location->section || !*location->key)
        return;
    const char *section = find_setting_section(run, location);
    (void)xr_fail(err, XRAY_E_CONFIG, "%s: [%s] %s%s",
                  xr_config_location(run->config, section, location->key),
                  section, location->key, said.text + location->name_end);
}
