/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of comm-shm on the cuda device, as tests/cuda runs it on the host.
 */
#include "tests/comm/ranks.h"

const xray_plugin *xray_plugin_query_device_cuda(uint32_t host_abi);
const xray_plugin *xray_plugin_query_comm_shm(uint32_t host_abi);

void ranks_parts(ranks_env *e)
{
    e->dev = xray_plugin_query_device_cuda(XRAY_ABI)->components[0]->ops;
    e->comm = xray_plugin_query_comm_shm(XRAY_ABI)->components[0]->ops;
    e->brief = 1;
    e->serves = "cuda:1";
    e->refuses = "cudas";
}
