/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements a device that is absent from this machine with SICK=device-absent,
 * and one that has its own memory with SICK=device-memory.
 */
#include "tests/zoo/sick.h"

static const xray_device_ops *base;

static xray_status device_probe(const xray_host *host, const void *config)
{
    (void)config;
    return sick_is("device-absent")
               ? host->fail(host, XRAY_E_UNSUPPORTED, "probe",
                            "there is no such card")
               : XRAY_OK;
}

static xray_status device_plan(const xray_host *host, const void *config,
                               xray_device_plan *out)
{
    xray_status status = base->plan(host, config, out);
    out->host_memory = !sick_is("device-memory");
    return status;
}

const xray_component *sick_device(void)
{
    static xray_device_ops ops;
    static xray_component component;
    if (!sick_wrapped("device-cpu", &component))
        return NULL;
    base = component.ops;
    ops = *base;
    ops.probe = device_probe;
    ops.plan = device_plan;
    component.name = "sick";
    component.ops = &ops;
    return &component;
}
