/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks that other processes map. An exported block has two files: its memory,
 * as the driver gives it out, and a card, a small file in memory that says
 * which block the first one is. A peer takes both from the process that has
 * them, so a handle is stale as soon as the card is closed or another.
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
    uint64_t address; /* of the block, in its own process */
    int64_t file;     /* the memory's */
} share_card;

typedef struct share_handle {
    uint64_t magic;
    uint64_t nonce;
    uint64_t at;     /* of the memory, from the block's start */
    uint64_t bytes;  /* from there to the block's end */
    uint64_t mapped; /* of the whole block */
    uint32_t pid;
    int32_t card;
    int32_t file;
    uint32_t reserved[3];
} share_handle;

_Static_assert(sizeof(share_handle) == XRAY_HANDLE_BYTES, "handle");

/* A block of another process. */
typedef struct cuda_mapped {
    struct cuda_mapped *next;
    char *at;
    uint64_t bytes; /* mapped */
    uint64_t nonce;
    uint64_t holders;
    CUmemGenericAllocationHandle memory;
} cuda_mapped;

/* ---- giving ---------------------------------------------------------------
 */

xray_status cuda_shareable(void *self, uint32_t on)
{
    cuda_device *d = (cuda_device *)self;
    d->sharing = on != 0;
    /* Peers of the same user may fetch file descriptors of this process, where
     * the kernel limits that to parents. */
    if (on)
        (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    return XRAY_OK;
}

static uint64_t fresh_nonce(const void *where)
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
    share_card card = { MAGIC, fresh_nonce(b), (uintptr_t)b->at, file };
    int fd = memfd_create("xray-cuda", MFD_CLOEXEC);
    if (fd < 0 || write(fd, &card, sizeof(card)) != (ssize_t)sizeof(card)) {
        int why = errno;
        if (fd >= 0)
            (void)close(fd);
        (void)close(file);
        return cuda_fail(d, XRAY_E_IO, "share", "no file for a block: error %d",
                         why);
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
        return cuda_fail(d, XRAY_E_ARG, "share",
                         "%p lies in no block that this device made after it "
                         "was asked for shareable memory",
                         ptr);
    if (b->evicted)
        return cuda_fail(d, XRAY_E_STATE, "share",
                         "%p lies in a block whose memory was taken away", ptr);
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

/* ---- taking
 * ------------------------------------------------------------------ */

static xray_status stale(const cuda_device *d, const share_handle *h,
                         const char *why)
{
    return cuda_fail(d, XRAY_E_ARG, "attach",
                     "the handle of %llu bytes of process %u is stale or "
                     "foreign: %s",
                     (unsigned long long)h->bytes, h->pid, why);
}

/* A copy of another process's file descriptor, -1 with errno set. */
static int take_file(uint32_t pid, int file)
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

static int card_reads(int fd, const share_handle *h, share_card *out)
{
    return pread(fd, out, sizeof(*out), 0) == (ssize_t)sizeof(*out) &&
           out->magic == MAGIC && out->nonce == h->nonce &&
           out->file == h->file;
}

static xray_status attach_own(const cuda_device *d, const share_handle *h,
                              void **out)
{
    share_card card;
    if (!card_reads(h->card, h, &card))
        return stale(d, h, "this process has no such memory");
    char *base = NULL;
    memcpy(&base, &card.address, sizeof(base)); /* 64-bit hosts only */
    *out = base + h->at;
    return XRAY_OK;
}

static xray_status cannot_take(const cuda_device *d, const share_handle *h)
{
    if (errno == ESRCH || errno == EBADF)
        return stale(d, h, "that process or its memory is gone");
    if (errno == EPERM)
        return cuda_fail(d, XRAY_E_PEER, "attach",
                         "process %u may not be asked for its memory "
                         "(pidfd_getfd: permission denied): it belongs to "
                         "another user, or a container forbids it",
                         h->pid);
    return cuda_fail(d, XRAY_E_PEER, "attach",
                     "the memory of process %u cannot be had: pidfd_getfd gave "
                     "error %d",
                     h->pid, errno);
}

/* Whether the block is still there: it is the other process's to free, when it
 * is mapped here too. */
static xray_status still_there(const cuda_device *d, const share_handle *h)
{
    share_card card;
    int fd = take_file(h->pid, h->card);
    if (fd < 0)
        return cannot_take(d, h);
    int same = card_reads(fd, h, &card);
    (void)close(fd);
    return same ? XRAY_OK : stale(d, h, "the block was freed");
}

/* The file of the other process's memory, once its card is right. */
static xray_status take_memory(const cuda_device *d, const share_handle *h,
                               int *out_file)
{
    xray_status status = still_there(d, h);
    if (status != XRAY_OK)
        return status;
    *out_file = take_file(h->pid, h->file);
    return *out_file < 0 ? cannot_take(d, h) : XRAY_OK;
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

static xray_status attach_new(cuda_device *d, const share_handle *h,
                              cuda_mapped **out)
{
    int file = -1;
    xray_status status = take_memory(d, h, &file);
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
        return stale(d, &h, "it is no handle of a cuda device");
    if (bytes > h.bytes)
        return cuda_fail(d, XRAY_E_RANGE, "attach",
                         "%llu bytes are asked of a handle of %llu",
                         (unsigned long long)bytes,
                         (unsigned long long)h.bytes);
    if (h.pid == (uint32_t)getpid())
        return attach_own(d, &h, out);
    xray_status status = cuda_check(d, "attach", cudaSetDevice(d->index));
    if (status != XRAY_OK)
        return status;
    cuda_mapped *m = d->mapped;
    while (m && m->nonce != h.nonce)
        m = m->next;
    status = m ? still_there(d, &h) : attach_new(d, &h, &m);
    if (status != XRAY_OK)
        return status;
    m->holders++;
    *out = m->at + h.at;
    return XRAY_OK;
}

static void drop(const cuda_device *d, cuda_mapped *m)
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
        if (p < (uintptr_t)m->at || p - (uintptr_t)m->at > m->bytes)
            continue;
        if (--m->holders > 0)
            return;
        (void)cudaSetDevice(d->index);
        (void)cudaDeviceSynchronize();
        *link = m->next;
        drop(d, m);
        return;
    }
}

void cuda_share_destroy(cuda_device *d)
{
    while (d->mapped) {
        cuda_mapped *m = d->mapped;
        d->mapped = m->next;
        drop(d, m);
    }
}
