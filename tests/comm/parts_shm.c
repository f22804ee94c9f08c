/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of comm-shm on the cpu device.
 */
#include "tests/comm/ranks.h"

#include "tests/testing.h"

const xray_plugin *xray_plugin_query_device_cpu(uint32_t host_abi);
const xray_plugin *xray_plugin_query_comm_shm(uint32_t host_abi);

void ranks_parts(ranks_env *e)
{
    e->dev = xray_plugin_query_device_cpu(XRAY_ABI)->components[0]->ops;
    e->comm = xray_plugin_query_comm_shm(XRAY_ABI)->components[0]->ops;
    e->serves = "cpu";
    e->refuses = "nothing";
    e->brief = TEST_STEP > 1;
}
