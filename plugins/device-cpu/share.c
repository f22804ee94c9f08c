/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocates blocks that other processes can map. All blocks of an instance lie
 * in one region: a sparse, anonymous file in memory that is mapped once here,
 * and once in each process that attaches one of the blocks. A handle is
 * therefore an offset, and a peer costs one mapping. The system frees the file
 * when the last process unmaps it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <xray/numerics.h>

#include "core/base/err.h"
#include "core/base/system_error.h"
#include "plugins/device-cpu/device.h"
#include "plugins/device-cpu/instance.h"

#define LINE 64u
#define PAGE 4096u
/* From this size on, a block shares no page with another. */
#define LARGE 0x10000u
#define HUGE_PAGE 0x200000u
#define LEAST_REGION ((uint64_t)1 << 30)
#define REGION_MAGIC 0x6e6f696765525258u
#define BLOCK_MAGIC 0x6b636f6c42525258u
/* Set in a header's tag: the block's memory was returned to the system. */
#define EVICTED ((uint64_t)1 << 32)

/* The bytes of the region that a block occupies, its header included. */
typedef struct extent {
    uint64_t at;
    uint64_t end;
} extent;

struct cpu_region {
    char *base;
    uint64_t size;
    uint64_t nonce;
    uint64_t serial; /* serial number of the next block */
    extent *used;    /* [count], in ascending order */
    size_t count;
    size_t capacity;
    int fd;
};

/* The region of another process, mapped here. */
struct cpu_remote {
    char *base;
    uint64_t size;
    uint64_t nonce;
    uint64_t holders;
    cpu_remote *next;
};

/* Stands at the beginning of the file. */
typedef struct region_header {
    uint64_t magic;
    uint64_t nonce;
    uint64_t size;
} region_header;

/* Stands in the cache line before a block. */
typedef struct shared_header {
    uint64_t magic;
    uint64_t serial;
    uint64_t bytes;
    uint64_t tag;
} shared_header;

typedef struct shared_handle {
    uint64_t nonce;
    uint64_t serial;
    uint64_t block; /* offset of the block's header */
    uint64_t at;    /* offset of the memory itself */
    uint64_t bytes; /* from that offset to the block's end */
    uint64_t base;  /* the region's address in the process that owns it */
    uint64_t size;  /* bytes of the region */
    uint32_t pid;
    int32_t fd;
    uint64_t unused[8];
} shared_handle;

_Static_assert(sizeof(shared_handle) == XRAY_HANDLE_BYTES, "handle");
_Static_assert(sizeof(shared_header) <= LINE, "header");

/* ---- the region --------------------------------------------------------- */

static uint64_t make_nonce(const void *where)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t key = xray_mix64((uint64_t)t.tv_sec, (uint64_t)t.tv_nsec);
    return xray_mix64(xray_mix64(key, (uint64_t)getpid()), (uintptr_t)where);
}

