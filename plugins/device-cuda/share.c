/* SPDX-License-Identifier: Apache-2.0
 *
 * Exports blocks of device memory to other processes and maps theirs. An
 * exported block has two files: its memory, as the driver exports it, and a
 * card, a small file in memory that identifies the block. A peer duplicates
 * both from the owning process, so a handle is stale as soon as the card is
 * closed or replaced.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <xray/numerics.h>

#include "plugins/device-cuda/instance.h"

#define MAGIC 0x6564436572616853u

typedef struct share_card {
    uint64_t magic;
    uint64_t nonce;
    uint64_t address; /* address of the block in the process that owns it */
    int64_t file;     /* file descriptor of the memory */
} share_card;

typedef struct share_handle {
    uint64_t magic;
    uint64_t nonce;
    uint64_t at;     /* offset of the memory from the block's start */
    uint64_t bytes;  /* from that offset to the block's end */
    uint64_t mapped; /* mapped bytes of the complete block */
    uint32_t pid;
    int32_t card;
    int32_t file;
    uint32_t reserved[19];
} share_handle;

_Static_assert(sizeof(share_handle) == XRAY_HANDLE_BYTES, "handle");

/* A block of another process that is mapped here. */
typedef struct cuda_mapped {
    struct cuda_mapped *next;
    char *at;
    uint64_t bytes; /* mapped */
    uint64_t nonce;
    uint64_t holders;
    CUmemGenericAllocationHandle memory;
} cuda_mapped;

/* ---- exporting ---------------------------------------------------------- */

xray_status cuda_shareable(void *self, uint32_t on)
{
    cuda_device *d = (cuda_device *)self;
    d->sharing = on != 0;
    /* The kernel may allow only parents to duplicate file descriptors of this
     * process; this lets peers of the same user do so too. */
    if (on)
        (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    return XRAY_OK;
}

static uint64_t make_nonce(const void *where)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t key = xray_mix64((uint64_t)t.tv_sec, (uint64_t)t.tv_nsec);
    return xray_mix64(xray_mix64(key, (uint64_t)getpid()), (uintptr_t)where);
}

