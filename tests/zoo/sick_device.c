/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements a device that is absent from this machine with SICK=device-absent.
 */
#include "tests/zoo/sick.h"

static xray_status device_probe(const xray_host *host, const void *config)
{
    (void)config;
    return sick_is("device-absent")
               ? host->fail(host, XRAY_E_UNSUPPORTED, "probe",
                            "there is no such card")
               : XRAY_OK;
}

const xray_component *sick_device(void)
{
    static xray_device_ops ops;
    static xray_component component;
    if (!sick_wrapped("device-cpu", &component))
        return NULL;
    ops = *(const xray_device_ops *)component.ops;
    ops.probe = device_probe;
    component.name = "sick";
    component.ops = &ops;
    return &component;
}
