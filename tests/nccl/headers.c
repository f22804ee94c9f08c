/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the declarations of nccl_api.h with the headers of NCCL and of the
 * CUDA driver.
 */
#include <cuda.h>
#include <nccl.h>

#include "plugins/comm-nccl/nccl_api.h"

#define SAME(a, b) _Static_assert((int)(a) == (int)(b), #a)
#define AT(ours, theirs)                                    \
    _Static_assert(offsetof(nccl_settings, ours) ==         \
                       offsetof(ncclConfig_t, theirs),      \
                   #theirs);                                \
    _Static_assert(sizeof(((nccl_settings *)0)->ours) ==    \
                       sizeof(((ncclConfig_t *)0)->theirs), \
                   #theirs)

SAME(NCCL_SUCCESS, ncclSuccess);
SAME(NCCL_IN_PROGRESS, ncclInProgress);
SAME(NCCL_INT8, ncclInt8);
SAME(NCCL_FLOAT32, ncclFloat32);
SAME(NCCL_BFLOAT16, ncclBfloat16);
SAME(NCCL_SUM, ncclSum);
SAME(NCCL_MAX, ncclMax);
SAME(NCCL_CUDA_SUCCESS, CUDA_SUCCESS);
SAME(NCCL_CUDA_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(NCCL_CUDA_EVENT_PLAIN, CU_EVENT_DISABLE_TIMING);
SAME(NCCL_ID_BYTES, NCCL_UNIQUE_ID_BYTES);
_Static_assert(sizeof(nccl_id) == sizeof(ncclUniqueId), "ncclUniqueId");
_Static_assert(sizeof(ncclResult_t) == sizeof(int), "ncclResult_t");
_Static_assert(sizeof(ncclDataType_t) == sizeof(int), "ncclDataType_t");
_Static_assert(sizeof(ncclRedOp_t) == sizeof(int), "ncclRedOp_t");
_Static_assert(sizeof(CUdevice) == sizeof(int), "CUdevice");
_Static_assert(sizeof(CUresult) == sizeof(int), "CUresult");
AT(size, size);
AT(magic, magic);
AT(version, version);
AT(blocking, blocking);
AT(cga_size, cgaClusterSize);
AT(least_ctas, minCTAs);
AT(most_ctas, maxCTAs);
AT(net, netName);
AT(split_share, splitShare);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 26, 0)
AT(traffic, trafficClass);
#endif