static xray_status export_block(const cuda_device *d, cuda_block *b)
{
    int file = -1;
    xray_status status = cuda_driver_check(
        d, "share", "cuMemExportToShareableHandle",
        d->driver->put(&file, b->memory,
                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    if (status != XRAY_OK)
        return status;
    share_card card = { MAGIC, make_nonce(b), (uintptr_t)b->at, file };
    int fd = memfd_create("xray-cuda", MFD_CLOEXEC);
    if (fd < 0 || write(fd, &card, sizeof(card)) != (ssize_t)sizeof(card)) {
        int why = errno;
        if (fd >= 0)
            (void)close(fd);
        (void)close(file);
        return cuda_fail(d, XRAY_E_IO, "share",
                         "a block's file could not be created: error %d", why);
    }
    b->file = file;
    b->card = fd;
    b->nonce = card.nonce;
    return XRAY_OK;
}

void cuda_unshare(cuda_block *b)
{
    if (b->card >= 0)
        (void)close(b->card);
    if (b->file >= 0)
        (void)close(b->file);
    b->card = -1;
    b->file = -1;
}

xray_status cuda_share(void *self, const void *ptr, uint8_t *out_handle)
{
    const cuda_device *d = (const cuda_device *)self;
    if (!ptr || !out_handle)
        return cuda_fail(d, XRAY_E_ARG, "share", "a pointer is NULL");
    cuda_block *b = cuda_block_at(d, ptr);
    if (!b || !b->shareable)
        return cuda_fail(
            d, XRAY_E_ARG, "share",
            "%p lies in no block that this device allocated after it "
            "was asked for shareable memory",
            ptr);
    if (b->evicted)
        return cuda_fail(d, XRAY_E_STATE, "share",
                         "%p lies in a block that was evicted", ptr);
    xray_status status = b->file >= 0 ? XRAY_OK : export_block(d, b);
    if (status != XRAY_OK)
        return status;
    uint64_t at = (uint64_t)((const char *)ptr - b->at);
    share_handle h;
    memset(&h, 0, sizeof(h));
    h.magic = MAGIC;
    h.nonce = b->nonce;
    h.at = at;
    h.bytes = b->bytes - at;
    h.mapped = b->mapped;
    h.pid = (uint32_t)getpid();
    h.card = b->card;
    h.file = b->file;
    memcpy(out_handle, &h, sizeof(h));
    return XRAY_OK;
}

/* ---- attaching ---------------------------------------------------------- */

static xray_status refuse_handle(const cuda_device *d, const share_handle *h,
                                 const char *why)
{
    return cuda_fail(d, XRAY_E_ARG, "attach",
                     "the handle of %llu bytes of process %u is stale or "
                     "foreign: %s",
                     (unsigned long long)h->bytes, h->pid, why);
}

/* Duplicates a file descriptor of another process; returns -1 and sets errno if
 * it fails. */
static int duplicate_file(uint32_t pid, int file)
{
#if defined(SYS_pidfd_open) && defined(SYS_pidfd_getfd)
    int process = (int)syscall(SYS_pidfd_open, (long)pid, 0L);
    if (process < 0)
        return -1;
    int copy = (int)syscall(SYS_pidfd_getfd, (long)process, (long)file, 0L);
    int why = errno;
    (void)close(process);
    errno = why;
    return copy;
#else
    (void)pid;
    (void)file;
    errno = ENOSYS;
    return -1;
#endif
}

static int card_matches(int fd, const share_handle *h, share_card *out)
{
    return pread(fd, out, sizeof(*out), 0) == (ssize_t)sizeof(*out) &&
           out->magic == MAGIC && out->nonce == h->nonce &&
           out->file == h->file;
}

static xray_status attach_own_block(const cuda_device *d, const share_handle *h,
                                    void **out)
{
    share_card card;
    if (!card_matches(h->card, h, &card))
        return refuse_handle(d, h, "this process has no such memory");
    char *base = NULL;
    memcpy(&base, &card.address, sizeof(base)); /* 64-bit hosts only */
    *out = base + h->at;
    return XRAY_OK;
}

static xray_status report_duplicate_error(const cuda_device *d,
                                          const share_handle *h)
{
    if (errno == ESRCH || errno == EBADF)
        return refuse_handle(d, h, "that process or its memory is gone");
    if (errno == EPERM)
        return cuda_fail(d, XRAY_E_PEER, "attach",
                         "the memory of process %u may not be accessed "
                         "(pidfd_getfd: permission denied): it belongs to "
                         "another user, or a container forbids it",
                         h->pid);
    return cuda_fail(d, XRAY_E_PEER, "attach",
                     "the memory of process %u cannot be accessed: pidfd_getfd "
                     "failed with error %d",
                     h->pid, errno);
}

/* Checks that the block still exists. The other process owns it and may have
 * freed it while it is mapped here. */
static xray_status check_block_exists(const cuda_device *d,
                                      const share_handle *h)
{
    share_card card;
    int fd = duplicate_file(h->pid, h->card);
    if (fd < 0)
        return report_duplicate_error(d, h);
    int same = card_matches(fd, h, &card);
    (void)close(fd);
    return same ? XRAY_OK : refuse_handle(d, h, "the block was freed");
}

/* Duplicates the file of the other process's memory after its card was
 * checked. */
static xray_status duplicate_memory_file(const cuda_device *d,
                                         const share_handle *h, int *out_file)
{
    xray_status status = check_block_exists(d, h);
    if (status != XRAY_OK)
        return status;
    *out_file = duplicate_file(h->pid, h->file);
    return *out_file < 0 ? report_duplicate_error(d, h) : XRAY_OK;
}

static xray_status import_block(const cuda_device *d, int file, cuda_mapped *m)
{
    uintptr_t number = (uintptr_t)file;
    void *as_pointer = NULL;
    memcpy(&as_pointer, &number, sizeof(as_pointer));
    xray_status status = cuda_driver_check(
        d, "attach", "cuMemImportFromShareableHandle",
        d->driver->get(&m->memory, as_pointer,
                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    if (status != XRAY_OK)
        return status;
    status = cuda_map(d, "attach", m->bytes, m->memory, &m->at);
    if (status != XRAY_OK)
        (void)d->driver->release(m->memory);
    return status;
}

static xray_status attach_peer_block(cuda_device *d, const share_handle *h,
                                     cuda_mapped **out)
{
    int file = -1;
    xray_status status = duplicate_memory_file(d, h, &file);
    if (status != XRAY_OK)
        return status;
    cuda_mapped *m = (cuda_mapped *)calloc(1, sizeof(*m));
    if (!m) {
        (void)close(file);
        return cuda_fail(d, XRAY_E_NOMEM, "attach", "no memory");
    }
    m->bytes = h->mapped;
    m->nonce = h->nonce;
    status = import_block(d, file, m);
    (void)close(file);
    if (status != XRAY_OK) {
        free(m);
        return status;
    }
    m->next = d->mapped;
    d->mapped = m;
    *out = m;
    return XRAY_OK;
}

xray_status cuda_attach(void *self, const uint8_t *handle, uint64_t bytes,
                        void **out)
{
    cuda_device *d = (cuda_device *)self;
    if (!handle || !out)
        return cuda_fail(d, XRAY_E_ARG, "attach", "a pointer is NULL");
    share_handle h;
    memcpy(&h, handle, sizeof(h));
    if (h.magic != MAGIC || h.pid == 0 || h.card < 0 || h.file < 0 ||
        h.at > h.mapped || h.bytes > h.mapped - h.at ||
        h.mapped % d->driver->grain != 0)
        return refuse_handle(d, &h, "it is not a handle of a cuda device");
    if (bytes > h.bytes)
        return cuda_fail(d, XRAY_E_RANGE, "attach",
                         "%llu bytes were requested, but the handle has %llu",
                         (unsigned long long)bytes,
                         (unsigned long long)h.bytes);
    if (h.pid == (uint32_t)getpid())
        return attach_own_block(d, &h, out);
    xray_status status = cuda_check(d, "attach", cudaSetDevice(d->index));
    if (status != XRAY_OK)
        return status;
    cuda_mapped *m = d->mapped;
    while (m && m->nonce != h.nonce)
        m = m->next;
    status = m ? check_block_exists(d, &h) : attach_peer_block(d, &h, &m);
    if (status != XRAY_OK)
        return status;
    m->holders++;
    *out = m->at + h.at;
    return XRAY_OK;
}

static void release_mapping(const cuda_device *d, cuda_mapped *m)
{
    cuda_unmap(d, m->at, m->bytes);
    (void)d->driver->release(m->memory);
    free(m);
}

void cuda_detach(void *self, void *ptr)
{
    cuda_device *d = (cuda_device *)self;
    uintptr_t p = (uintptr_t)ptr;
    for (cuda_mapped **link = &d->mapped; ptr && *link; link = &(*link)->next) {
        cuda_mapped *m = *link;
        if (p < (uintptr_t)m->at || p - (uintptr_t)m->at >= m->bytes)
            continue;
        if (--m->holders > 0)
            return;
        (void)cudaSetDevice(d->index);
        (void)cudaDeviceSynchronize();
        *link = m->next;
        release_mapping(d, m);
        return;
    }
}

void cuda_share_destroy(cuda_device *d)
{
    while (d->mapped) {
        cuda_mapped *m = d->mapped;
        d->mapped = m->next;
        release_mapping(d, m);
    }
}
