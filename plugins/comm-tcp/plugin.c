/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares comm-tcp: collectives among processes on any number of hosts, over
 * TCP. Creates instances.
 */
#include <stdlib.h>

#include <xray/plugin.h>

#include "plugins/comm-tcp/tcp.h"

static const xray_option options[] = {
    XRAY_STRING(tcp_config, interface, "", 0u, "0.1",
                "Where the other ranks reach this one: the name of a network "
                "interface, or an address or a network (10.1.0.0/16) of one; "
                "empty: that of the default route, and the loopback where all "
                "ranks are on one host."),
    XRAY_DURATION(tcp_config, heartbeat, "3s", 1000000000, 3600000000000, "s",
                  0u, "0.1",
                  "The longest that a host may be silent before its ranks "
                  "count as lost."),
};

/* Makes the lines, none of which is connected. */
static xray_status make_lines(mesh_comm *comm)
{
    tcp_lines *lines = calloc(1, sizeof(*lines));
    tcp_line *of = calloc(comm->size, sizeof(*of));
    if (!lines || !of) {
        free(lines);
        free(of);
        return xr_host_fail(comm->host, XRAY_E_NOMEM, "comm tcp",
                            "no memory for the instance");
    }
    *lines = (tcp_lines){ .of = of, .rings_fd = -1 };
    comm->lines = lines;
    for (uint32_t r = 0; r < comm->size; r++) {
        of[r].calls = of[r].notes = -1;
        comm->peers[r].line = &of[r];
    }
    return XRAY_OK;
}

static xray_status tcp_create(const xray_comm_setup *setup, const void *config,
                              void **out_self)
{
    static const tcp_config usual = { "", 3000000000 };
    const tcp_config *chosen = config ? config : &usual;
    mesh_comm *comm = NULL;
    xray_status status = mesh_new(setup, &tcp_transport, &comm);
    if (status != XRAY_OK)
        return status;
    comm->silence = (uint64_t)chosen->heartbeat;
    status = make_lines(comm);
    if (status == XRAY_OK)
        status = tcp_connect(comm, setup, chosen, mesh_prepare(comm));
    if (status == XRAY_OK)
        status = mesh_begin(comm);
    if (status != XRAY_OK) {
        mesh_destroy(comm);
        return status;
    }
    *out_self = comm;
    return XRAY_OK;
}

static const xray_comm_ops ops = {
    .header = XRAY_HEADER(xray_comm_ops),
    .create = tcp_create,
    MESH_CALLBACKS,
};

static const xray_component tcp = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_COMM,
    .name = "tcp",
    .summary = "processes on any number of hosts, over TCP",
    .ops = &ops,
    .options = options,
    .option_count = sizeof(options) / sizeof(*options),
    .option_stride = sizeof(xray_option),
    .config_size = sizeof(tcp_config),
};

static const xray_component *const components[] = { &tcp };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI_NEEDED,
    .component_count = 1,
    .name = "comm-tcp",
    .version = "0.1.0",
    .vendor = "X-ray",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(comm_tcp, plugin, "comm-tcp", "0.1.0", "xray.comm/0:tcp")
