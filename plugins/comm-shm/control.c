/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates, maps and unmaps the control memory, and finds the records in it.
 */
#define _GNU_SOURCE
#include "plugins/comm-shm/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <xray/numerics.h>

#define CONTROL_MAGIC 0x6c6f72746e6f4358u
#define PAGE 4096u

typedef struct channel_name {
    _Atomic uint64_t key; /* 0: free */
    _Atomic uint64_t pair;
    _Atomic uint32_t broken;
} channel_name;

static uint64_t round_to_page(uint64_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static uint64_t rank_states_offset(void)
{
    return PAGE;
}

static uint64_t names_offset(uint32_t size)
{
    return rank_states_offset() +
           round_to_page((uint64_t)size * sizeof(shm_rank_state));
}

static uint64_t channels_offset(uint32_t size)
{
    return names_offset(size) +
           round_to_page((uint64_t)SHM_MAX_CHANNELS * sizeof(channel_name));
}

static uint64_t round_bytes(uint32_t size)
{
    return sizeof(shm_round) + (uint64_t)size * sizeof(shm_member);
}

static uint64_t control_bytes(uint32_t size)
{
    return channels_offset(size) +
           SHM_MAX_CHANNELS * round_to_page(2 * round_bytes(size));
}

int shm_control_create(shm_control *c, uint32_t size, shm_offer *offer)
{
    struct timespec t;
    uint64_t bytes = control_bytes(size);
    int fd = memfd_create("xray-comm", MFD_CLOEXEC);
    if (fd < 0)
        return 0;
    void *base = MAP_FAILED;
    if (ftruncate(fd, (off_t)bytes) == 0)
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED) {
        int reason = errno;
        (void)close(fd);
        errno = reason;
        return 0;
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t nonce =
        xray_mix64(xray_mix64((uint64_t)t.tv_sec, (uint64_t)t.tv_nsec),
                   (uintptr_t)base ^ (uint64_t)getpid() << 48);
    shm_header *header = base;
    header->magic = CONTROL_MAGIC;
    header->nonce = nonce;
    header->size = size;
    atomic_store(&header->holders, 1);
    *c = (shm_control){ base, bytes, size, 1 };
    offer->nonce = nonce;
    offer->base = (uintptr_t)base;
    offer->fd = fd;
    return 1;
}

/* Uses rank 0's own mapping in a rank of the same process, so that each word
 * has a single address there. Tools that check threads rely on that. */
static int join_own_process(shm_control *c, const shm_offer *offer)
{
    shm_header *header = NULL;
    memcpy(&header, &offer->base, sizeof(header)); /* only on 64-bit hosts */
    *c = (shm_control){ (char *)header, control_bytes(offer->size), offer->size,
                        1 };
    atomic_fetch_add(&header->holders, 1);
    return 1;
}

int shm_control_join(shm_control *c, const shm_offer *offer)
{
    char path[64];
    shm_header header;
    uint64_t bytes = control_bytes(offer->size);
    if (offer->pid == (uint32_t)getpid())
        return join_own_process(c, offer);
    (void)snprintf(path, sizeof(path), "/proc/%u/fd/%d", offer->pid, offer->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return 0;
    void *base = MAP_FAILED;
    ssize_t got;
    do {
        errno = ESTALE; /* the descriptor is another file by now */
        got = pread(fd, &header, sizeof(header), 0);
    } while (got < 0 && errno == EINTR);
    if (got == (ssize_t)sizeof(header) && header.magic == CONTROL_MAGIC &&
        header.nonce == offer->nonce && header.size == offer->size)
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_NORESERVE, fd, 0);
    int reason = errno;
    (void)close(fd);
    errno = reason;
    if (base == MAP_FAILED)
        return 0;
    *c = (shm_control){ base, bytes, offer->size, 0 };
    return 1;
}

void shm_control_leave(shm_control *c)
{
    if (!c->base)
        return;
    /* Ranks of other processes have mappings of their own; only the users of
     * rank 0's mapping are counted. */
    shm_header *header = (shm_header *)(void *)c->base;
    if (!c->counted || atomic_fetch_sub(&header->holders, 1) == 1)
        (void)munmap(c->base, c->bytes);
    c->base = NULL;
}

shm_rank_state *shm_rank_state_of(const shm_control *c, uint32_t rank)
{
    return (shm_rank_state *)(void *)(c->base + rank_states_offset()) + rank;
}

static channel_name *find_channel_name(const shm_control *c, uint32_t channel)
{
    return (channel_name *)(void *)(c->base + names_offset(c->size)) + channel;
}

uint32_t shm_channel_claim(const shm_control *c, uint64_t key, uint64_t pair)
{
    for (uint32_t i = 0; i < SHM_MAX_CHANNELS; i++) {
        channel_name *name = find_channel_name(c, i);
        uint64_t found = 0;
        if (atomic_compare_exchange_strong(&name->key, &found, key))
            atomic_store(&name->pair, pair);
        else if (found != key)
            continue;
        return i;
    }
    return UINT32_MAX;
}

uint64_t shm_channel_pair(const shm_control *c, uint32_t channel)
{
    return atomic_load(&find_channel_name(c, channel)->pair);
}

_Atomic uint32_t *shm_channel_broken(const shm_control *c, uint32_t channel)
{
    return &find_channel_name(c, channel)->broken;
}

shm_round *shm_round_of(const shm_control *c, uint32_t channel, uint32_t parity)
{
    uint64_t each = round_to_page(2 * round_bytes(c->size));
    return (shm_round *)(void *)(c->base + channels_offset(c->size) +
                                 channel * each +
                                 parity * round_bytes(c->size));
}

shm_member *shm_member_of(shm_round *round, uint32_t index)
{
    return (shm_member *)(void *)(round + 1) + index;
}
