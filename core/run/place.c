/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "core/run/parts.h"

void xr_run_place(const xr_run *s, xr_err *err)
{
    const xr_err said = *err;
    const xr_place *place = &said.place;
    if (*place->section && *place->key)
        (void)xr_fail(err, XRAY_E_CONFIG, "%s: [%s] %s%s",
                      xr_config_place(s->config, place->section, place->key),
                      place->section, place->key, said.text + place->said);
}
