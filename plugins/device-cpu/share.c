/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks that other processes can map. All of an instance lie in one region: a
 * sparse, nameless file in memory, mapped once here and once in each process
 * that attaches a block of it, so that a handle is an offset and a peer costs
 * one mapping. The file is gone with the last process that has it mapped.
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
#define LARGE 0x10000u /* from here on a block has its pages to itself */
#define HUGE_PAGE 0x200000u
#define LEAST_REGION ((uint64_t)1 << 30)
#define REGION_MAGIC 0x6e6f696765525258u
#define BLOCK_MAGIC 0x6b636f6c42525258u
#define EVICTED                                                  \
    ((uint64_t)1 << 32) /* with the tag: the block has no memory \
                         */

/* Where a block lies, its header included. */
typedef struct extent {
    uint64_t at;
    uint64_t end;
} extent;

struct cpu_region {
    char *base;
    uint64_t size;
    uint64_t nonce;
    uint64_t serial; /* of the next block */
    extent *used;    /* [count], ascending */
    size_t count;
    size_t room;
    int fd;
};

/* The region of another process. */
struct cpu_remote {
    char *base;
    uint64_t size;
    uint64_t nonce;
    uint64_t holders;
    cpu_remote *next;
};

/* The file's first bytes. */
typedef struct region_header {
    uint64_t magic;
    uint64_t nonce;
    uint64_t size;
} region_header;

/* In the line before a block. */
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
    uint64_t at;    /* of the memory itself */
    uint64_t bytes; /* from there to the block's end */
    uint64_t base;  /* the region's address in its own process */
    uint64_t size;  /* of the region */
    uint32_t pid;
    int32_t fd;
} shared_handle;

_Static_assert(sizeof(shared_handle) == XRAY_HANDLE_BYTES, "handle");
_Static_assert(sizeof(shared_header) <= LINE, "header");

/* ---- the region --------------------------------------------------------- */

static uint64_t fresh_nonce(const void *where)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t key = xray_mix64((uint64_t)t.tv_sec, (uint64_t)t.tv_nsec);
    return xray_mix64(xray_mix64(key, (uint64_t)getpid()), (uintptr_t)where);
}

