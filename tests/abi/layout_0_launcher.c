/* SPDX-License-Identifier: Apache-2.0
 *
 * Layout of xray.launcher/0 on LP64.
 */
#include <xray/launcher.h>

#include "tests/abi/layout.h"

AT(xray_launch_place, name, 0);
AT(xray_launch_place, devices, 8);
AT(xray_launch_place, threads, 12);
AT(xray_launch_place, memory, 16);
SIZE(xray_launch_place, 24);

AT(xray_launch_setup, header, 0);
AT(xray_launch_setup, host, 8);
AT(xray_launch_setup, places, 16);
AT(xray_launch_setup, place_stride, 24);
AT(xray_launch_setup, count, 32);
AT(xray_launch_setup, path_count, 36);
AT(xray_launch_setup, run, 40);
AT(xray_launch_setup, program, 48);
AT(xray_launch_setup, build, 56);
AT(xray_launch_setup, folder, 64);
AT(xray_launch_setup, paths, 72);
AT(xray_launch_setup, restarts, 80);
AT(xray_launch_setup, reserved, 84);
SIZE(xray_launch_setup, 88);

AT(xray_launch, header, 0);
AT(xray_launch, argv, 8);
AT(xray_launch, token, 16);
AT(xray_launch, index, 24);
AT(xray_launch, reserved, 28);
SIZE(xray_launch, 32);

AT(xray_launch_event, header, 0);
AT(xray_launch_event, kind, 8);
AT(xray_launch_event, index, 12);
AT(xray_launch_event, clean, 16);
AT(xray_launch_event, reserved, 20);
AT(xray_launch_event, text, 24);
AT(xray_launch_event, size, 32);
SIZE(xray_launch_event, 40);

AT(xray_launch_entry, header, 0);
AT(xray_launch_entry, kind, 8);
AT(xray_launch_entry, reserved, 12);
AT(xray_launch_entry, address, 16);
AT(xray_launch_entry, token, 144);
SIZE(xray_launch_entry, 272);

AT(xray_launcher_ops, header, 0);
AT(xray_launcher_ops, create, 8);
AT(xray_launcher_ops, destroy, 16);
AT(xray_launcher_ops, host_of, 24);
AT(xray_launcher_ops, start, 32);
AT(xray_launcher_ops, stop, 40);
AT(xray_launcher_ops, events, 48);
AT(xray_launcher_ops, next, 56);
AT(xray_launcher_ops, check, 64);
AT(xray_launcher_ops, enter, 72);
AT(xray_launcher_ops, submit, 80);
AT(xray_launcher_ops, extension, 88);
SIZE(xray_launcher_ops, 96);

_Static_assert(XRAY_LAUNCH_SAYS == 1u && XRAY_LAUNCH_ENDED == 2u, "events");
_Static_assert(XRAY_ENTRY_DRIVER == 1u && XRAY_ENTRY_WORKHORSE == 2u, "kinds");
