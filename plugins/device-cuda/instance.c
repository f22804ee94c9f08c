/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates an instance of the CUDA device and reports errors to the host.
 */
#include "plugins/device-cuda/instance.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xray/cuda.h>
#include <xray/plugin.h>

#include "core/base/err.h"
#include "plugins/device-cuda/product.h"

#define LEAST_CAPABILITY 80
/* The location in errors before there is an instance */
#define WHERE "device cuda"

/* ---- errors -------------------------------------------------------------- */

xray_status cuda_fail(const cuda_device *d, xray_status status,
                      const char *where, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    status = xr_host_vfail(d ? d->host : NULL, status, where, fmt, args);
    va_end(args);
    return status;
}

xray_status cuda_check(const cuda_device *d, const char *where,
                       cudaError_t error)
{
    if (error == cudaSuccess)
        return XRAY_OK;
    (void)cudaGetLastError();
    return cuda_fail(
        d, error == cudaErrorMemoryAllocation ? XRAY_E_NOMEM : XRAY_E_DEVICE,
        where, "CUDA reported %s: %s", cudaGetErrorName(error),
        cudaGetErrorString(error));
}

xray_status cuda_launched(const cuda_device *d, const char *where)
{
    cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? XRAY_OK : cuda_check(d, where, error);
}

/* ---- plan, create -------------------------------------------------------- */

static xray_status check_config(const xray_host *host, const cuda_config *c)
{
    if (c->index < -1 || c->precision < CUDA_FLOAT32 ||
        c->precision > CUDA_BFLOAT16 || c->products < CUDA_PRODUCTS_OWN ||
        c->products > CUDA_PRODUCTS_CUBLASLT)
        return xr_host_fail(
            host, XRAY_E_CONFIG, WHERE,
            "index, precision or products has an unknown value");
    return XRAY_OK;
}

cuda_config cuda_copy_config(const void *config)
{
    cuda_config c = { 0 };
    c.index = -1;
    c.precision = CUDA_BFLOAT16;
    if (config)
        memcpy(&c, config, sizeof(c));
    return c;
}

xray_status cuda_plan(const xray_host *host, const void *config,
                      xray_device_plan *out)
{
    if (!out)
        return xr_host_fail(host, XRAY_E_ARG, WHERE, "out is NULL");
    cuda_config c = cuda_copy_config(config);
    xray_status status = check_config(host, &c);
    if (status != XRAY_OK)
        return status;
    const xray_device_plan own = { .header = XRAY_HEADER(xray_device_plan),
                                   .memory_bytes = c.memory,
                                   .numerics = c.precision == CUDA_BFLOAT16
                                                   ? XRAY_NUMERICS_CUDA_BF16
                                                   : NULL };
    xray_fill(out, &own);
    return XRAY_OK;
}

/* Explains why there is no device at all. */
static xray_status explain_no_device(const xray_host *host, cudaError_t error)
{
    int version = 0;
    (void)cudaGetLastError();
    (void)cudaDriverGetVersion(&version);
    if (version == 0)
        return xr_host_fail(
            host, XRAY_E_DEVICE, WHERE,
            "this machine has no NVIDIA driver (libcuda.so.1 is not "
            "found), so no GPU can be used; use device = cpu");
    if (error == cudaErrorInsufficientDriver)
        return xr_host_fail(
            host, XRAY_E_DEVICE, WHERE,
            "the NVIDIA driver supports CUDA %d.%d, but this plugin was "
            "built with CUDA %d.%d",
            version / 1000, version % 1000 / 10, CUDART_VERSION / 1000,
            CUDART_VERSION % 1000 / 10);
    if (error == cudaSuccess || error == cudaErrorNoDevice)
        return xr_host_fail(host, XRAY_E_DEVICE, WHERE,
                            "the NVIDIA driver shows no GPU to this process");
    return xr_host_fail(host, XRAY_E_DEVICE, WHERE, "CUDA cannot start: %s: %s",
                        cudaGetErrorName(error), cudaGetErrorString(error));
}

/* The rank that the core has given this process, among those of its host; 0
 * without one. */
static int read_process_rank(void)
{
    const char *local = getenv("XRAY_LOCAL_RANK");
    const char *text = local ? local : getenv("XRAY_RANK");
    long rank = text ? strtol(text, NULL, 10) : 0;
    return rank > 0 && rank < INT_MAX ? (int)rank : 0;
}

static xray_status refuse_index(const xray_host *host, int64_t index, int count)
{
    xr_err err;
    (void)xr_fail_key(&err, XRAY_E_CONFIG, NULL, "index",
                      " = %lld, but this process sees %d GPU%s, counted from 0",
                      (long long)index, count, count == 1 ? "" : "s");
    return xr_host_tell(host, XRAY_E_CONFIG, WHERE, &err);
}

static xray_status find_device(const xray_host *host, int64_t index, int *out)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0)
        return explain_no_device(host, error);
    if (index >= count)
        return refuse_index(host, index, count);
    *out = index < 0 ? read_process_rank() % count : (int)index;
    return XRAY_OK;
}

static int read_attribute(int index, enum cudaDeviceAttr what)
{
    int value = 0;
    if (cudaDeviceGetAttribute(&value, what, index) != cudaSuccess)
        value = 0;
    return value;
}