static uint64_t up(uint64_t value, uint64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* Address space for twice the machine's memory, or what can be had; pages come
 * when they are used. */
static int map_region(cpu_region *r)
{
    uint64_t size = up(2 * cpu_memory_bytes(), LEAST_REGION);
    for (; size >= LEAST_REGION; size = up(size / 2, PAGE)) {
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

static void region_close(cpu_region *r)
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

/* NULL and errno. */
static cpu_region *region_open(void)
{
    cpu_region *r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    r->fd = memfd_create("xray-device", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (r->fd < 0 || !map_region(r)) {
        int reason = errno;
        region_close(r);
        errno = reason;
        return NULL;
    }
    /* A peer must not be hit by a file that shrinks under it. */
    (void)fcntl(r->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    cpu_advise_huge(r->base, r->size);
    r->nonce = fresh_nonce(r);
    region_header header = { REGION_MAGIC, r->nonce, r->size };
    memcpy(r->base, &header, sizeof(header));
    return r;
}

/* The first gap that holds `bytes` at `align` with a header before them; its
 * index among the extents, and the offset of the bytes. */
static int find_gap(const cpu_region *r, uint64_t align, uint64_t bytes,
                    size_t *out_index, uint64_t *out_at)
{
    uint64_t from = PAGE; /* behind the region's header */
    for (size_t i = 0; i <= r->count; i++) {
        uint64_t to = i < r->count ? r->used[i].at : r->size;
        uint64_t at = up(from + LINE, align);
        if (at <= to && to - at >= bytes) {
            *out_index = i;
            *out_at = at;
            return 1;
        }
        from = i < r->count ? r->used[i].end : from;
    }
    return 0;
}

static int more_room(cpu_region *r)
{
    if (r->count < r->room)
        return 1;
    size_t room = r->room ? 2 * r->room : 64;
    extent *used = realloc(r->used, room * sizeof(*used));
    if (!used)
        return 0;
    r->used = used;
    r->room = room;
    return 1;
}

/* Whole pages: the system has them again, and they come zeroed when used. */
static void give_back(const cpu_region *r, uint64_t from, uint64_t to)
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
    if (bytes > r->size || !more_room(r))
        return NULL;
    uint64_t whole = up(bytes ? bytes : 1, bytes >= LARGE ? PAGE : LINE);
    size_t index;
    uint64_t at;
    if (!find_gap(r, align, whole, &index, &at))
        return NULL;
    /* Small blocks leave their pages behind. */
    if (bytes >= LARGE)
        give_back(r, at, at + whole);
    /* Asked for in one call, which can be refused; a touch cannot. */
    if (fallocate(r->fd, 0, (off_t)(at - LINE), (off_t)(whole + LINE)) != 0)
        return NULL;
#ifdef MADV_POPULATE_WRITE
    if (bytes >= LARGE)
        (void)madvise(r->base + at, whole, MADV_POPULATE_WRITE);
#endif
    if (bytes < LARGE)
        memset(r->base + at, 0, whole);
    memmove(r->used + index + 1, r->used + index,
            (r->count - index) * sizeof(*r->used));
    r->used[index] = (extent){ at - LINE, at + whole };
    r->count++;
    shared_header header = { BLOCK_MAGIC, ++r->serial, bytes, tag };
    memcpy(r->base + at - LINE, &header, sizeof(header));
    cpu_count_block(d, tag, bytes);
    return r->base + at;
}

/* The extent that holds an address of the region. */
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
        give_back(r, e->at + LINE, e->end);
    size_t index = (size_t)(e - r->used);
    r->count--;
    memmove(e, e + 1, (r->count - index) * sizeof(*e));
    return 1;
}

/* Peers keep their mapping of a block that is taken away, and its handle. */
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
        give_back(r, e->at + LINE, e->end);
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
                        "no memory for the %llu bytes that were taken away",
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
        d->region = region_open();
    if (!d->region)
        return cpu_fail(d, XRAY_E_IO, "shareable",
                        "there is no file in memory of %llu bytes or more to "
                        "share blocks in: %s",
                        (unsigned long long)LEAST_REGION,
                        XR_SYSTEM_ERROR(errno));
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
        return cpu_fail(d, XRAY_E_ARG, "share",
                        "%p lies in no block that this device made after it "
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

/* 1 if an open file is the handle's region. */
static int is_region(int fd, const shared_handle *h)
{
    region_header header;
    return pread(fd, &header, sizeof(header), 0) == (ssize_t)sizeof(header) &&
           header.magic == REGION_MAGIC && header.nonce == h->nonce &&
           header.size == h->size;
}

static xray_status stale(const cpu_device *d, const shared_handle *h,
                         const char *why)
{
    return cpu_fail(d, XRAY_E_ARG, "attach",
                    "the handle of %llu bytes of process %u is stale or "
                    "foreign: %s",
                    (unsigned long long)h->bytes, h->pid, why);
}

/* The handle's region as a file of the caller's own: the one it names may be
 * closed, and its number another file's, at any moment. */
static xray_status open_region(const cpu_device *d, const shared_handle *h,
                               int *out_fd)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%u/fd/%d", h->pid, h->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return errno == ENOENT || errno == EACCES || errno == ESRCH
                   ? stale(d, h,
                           "that process or its memory is gone, or belongs to "
                           "another user")
                   : cpu_fail(d, XRAY_E_IO, "attach",
                              "the memory of process %u cannot be opened: %s",
                              h->pid, XR_SYSTEM_ERROR(errno));
    if (!is_region(fd, h)) {
        (void)close(fd);
        return stale(d, h, "that process has no such memory");
    }
    *out_fd = fd;
    return XRAY_OK;
}

/* Maps another process's region. */
static xray_status map_remote(cpu_device *d, const shared_handle *h,
                              cpu_remote **out)
{
    int fd = -1;
    xray_status status = open_region(d, h, &fd);
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

static void drop_remote(cpu_device *d, cpu_remote *remote)
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

/* The region's address here; *out_remote is NULL where it is this process's. */
static xray_status find_region(cpu_device *d, const shared_handle *h,
                               char **out_base, cpu_remote **out_remote)
{
    *out_remote = NULL;
    if (h->pid == (uint32_t)getpid()) {
        int fd = -1;
        xray_status status = open_region(d, h, &fd);
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
        return stale(d, &h, "it is no handle of a cpu device");
    if (bytes > h.bytes)
        return cpu_fail(d, XRAY_E_RANGE, "attach",
                        "%llu bytes are asked of a handle of %llu",
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
            drop_remote(d, remote);
        return stale(d, &h, "the block was freed");
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
        drop_remote(d, r);
        return;
    }
}

void cpu_share_destroy(cpu_device *d)
{
    while (d->remotes) {
        d->remotes->holders = 0;
        drop_remote(d, d->remotes);
    }
    region_close(d->region);
    d->region = NULL;
}
