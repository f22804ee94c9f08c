/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory that is backed by a file, so that the system can write its pages
 * out when memory is short, and page-locked memory, which a device reads and
 * writes while the host goes on.
 */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/system_error.h"
#include "model/train/host_memory.h"

static xray_status map_file(int fd, const char *section, const char *path,
                            uint64_t bytes, xr_err *err, xm_host_memory *out)
{
    int failed = xr_file_allocate(fd, bytes);
    if (failed)
        return xr_fail_key(err, XRAY_E_IO, section, "offload_dir",
                           ": no space for %llu bytes at %s: %s",
                           (unsigned long long)bytes, path,
                           XR_SYSTEM_ERROR(failed));
    void *data =
        mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return xr_fail(err, XRAY_E_NOMEM, "cannot map %llu bytes of %s: %s",
                       (unsigned long long)bytes, path, XR_SYSTEM_ERROR(errno));
    *out = (xm_host_memory){ .data = data, .bytes = bytes };
    return XRAY_OK;
}

xray_status xm_host_memory_map_file(const xm_host_folder *folder,
                                    uint64_t bytes, xr_err *err,
                                    xm_host_memory *out)
{
    char path[XR_PATH_CAP];
    const char *dir = folder->dir;
    const char *fallback = getenv("TMPDIR");
    if (!dir || !*dir)
        dir = fallback && *fallback ? fallback : "/tmp";
    xray_status status =
        xr_path_join(dir, "xray-offload-XXXXXX", path, sizeof(path), err);
    if (status != XRAY_OK || bytes == 0)
        return status;
    int fd = mkstemp(path);
    if (fd < 0)
        return xr_fail_key(err, XRAY_E_IO, folder->section, "offload_dir",
                           ": cannot create a file in %s: %s", dir,
                           XR_SYSTEM_ERROR(errno));
    (void)unlink(path); /* so that it is removed however the process ends */
    status = map_file(fd, folder->section, path, bytes, err, out);
    (void)close(fd);
    return status;
}

xray_status xm_host_memory_lock(const xray_device_ops *device,
                                void *device_self, const char *owner,
                                uint64_t bytes, xr_err *err,
                                xm_host_memory *out)
{
    void *data = NULL;
    xray_status status = device->host_alloc(device_self, owner, bytes, &data);
    if (status != XRAY_OK)
        return xr_fail(err, status,
                       "%s: no %llu bytes of page-locked host memory", owner,
                       (unsigned long long)bytes);
    *out = (xm_host_memory){ data, bytes, device, device_self };
    return XRAY_OK;
}

void xm_host_memory_unmap(xm_host_memory *memory)
{
    if (memory->device)
        memory->device->host_free(memory->device_self, memory->data);
    else if (memory->data)
        (void)munmap(memory->data, (size_t)memory->bytes);
    *memory = (xm_host_memory){ 0 };
}

/* ---- memory that is copied to a device ---------------------------------- */

xray_status xm_staging_open(xm_staging *s, const xray_device_ops *device,
                            void *device_self, const char *owner,
                            uint64_t bytes, xr_err *err)
{
    *s = (xm_staging){ 0 };
    xray_status status =
        xm_host_memory_lock(device, device_self, owner, bytes, err, &s->memory);
    if (status != XRAY_OK)
        return status;
    status = device->event_create(device_self, &s->read);
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status, "%s: the device has no event", owner);
}

/* The event says nothing of copies after which it could not be recorded. */
static xray_status await_copies(xm_staging *s)
{
    const xray_device_ops *device = s->memory.device;
    void *self = s->memory.device_self;
    xray_status status = s->recorded ? device->event_sync(self, s->read)
                                     : device->sync(self, NULL);
    if (status == XRAY_OK)
        s->unread = 0;
    return status;
}

void xm_staging_close(xm_staging *s)
{
    if (s->unread)
        (void)await_copies(s);
    if (s->read)
        s->memory.device->event_destroy(s->memory.device_self, s->read);
    xm_host_memory_unmap(&s->memory);
    *s = (xm_staging){ 0 };
}

static xray_status report_copy(xray_status status, xr_err *err)
{
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status, "copying to the device failed");
}

xray_status xm_staging_begin(xm_staging *s, uint32_t parts, xr_err *err)
{
    xray_status status = XRAY_OK;
    if (!s->memory.data)
        return XRAY_OK;
    if (s->unread & parts)
        status = await_copies(s);
    if (status != XRAY_OK)
        return report_copy(status, err);
    s->unread |= parts;
    s->recorded = 0;
    return XRAY_OK;
}

xray_status xm_staging_copy(const xm_staging *s, void *to, const void *from,
                            uint64_t bytes, xr_err *err)
{
    const xm_host_memory *memory = &s->memory;
    if (!memory->data || bytes == 0)
        return XRAY_OK;
    return report_copy(memory->device->copy(memory->device_self, NULL, to, from,
                                            bytes, XRAY_COPY_TO_DEVICE),
                       err);
}

xray_status xm_staging_end(xm_staging *s, xr_err *err)
{
    if (!s->memory.data)
        return XRAY_OK;
    xray_status status =
        s->memory.device->event_record(s->memory.device_self, NULL, s->read);
    s->recorded = status == XRAY_OK;
    return report_copy(status, err);
}

/* ---- devices ------------------------------------------------------------- */

int xm_computes_on_host(const xray_device_ops *device, void *device_self)
{
    xray_device_info info = { .header = XRAY_HEADER(xray_device_info) };
    return device->info(device_self, &info) == XRAY_OK && info.host_memory;
}

int xm_plans_on_host(const xray_workload *load)
{
    xray_device_plan plan = { .header = XRAY_HEADER(xray_device_plan) };
    return !load->device ||
           (load->device->plan(NULL, load->device_config, &plan) == XRAY_OK &&
            plan.host_memory);
}