static xray_status check_capability(const xray_host *host, int index, int *out)
{
    *out = read_attribute(index, cudaDevAttrComputeCapabilityMajor) * 10 +
           read_attribute(index, cudaDevAttrComputeCapabilityMinor);
    if (*out >= LEAST_CAPABILITY)
        return XRAY_OK;
    return xr_host_fail(
        host, XRAY_E_DEVICE, WHERE,
        "GPU %d has compute capability %d.%d; the kernels need 8.0 "
        "or later",
        index, *out / 10, *out % 10);
}

xray_status cuda_probe(const xray_host *host, const void *config)
{
    cuda_config c = cuda_copy_config(config);
    int index = 0;
    int capability = 0;
    xray_status status = check_config(host, &c);
    if (status != XRAY_OK)
        return status;
    status = find_device(host, c.index, &index);
    if (status != XRAY_OK)
        return status;
    return check_capability(host, index, &capability);
}

static void name_device(cuda_device *d, int capability)
{
    char model[96] = "GPU";
    CUdevice device;
    if (d->driver->device(&device, d->index) != CUDA_SUCCESS ||
        d->driver->name(model, (int)sizeof(model), device) != CUDA_SUCCESS)
        (void)snprintf(model, sizeof(model), "GPU");
    (void)snprintf(d->name, sizeof(d->name),
                   "%s, compute %d.%d, %d multiprocessors, %s", model,
                   capability / 10, capability % 10, d->sms,
                   d->precision == CUDA_FLOAT32 ? "float32" : "bfloat16");
}

static xray_status start_instance(cuda_device *d, const cuda_config *c)
{
    int capability = 0;
    xray_status status = cuda_check(d, "create", cudaSetDevice(d->index));
    if (status == XRAY_OK)
        status = check_capability(d->host, d->index, &capability);
    if (status != XRAY_OK)
        return status;
    d->sms = read_attribute(d->index, cudaDevAttrMultiProcessorCount);
    d->shared_most =
        read_attribute(d->index, cudaDevAttrMaxSharedMemoryPerBlockOptin);
    status = cuda_driver_open(d);
    if (status != XRAY_OK)
        return status;
    name_device(d, capability);
    status = cuda_check(
        d, "create",
        cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking));
    if (status != XRAY_OK)
        return status;
    d->sum = (uint64_t *)cuda_alloc(d, XRAY_TAG_WORKSPACE, sizeof(*d->sum));
    if (!d->sum)
        return cuda_fail(d, XRAY_E_NOMEM, "create", "GPU %d has no memory left",
                         d->index);
    if (d->precision == CUDA_BFLOAT16 && c->products == CUDA_PRODUCTS_CUBLASLT)
        d->blas = blas_open(d);
    return XRAY_OK;
}

xray_status cuda_create(const xray_host *host, const void *config,
                        uint32_t threads, void **out_self)
{
    (void)threads;
    if (!out_self)
        return xr_host_fail(host, XRAY_E_ARG, WHERE, "out_self is NULL");
    cuda_config c = cuda_copy_config(config);
    xray_status status = check_config(host, &c);
    if (status != XRAY_OK)
        return status;
    int index = 0;
    status = find_device(host, c.index, &index);
    if (status != XRAY_OK)
        return status;
    cuda_device *d = (cuda_device *)calloc(1, sizeof(*d));
    if (!d)
        return xr_host_fail(host, XRAY_E_NOMEM, WHERE,
                            "no memory for the instance");
    d->host = host;
    d->index = index;
    d->precision = (int)c.precision;
    status = start_instance(d, &c);
    if (status != XRAY_OK) {
        cuda_destroy(d);
        return status;
    }
    *out_self = d;
    return XRAY_OK;
}

void cuda_destroy(void *self)
{
    cuda_device *d = (cuda_device *)self;
    if (!d)
        return;
    (void)cudaSetDevice(d->index);
    (void)cudaDeviceSynchronize();
    blas_close(d->blas);
    cuda_share_destroy(d);
    cuda_memory_destroy(d);
    if (d->stream)
        (void)cudaStreamDestroy(d->stream);
    free(d->driver);
    free(d);
}

xray_status cuda_info(void *self, xray_device_info *info)
{
    cuda_device *d = (cuda_device *)self;
    if (!info)
        return cuda_fail(d, XRAY_E_ARG, "info", "info is NULL");
    size_t left = 0;
    size_t all = 0;
    xray_status status = cuda_check(d, "info", cudaSetDevice(d->index));
    if (status == XRAY_OK)
        status = cuda_check(d, "info", cudaMemGetInfo(&left, &all));
    if (status != XRAY_OK)
        return status;
    const xray_device_info own = { .header = XRAY_HEADER(xray_device_info),
                                   .name = d->name,
                                   .memory_bytes = all,
                                   .memory_free = left,
                                   .features = XRAY_DEVICE_PARENTS };
    xray_fill(info, &own);
    return XRAY_OK;
}

/* ---- for comm plugins ---------------------------------------------------- */

static uint32_t get_index(void *self)
{
    return (uint32_t)((const cuda_device *)self)->index;
}

static void *get_stream(void *self, xray_stream *stream)
{
    return cuda_stream((const cuda_device *)self, stream);
}

const void *cuda_extension(void *self, const char *id)
{
    static const xray_cuda_ops ops = {
        .header = XRAY_HEADER(xray_cuda_ops),
        .index = get_index,
        .stream = get_stream,
    };
    (void)self;
    return id && strcmp(id, XRAY_EXT_CUDA) == 0 ? &ops : NULL;
}
