/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of comm-shm on a device that reports that its memory is not the host's:
 * the cpu device without shareable memory.
 */
#include <pthread.h>

#include "tests/comm/late.h"
#include "tests/comm/ranks.h"

const xray_plugin *xray_plugin_query_device_cpu(uint32_t host_abi);
const xray_plugin *xray_plugin_query_comm_shm(uint32_t host_abi);

static const xray_device_ops *cpu_ops(void)
{
    return xray_plugin_query_device_cpu(XRAY_ABI)->components[0]->ops;
}

static xray_status staged_info(void *self, xray_device_info *out)
{
    xray_status status = cpu_ops()->info(self, out);
    out->host_memory = 0;
    return status;
}

/* Allocates blocks from regions that are freed with the instance, so that a
 * test need not free them. */
static xray_status staged_create(const xray_host *host, const void *config,
                                 uint32_t threads, void **out_self)
{
    xray_status status = cpu_ops()->create(host, config, threads, out_self);
    return status == XRAY_OK ? cpu_ops()->shareable(*out_self, 1) : status;
}

static xray_status staged_share(void *self, const void *ptr,
                                uint8_t *out_handle)
{
    (void)self;
    (void)ptr;
    (void)out_handle;
    return XRAY_E_UNSUPPORTED;
}

static xray_device_ops staged;

static void fill_staged_ops(void)
{
    staged = *cpu_ops();
    late_copies(&staged);
    staged.create = staged_create;
    staged.info = staged_info;
    staged.share = staged_share;
    staged.attach = NULL;
    staged.detach = NULL;
    staged.shareable = NULL;
}

/* Ranks may be threads. */
void ranks_parts(ranks_env *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, fill_staged_ops);
    e->dev = &staged;
    e->comm = xray_plugin_query_comm_shm(XRAY_ABI)->components[0]->ops;
    e->brief = 1;
    e->serves = "cuda";
    e->refuses = "cud";
}
