/* SPDX-License-Identifier: Apache-2.0
 *
 * Layout of xray.runtime/0 on LP64.
 */
#include <xray/runtime.h>

#include "tests/abi/layout.h"

AT(xray_region, header, 0);
AT(xray_region, id, 8);
AT(xray_region, size, 16);
AT(xray_region, data, 24);
AT(xray_region, peer, 32);
AT(xray_region, first, 40);
AT(xray_region, count, 48);
SIZE(xray_region, 56);

AT(xray_runtime_setup, header, 0);
AT(xray_runtime_setup, host, 8);
AT(xray_runtime_setup, record_size, 16);
AT(xray_runtime_setup, actors, 24);
AT(xray_runtime_setup, hang_ms, 28);
AT(xray_runtime_setup, start_ms, 32);
AT(xray_runtime_setup, reserved, 36);
SIZE(xray_runtime_setup, 40);

AT(xray_actor_spec, header, 0);
AT(xray_actor_spec, name, 8);
AT(xray_actor_spec, argv, 16);
AT(xray_actor_spec, host, 24);
AT(xray_actor_spec, index, 32);
AT(xray_actor_spec, devices, 36);
SIZE(xray_actor_spec, 40);

AT(xray_runtime_event, header, 0);
AT(xray_runtime_event, kind, 8);
AT(xray_runtime_event, clean, 12);
AT(xray_runtime_event, peer, 16);
AT(xray_runtime_event, data, 24);
AT(xray_runtime_event, size, 32);
AT(xray_runtime_event, reason, 40);
SIZE(xray_runtime_event, 48);

AT(xray_runtime_ops, header, 0);
AT(xray_runtime_ops, create, 8);
AT(xray_runtime_ops, attach, 16);
AT(xray_runtime_ops, destroy, 24);
AT(xray_runtime_ops, spawn, 32);
AT(xray_runtime_ops, kill, 40);
AT(xray_runtime_ops, pid, 48);
AT(xray_runtime_ops, send, 56);
AT(xray_runtime_ops, poll, 64);
AT(xray_runtime_ops, region_create, 72);
AT(xray_runtime_ops, region_destroy, 80);
AT(xray_runtime_ops, region_find, 88);
AT(xray_runtime_ops, record, 96);
AT(xray_runtime_ops, records, 104);
AT(xray_runtime_ops, notify, 112);
AT(xray_runtime_ops, notice, 120);
AT(xray_runtime_ops, extension, 128);
SIZE(xray_runtime_ops, 136);