static uint64_t round_up(uint64_t value, uint64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* Maps address space for twice the machine's memory, or for as much as can be
 * had. Pages take memory when they are touched. */
static int map_region(cpu_region *r)
{
    uint64_t size = round_up(2 * cpu_memory_bytes(), LEAST_REGION);
    for (; size >= LEAST_REGION; size = round_up(size / 2, PAGE)) {
        if (ftruncate(r->fd, (off_t)size) != 0)
            continue;
        void *base = mmap(NULL, size, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_NORESERVE, r->fd, 0);
        if (base == MAP_FAILED)
            continue;
        r->base = base;
        r->size = size;
        return 1;
    }
    return 0;
}

static void close_region(cpu_region *r)
{
    if (!r)
        return;
    if (r->base)
        (void)munmap(r->base, r->size);
    if (r->fd >= 0)
        (void)close(r->fd);
    free(r->used);
    free(r);
}

/* Returns NULL and sets errno if it fails. */
static cpu_region *open_own_region(void)
{
    cpu_region *r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    r->fd = memfd_create("xray-device", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (r->fd < 0 || !map_region(r)) {
        int reason = errno;
        close_region(r);
        errno = reason;
        return NULL;
    }
    /* Without the seals a peer would crash when the file shrinks. */
    (void)fcntl(r->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    cpu_advise_huge(r->base, r->size);
    r->nonce = make_nonce(r);
    region_header header = { REGION_MAGIC, r->nonce, r->size };
    memcpy(r->base, &header, sizeof(header));
    return r;
}

/* Finds the first gap that holds `bytes` at alignment `align`, with a header
 * before them. Gives the gap's index among the extents and the offset of the
 * bytes. */
static int find_gap(const cpu_region *r, uint64_t align, uint64_t bytes,
                    size_t *out_index, uint64_t *out_at)
{
    uint64_t from = PAGE; /* after the region's header */
    for (size_t i = 0; i <= r->count; i++) {
        uint64_t to = i < r->count ? r->used[i].at : r->size;
        uint64_t at = round_up(from + LINE, align);
        if (at <= to && to - at >= bytes) {
            *out_index = i;
            *out_at = at;
            return 1;
        }
        from = i < r->count ? r->used[i].end : from;
    }
    return 0;
}

static int reserve_extent(cpu_region *r)
{
    if (r->count < r->capacity)
        return 1;
    size_t capacity = r->capacity ? 2 * r->capacity : 64;
    extent *used = realloc(r->used, capacity * sizeof(*used));
    if (!used)
        return 0;
    r->used = used;
    r->capacity = capacity;
    return 1;
}

/* Returns full pages to the system; they are zero when they are touched
 * again. */
static void punch_hole(const cpu_region *r, uint64_t from, uint64_t to)
{
    (void)fallocate(r->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    (off_t)from, (off_t)(to - from));
}

void *cpu_share_alloc(cpu_device *d, uint32_t tag, uint64_t bytes)
{
    cpu_region *r = d->region;
    uint64_t align = bytes >= 2 * HUGE_PAGE ? HUGE_PAGE
                     : bytes >= LARGE       ? PAGE
                                            : LINE;
    if (bytes > r->size || !reserve_extent(r))
        return NULL;
    uint64_t padded = round_up(bytes ? bytes : 1, bytes >= LARGE ? PAGE : LINE);
    size_t index;
    uint64_t at;
    if (!find_gap(r, align, padded, &index, &at))
        return NULL;
    /* Small blocks share their pages with others, which stay. */
    if (bytes >= LARGE)
        punch_hole(r, at, at + padded);
    /* Reserves the memory now, where a lack of it is an error that can be
     * reported. On a first touch it would be a fatal signal. */
    if (fallocate(r->fd, 0, (off_t)(at - LINE), (off_t)(padded + LINE)) != 0)
        return NULL;
#ifdef MADV_POPULATE_WRITE
    if (bytes >= LARGE)
        (void)madvise(r->base + at, padded, MADV_POPULATE_WRITE);
#endif
    if (bytes < LARGE)
        memset(r->base + at, 0, padded);
    memmove(r->used + index + 1, r->used + index,
            (r->count - index) * sizeof(*r->used));
    r->used[index] = (extent){ at - LINE, at + padded };
    r->count++;
    shared_header header = { BLOCK_MAGIC, ++r->serial, bytes, tag };
    memcpy(r->base + at - LINE, &header, sizeof(header));
    cpu_count_block(d, tag, bytes);
    return r->base + at;
}

/* Finds the extent that holds an address of the region. */
static extent *find_extent(const cpu_region *r, const void *ptr)
{
    uintptr_t base = (uintptr_t)r->base;
    uintptr_t p = (uintptr_t)ptr;
    if (p < base || p - base >= r->size)
        return NULL;
    uint64_t at = p - base;
    size_t low = 0;
    size_t high = r->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (r->used[mid].end <= at)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == r->count || at < r->used[low].at + LINE)
        return NULL;
    return &r->used[low];
}

int cpu_share_free(cpu_device *d, void *ptr)
{
    cpu_region *r = d->region;
    extent *e = r && ptr ? find_extent(r, ptr) : NULL;
    if (!e)
        return 0;
    shared_header header;
    memcpy(&header, r->base + e->at, sizeof(header));
    memset(r->base + e->at, 0, sizeof(header));
    if (!(header.tag & EVICTED))
        cpu_uncount_block(d, (uint32_t)header.tag, header.bytes);
    if (header.bytes >= LARGE)
        punch_hole(r, e->at + LINE, e->end);
    size_t index = (size_t)(e - r->used);
    r->count--;
    memmove(e, e + 1, (r->count - index) * sizeof(*e));
    return 1;
}

/* Peers keep their mapping of an evicted block, and its handle stays valid. */
int cpu_share_evict(cpu_device *d, void *ptr)
{
    cpu_region *r = d->region;
    extent *e = r ? find_extent(r, ptr) : NULL;
    if (!e)
        return 0;
    shared_header *header = (shared_header *)(void *)(r->base + e->at);
    if (header->tag & EVICTED)
        return 1;
    cpu_uncount_block(d, (uint32_t)header->tag, header->bytes);
    header->tag |= EVICTED;
    if (header->bytes >= LARGE)
        punch_hole(r, e->at + LINE, e->end);
    else
        memset(ptr, 0, header->bytes);
    return 1;
}

int cpu_share_restore(cpu_device *d, void *ptr, xray_status *out)
{
    cpu_region *r = d->region;
    extent *e = r ? find_extent(r, ptr) : NULL;
    if (!e)
        return 0;
    shared_header *header = (shared_header *)(void *)(r->base + e->at);
    if (!(header->tag & EVICTED))
        return 1;
    if (fallocate(r->fd, 0, (off_t)e->at, (off_t)(e->end - e->at)) != 0) {
        *out = cpu_fail(d, XRAY_E_NOMEM, "restore",
                        "no memory to restore the block's %llu bytes",
                        (unsigned long long)header->bytes);
        return 1;
    }
    header->tag &= ~EVICTED;
    cpu_count_block(d, (uint32_t)header->tag, header->bytes);
    return 1;
}

/* ---- handles ------------------------------------------------------------ */

static xray_status refuse_sharing(const cpu_device *d)
{
    xr_err err;
    (void)xr_fail_key(&err, XRAY_E_CONFIG, "device.cpu", "share",
                      " = off, but other ranks must reach this device's "
                      "memory; use share = auto");
    return xr_host_tell(d->host, XRAY_E_CONFIG, "shareable", &err);
}

xray_status cpu_shareable(void *self, uint32_t on)
{
    cpu_device *d = self;
    if (!on) {
        d->sharing = d->share == CPU_SHARE_ON;
        return XRAY_OK;
    }
    if (d->share == CPU_SHARE_OFF)
        return refuse_sharing(d);
    if (!d->region)
        d->region = open_own_region();
    if (!d->region)
        return cpu_fail(
            d, XRAY_E_IO, "shareable",
            "the system gave no memory file of %llu bytes or more to "
            "share blocks in: %s",
            (unsigned long long)LEAST_REGION, XR_SYSTEM_ERROR(errno));
    d->sharing = 1;
    return XRAY_OK;
}

xray_status cpu_share(void *self, const void *ptr, uint8_t *out_handle)
{
    cpu_device *d = self;
    const cpu_region *r = d->region;
    if (!ptr || !out_handle)
        return cpu_fail(d, XRAY_E_ARG, "share", "a pointer is NULL");
    const extent *e = r ? find_extent(r, ptr) : NULL;
    if (!e)
        return cpu_fail(
            d, XRAY_E_ARG, "share",
            "%p lies in no block that this device allocated after it "
            "was asked for shareable memory",
            ptr);
    shared_header header;
    memcpy(&header, r->base + e->at, sizeof(header));
    uint64_t at = (uint64_t)((const char *)ptr - r->base);
    shared_handle h = { .nonce = r->nonce,
                        .serial = header.serial,
                        .block = e->at,
                        .at = at,
                        .bytes = e->at + LINE + header.bytes - at,
                        .base = (uintptr_t)r->base,
                        .size = r->size,
                        .pid = (uint32_t)getpid(),
                        .fd = r->fd };
    if (at > e->at + LINE + header.bytes)
        h.bytes = 0;
    memcpy(out_handle, &h, sizeof(h));
    return XRAY_OK;
}

/* Returns 1 if the open file is the region that the handle names, -1 and errno
 * if it cannot be read. */
static int is_region(int fd, const shared_handle *h)
{
    region_header header;
    ssize_t got;
    do
        got = pread(fd, &header, sizeof(header), 0);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return -1;
    return got == (ssize_t)sizeof(header) && header.magic == REGION_MAGIC &&
           header.nonce == h->nonce && header.size == h->size;
}

static xray_status refuse_handle(const cpu_device *d, const shared_handle *h,
                                 const char *why)
{
    return cpu_fail(d, XRAY_E_ARG, "attach",
                    "the handle of %llu bytes of process %u is stale or "
                    "foreign: %s",
                    (unsigned long long)h->bytes, h->pid, why);
}

/* Opens the handle's region as a file descriptor of this process. The owner may
 * close its own at any moment, and the number may then stand for another
 * file. */
static xray_status open_handle_region(const cpu_device *d,
                                      const shared_handle *h, int *out_fd)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%u/fd/%d", h->pid, h->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return errno == ENOENT || errno == EACCES || errno == ESRCH
                   ? refuse_handle(
                         d, h,
                         "that process or its memory is gone, or belongs to "
                         "another user")
                   : cpu_fail(d, XRAY_E_IO, "attach",
                              "the memory of process %u cannot be opened: %s",
                              h->pid, XR_SYSTEM_ERROR(errno));
    int is = is_region(fd, h);
    if (is != 1) {
        int reason = errno;
        (void)close(fd);
        if (is < 0)
            return cpu_fail(d, XRAY_E_IO, "attach",
                            "the memory of process %u cannot be read: %s",
                            h->pid, XR_SYSTEM_ERROR(reason));
        return refuse_handle(d, h, "that process has no such memory");
    }
    *out_fd = fd;
    return XRAY_OK;
}

/* Maps the region of another process. */
static xray_status map_remote(cpu_device *d, const shared_handle *h,
                              cpu_remote **out)
{
    int fd = -1;
    xray_status status = open_handle_region(d, h, &fd);
    if (status != XRAY_OK)
        return status;
    void *base = mmap(NULL, h->size, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE, fd, 0);
    int reason = errno;
    (void)close(fd);
    cpu_remote *remote = calloc(1, sizeof(*remote));
    if (base == MAP_FAILED || !remote) {
        if (base != MAP_FAILED)
            (void)munmap(base, h->size);
        free(remote);
        return cpu_fail(d, XRAY_E_NOMEM, "attach",
                        "no address space for the %llu bytes of process %u: "
                        "%s",
                        (unsigned long long)h->size, h->pid,
                        XR_SYSTEM_ERROR(base == MAP_FAILED ? reason : ENOMEM));
    }
    cpu_advise_huge(base, h->size);
    *remote = (cpu_remote){ base, h->size, h->nonce, 0, d->remotes };
    d->remotes = remote;
    *out = remote;
    return XRAY_OK;
}

static void release_remote(cpu_device *d, cpu_remote *remote)
{
    cpu_remote **link = &d->remotes;
    while (*link && *link != remote)
        link = &(*link)->next;
    if (!*link || remote->holders)
        return;
    *link = remote->next;
    (void)munmap(remote->base, remote->size);
    free(remote);
}

/* Finds the region's address in this process; *out_remote is NULL if the region
 * is this process's own. */
static xray_status find_region(cpu_device *d, const shared_handle *h,
                               char **out_base, cpu_remote **out_remote)
{
    *out_remote = NULL;
    if (h->pid == (uint32_t)getpid()) {
        int fd = -1;
        xray_status status = open_handle_region(d, h, &fd);
        if (status != XRAY_OK)
            return status;
        (void)close(fd);
        memcpy(out_base, &h->base, sizeof(*out_base)); /* 64-bit hosts only */
        return XRAY_OK;
    }
    cpu_remote *remote = d->remotes;
    while (remote && remote->nonce != h->nonce)
        remote = remote->next;
    if (!remote) {
        xray_status status = map_remote(d, h, &remote);
        if (status != XRAY_OK)
            return status;
    }
    *out_base = remote->base;
    *out_remote = remote;
    return XRAY_OK;
}

xray_status cpu_attach(void *self, const uint8_t *handle, uint64_t bytes,
                       void **out)
{
    cpu_device *d = self;
    if (!handle || !out)
        return cpu_fail(d, XRAY_E_ARG, "attach", "a pointer is NULL");
    shared_handle h;
    memcpy(&h, handle, sizeof(h));
    if (h.pid == 0 || h.fd < 0 || h.size < LEAST_REGION || h.block < PAGE ||
        h.block > h.size - LINE || h.at < h.block || h.at > h.size ||
        h.bytes > h.size - h.at)
        return refuse_handle(d, &h, "it is not a handle of a cpu device");
    if (bytes > h.bytes)
        return cpu_fail(d, XRAY_E_RANGE, "attach",
                        "%llu bytes were requested, but the handle has %llu",
                        (unsigned long long)bytes, (unsigned long long)h.bytes);
    char *base = NULL;
    cpu_remote *remote = NULL;
    xray_status status = find_region(d, &h, &base, &remote);
    if (status != XRAY_OK)
        return status;
    shared_header header;
    memcpy(&header, base + h.block, sizeof(header));
    if (header.magic != BLOCK_MAGIC || header.serial != h.serial) {
        if (remote)
            release_remote(d, remote);
        return refuse_handle(d, &h, "the block was freed");
    }
    if (remote)
        remote->holders++;
    *out = base + h.at;
    return XRAY_OK;
}

void cpu_detach(void *self, void *ptr)
{
    cpu_device *d = self;
    uintptr_t p = (uintptr_t)ptr;
    for (cpu_remote *r = d->remotes; ptr && r; r = r->next) {
        uintptr_t base = (uintptr_t)r->base;
        if (p < base || p - base > r->size)
            continue;
        if (r->holders)
            r->holders--;
        release_remote(d, r);
        return;
    }
}

void cpu_share_destroy(cpu_device *d)
{
    while (d->remotes) {
        d->remotes->holders = 0;
        release_remote(d, d->remotes);
    }
    close_region(d->region);
    d->region = NULL;
}
