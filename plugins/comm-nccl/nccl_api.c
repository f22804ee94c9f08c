/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads the libraries of NCCL and of the CUDA driver and finds their functions.
 */
#define _GNU_SOURCE
#include "plugins/comm-nccl/nccl_api.h"

#include <dlfcn.h>
#include <string.h>

#include "plugins/comm-nccl/instance.h"

#define MIN_VERSION                                                        \
    21800 /* the first version with non-blocking communicators as they are \
           * used here */

typedef struct symbol {
    const char *name;
    size_t offset; /* offset of the function pointer in nccl_api */
} symbol;

#define AT(member, name)                 \
    {                                    \
        name, offsetof(nccl_api, member) \
    }

static const symbol nccl_symbols[] = {
    AT(version, "ncclGetVersion"),
    AT(unique_id, "ncclGetUniqueId"),
    AT(init, "ncclCommInitRankConfig"),
    AT(finalize, "ncclCommFinalize"),
    AT(destroy, "ncclCommDestroy"),
    AT(abort, "ncclCommAbort"),
    AT(async_error, "ncclCommGetAsyncError"),
    AT(error_text, "ncclGetErrorString"),
    AT(last_error, "ncclGetLastError"),
    AT(all_reduce, "ncclAllReduce"),
    AT(reduce_scatter, "ncclReduceScatter"),
    AT(all_gather, "ncclAllGather"),
    AT(broadcast, "ncclBroadcast"),
    AT(send, "ncclSend"),
    AT(recv, "ncclRecv"),
    AT(group_start, "ncclGroupStart"),
    AT(group_end, "ncclGroupEnd"),
    { NULL, 0 },
};

static const symbol cuda_symbols[] = {
    AT(cuda_init, "cuInit"),
    AT(device, "cuDeviceGet"),
    AT(bus_id, "cuDeviceGetPCIBusId"),
    AT(context_take, "cuDevicePrimaryCtxRetain"),
    AT(context_drop, "cuDevicePrimaryCtxRelease_v2"),
    AT(context_set, "cuCtxSetCurrent"),
    AT(cuda_text, "cuGetErrorString"),
    AT(event_create, "cuEventCreate"),
    AT(event_destroy, "cuEventDestroy_v2"),
    AT(event_record, "cuEventRecord"),
    AT(event_query, "cuEventQuery"),
    AT(stream_wait, "cuStreamWaitEvent"),
    { NULL, 0 },
};

/* Stores the address of each symbol in its member. A function pointer has the
 * size of an object pointer wherever dlsym exists. */
static xray_status find_symbols(const xray_host *host, const char *name,
                                void *library, const symbol *symbols,
                                nccl_api *out)
{
    for (size_t i = 0; symbols[i].name; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (!address)
            return xr_host_fail(host, XRAY_E_DEVICE, "comm nccl",
                                "%s has no %s: it is too old", name,
                                symbols[i].name);
        memcpy((char *)out + symbols[i].offset, &address, sizeof(address));
    }
    return XRAY_OK;
}

static xray_status load_library(const xray_host *host, const char *given,
                                const char *usual, const symbol *symbols,
                                nccl_api *out)
{
    const char *name = given && *given ? given : usual;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        const char *why = dlerror();
        return xr_host_fail(host, XRAY_E_DEVICE, "comm nccl",
                            "this machine cannot run it: %s", why ? why : name);
    }
    xray_status status = find_symbols(host, name, library, symbols, out);
    (void)dlclose(library); /* because of RTLD_NODELETE it stays loaded */
    return status;
}

xray_status nccl_api_load(const xray_host *host, const char *nccl,
                          const char *cuda, nccl_api *out)
{
    int version = 0;
    xray_status status =
        load_library(host, cuda, "libcuda.so.1", cuda_symbols, out);
    if (status == XRAY_OK)
        status = load_library(host, nccl, "libnccl.so.2", nccl_symbols, out);
    if (status != XRAY_OK)
        return status;
    if (out->version(&version) != NCCL_SUCCESS || version < MIN_VERSION)
        return xr_host_fail(
            host, XRAY_E_DEVICE, "comm nccl",
            "NCCL's version number is %d; 2.18 (%d) or later is "
            "needed",
            version, MIN_VERSION);
    return XRAY_OK;
}
