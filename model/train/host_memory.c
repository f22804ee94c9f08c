/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory that is backed by a file, so that the system can write its pages
 * out when memory is short.
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
    int failed = posix_fallocate(fd, 0, (off_t)bytes);
    if (failed == EOPNOTSUPP || failed == EINVAL)
        failed = ftruncate(fd, (off_t)bytes) ? errno : 0;
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

xray_status xm_host_memory_map(uint64_t bytes, xr_err *err, xm_host_memory *out)
{
    void *data = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
        return xr_fail(err, XRAY_E_NOMEM,
                       "no host memory for %llu bytes to be offloaded",
                       (unsigned long long)bytes);
    *out = (xm_host_memory){ .data = data, .bytes = bytes };
    return XRAY_OK;
}

void xm_host_memory_unmap(xm_host_memory *memory)
{
    if (memory->data)
        (void)munmap(memory->data, (size_t)memory->bytes);
    *memory = (xm_host_memory){ 0 };
}
