/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of comm-tcp, or of another comm that shares no memory, on the cpu
 * device.
 */
#include <pthread.h>

#include "tests/comm/ranks.h"

const xray_plugin *xray_plugin_query_device_cpu(uint32_t host_abi);
#ifndef RANKS_COMM
#define RANKS_COMM xray_plugin_query_comm_tcp
#endif
const xray_plugin *RANKS_COMM(uint32_t host_abi);

static xray_device_ops device;

static const xray_device_ops *cpu_ops(void)
{
    return xray_plugin_query_device_cpu(XRAY_ABI)->components[0]->ops;
}

/* Allocates blocks from regions that are freed with the instance, so that a
 * test need not free them. */
static xray_status create_device(const xray_host *host, const void *config,
                                 uint32_t threads, void **out_self)
{
    xray_status status = cpu_ops()->create(host, config, threads, out_self);
    return status == XRAY_OK ? cpu_ops()->shareable(*out_self, 1) : status;
}

static void fill_device_ops(void)
{
    device = *cpu_ops();
    device.create = create_device;
}

/* Ranks may be threads. */
void ranks_parts(ranks_env *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, fill_device_ops);
    e->dev = &device;
    e->comm = RANKS_COMM(XRAY_ABI)->components[0]->ops;
    e->sends_copies = 1;
    e->brief = 1;
    e->serves = "cpu";
    e->refuses = "nothing";
}
