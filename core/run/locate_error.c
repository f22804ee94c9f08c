/* SPDX-License-Identifier: Apache-2.0
 *
 * Begins the errors of plugins with the location of the key they are about.
 */
#include <stdio.h>

#include "core/run/run_setup.h"

void xr_run_locate(const xr_run *run, xr_err *err)
{
    const xr_err said = *err;
    const xr_location *location = &said.location;
    if (*location->section && *location->key)
        (void)xr_fail(
            err, XRAY_E_CONFIG, "%s: [%s] %s%s",
            xr_config_location(run->config, location->section, location->key),
            location->section, location->key, said.text + location->name_end);
}
