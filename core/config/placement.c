/* SPDX-License-Identifier: Apache-2.0
 *
 * Defines the options of [placement], [runtime] and [runtime.hosts]: where the
 * ranks of a run are.
 */
#include "core/config/internal.h"
#include "core/config/sections.h"

#define PLACEMENT xr_placement_section
const xray_option xr_placement_options[6] = {
    XRAY_LIST(PLACEMENT, actor, "all", 0u, "0.1",
              "Ranks that hold the policy: numbers, ranges such as 0-3, or "
              "all."),
    XRAY_LIST(PLACEMENT, reference, "", 0u, "0.1",
              "Ranks of the reference policy; empty: those of the actor."),
    XRAY_LIST(PLACEMENT, critic, "", 0u, "0.1",
              "Ranks of the critic; empty: those of the actor."),
    XRAY_LIST(PLACEMENT, reward, "", 0u, "0.1",
              "Ranks of the reward model; empty: those of the actor."),
    XRAY_LIST(PLACEMENT, rollout, "", 0u, "0.1",
              "Ranks that have an engine; empty: those of the actor."),
    XRAY_LIST(PLACEMENT, hosts, "", 0u, "0.1",
              "Hosts of the ranks, in their order, each with the number of its "
              "ranks: a:2, b:2; without a number 1. Ranks on localhost are "
              "started directly. An engine chooses the hosts itself."),
};

#define RUNTIME xr_runtime_section
const xray_option xr_runtime_options[3] = {
    XRAY_STRING(RUNTIME, interface, "", 0u, "0.1",
                "Network interface of this host on which Workhorses of other "
                "hosts reach the run, such as eth0; empty: the loopback one, "
                "for ranks on localhost."),
    XRAY_DURATION(RUNTIME, silence, "3s", 1e8, 1e15, "s", 0u, "0.1",
                  "A Workhorse without a sign of life for this long is lost."),
    XRAY_BOOL(
        RUNTIME, tls, "false", 0u, "0.1",
        "Encrypts what a run with runtime = hosts, or with an engine, and "
        "its Workhorses send each other: TLS 1.3, by GnuTLS (libgnutls30) on "
        "each host."),
};

const xray_option xr_hosts_options[1] = {
    XRAY_STRING(RUNTIME, launch, "ssh {host} xray workhorse {address}", 0u,
                "0.1",
                "Command line that starts a Workhorse on a host and lives as "
                "long as it does. No shell reads it; parts in quotes are one "
                "word. It must pass its standard input on."),
};
