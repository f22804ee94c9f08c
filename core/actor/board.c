/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared memory through which all actors of a runtime exchange small data.
 */
#include "core/actor/board.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/actor/clock.h"
#include "core/plugin/cancel.h"

#define MAGIC UINT64_C(0x31647261426d7258)

/* The data that one actor shows to the others on one channel. Two buffers are
 * enough: an actor writes round r + 2 only after it has seen every other actor
 * in round r + 1, and those have finished reading round r. */
typedef struct channel {
    _Atomic uint64_t round; /* the last one that was shown */
    uint64_t bytes[2];      /* of the complete exchange */
    unsigned char data[2][XR_BOARD_CHUNK];
} channel;

struct xr_board_slot {
    channel channels[XR_BOARD_CHANNELS];
};

typedef struct board_header {
    uint64_t magic;
    uint64_t extra_size;
    uint32_t actors;
    _Atomic uint32_t canceled;
    uint32_t reserved[10]; /* slots begin on a cache line */
} board_header;

static uint64_t end_of_slots(uint32_t actors)
{
    uint64_t end = sizeof(board_header) + actors * sizeof(xr_board_slot);
    return (end + 63) / 64 * 64;
}

uint64_t xr_board_bytes(uint32_t actors, uint64_t extra_size)
{
    uint64_t slots = end_of_slots(actors);
    if (actors && extra_size > (UINT64_MAX / 2 - slots) / actors)
        return UINT64_MAX / 2; /* more than any memory has */
    return slots + actors * extra_size;
}

void xr_board_format(void *memory, uint32_t actors, uint64_t extra_size)
{
    board_header *header = memory;
    header->extra_size = extra_size;
    header->actors = actors;
    header->magic = MAGIC;
}

xray_status xr_board_map(void *memory, uint64_t bytes, xr_err *err,
                         xr_board *out)
{
    board_header *header = memory;
    if (bytes < sizeof(*header) || header->magic != MAGIC ||
        bytes < xr_board_bytes(header->actors, header->extra_size))
        return xr_fail(err, XRAY_E_PEER,
                       "the board (%llu bytes) is not one of this program",
                       (unsigned long long)bytes);
    char *base = memory;
    out->slots = (xr_board_slot *)(void *)(base + sizeof(*header));
    out->canceled = &header->canceled;
    out->extra = base + end_of_slots(header->actors);
    out->extra_size = header->extra_size;
    out->actors = header->actors;
    out->reserved = 0;
    return XRAY_OK;
}

static channel *channel_of_rank(const xr_board_group *group, uint32_t rank)
{
    uint32_t actor = group->members ? group->members[rank] : rank;
    return &group->board->slots[actor].channels[group->channel];
}

/* The first rank from `rank` on that has not shown `round` yet, or the size of
 * the group. */
static uint32_t find_missing_rank(const xr_board_group *group, uint32_t rank,
                                  uint64_t round)
{
    while (rank < group->size &&
           atomic_load_explicit(&channel_of_rank(group, rank)->round,
                                memory_order_acquire) >= round)
        rank++;
    return rank;
}

static xray_status fail_missing_ranks(const xr_board_group *group,
                                      uint64_t bytes, uint64_t round,
                                      xr_err *err)
{
    char ranks[200] = "";
    size_t used = 0;
    for (uint32_t r = find_missing_rank(group, 0, round); r < group->size;
         r = find_missing_rank(group, r + 1, round)) {
        int n = snprintf(ranks + used, sizeof(ranks) - used, "%s%u",
                         used ? ", " : "", r);
        if (n < 0 || (size_t)n >= sizeof(ranks) - used)
            break;
        used += (size_t)n;
    }
    return xr_fail(err, XRAY_E_PEER,
                   "exchange of %llu bytes among %u ranks: rank %s did not "
                   "arrive within %.1f s (this is rank %u)",
                   (unsigned long long)bytes, group->size, ranks,
                   group->timeout_ms / 1000.0, group->rank);
}

static xray_status wait_all_ranks(const xr_board_group *group, uint64_t bytes,
                                  uint64_t round, xr_err *err)
{
    const uint64_t end = xr_clock_ns() + group->timeout_ms * UINT64_C(1000000);
    struct timespec pause = { 0, 20000 };
    uint32_t rank = 0;
    while ((rank = find_missing_rank(group, rank, round)) < group->size) {
        if (xr_clock_ns() >= end)
            return fail_missing_ranks(group, bytes, round, err);
        xray_status status = xr_cancel_check(err);
        if (status != XRAY_OK)
            return status;
        (void)nanosleep(&pause, NULL);
        if (pause.tv_nsec < 1000000)
            pause.tv_nsec += pause.tv_nsec / 4;
    }
    return XRAY_OK;
}

/* Exchanges one chunk of every rank: at most XR_BOARD_CHUNK bytes from offset
 * `at` on. */
static xray_status exchange_chunk(const xr_board_group *group,
                                  const unsigned char *mine, uint64_t bytes,
                                  uint64_t at, unsigned char *all, xr_err *err)
{
    channel *own = channel_of_rank(group, group->rank);
    uint64_t round =
        atomic_load_explicit(&own->round, memory_order_relaxed) + 1;
    size_t size =
        bytes - at < XR_BOARD_CHUNK ? (size_t)(bytes - at) : XR_BOARD_CHUNK;
    own->bytes[round & 1] = bytes;
    if (size)
        memcpy(own->data[round & 1], mine + at, size);
    atomic_store_explicit(&own->round, round, memory_order_release);
    xray_status status = wait_all_ranks(group, bytes, round, err);
    if (status)
        return status;
    for (uint32_t r = 0; r < group->size; r++) {
        const channel *other = channel_of_rank(group, r);
        if (other->bytes[round & 1] != bytes)
            return xr_fail(err, XRAY_E_PEER,
                           "exchange: rank %u has %llu bytes, but rank %u has "
                           "%llu",
                           r, (unsigned long long)other->bytes[round & 1],
                           group->rank, (unsigned long long)bytes);
        if (size)
            memcpy(all + r * bytes + at, other->data[round & 1], size);
    }
    return XRAY_OK;
}

xray_status xr_board_exchange(const xr_board_group *group, const void *mine,
                              uint64_t bytes, void *all, xr_err *err)
{
    if (!group->board)
        return xr_fail(err, XRAY_E_UNSUPPORTED,
                       "exchange: this runtime's actors share no board");
    if (group->rank >= group->size || group->channel >= XR_BOARD_CHANNELS)
        return xr_fail(err, XRAY_E_ARG,
                       "exchange: rank %u of %u on channel %u does not exist",
                       group->rank, group->size, group->channel);
    for (uint32_t r = 0; r < group->size; r++)
        if ((group->members ? group->members[r] : r) >= group->board->actors)
            return xr_fail(err, XRAY_E_ARG,
                           "exchange: rank %u is an actor that the board of %u "
                           "actors does not have",
                           r, group->board->actors);
    uint64_t at = 0;
    do {
        xray_status status = exchange_chunk(group, mine, bytes, at, all, err);
        if (status)
            return status;
        at += XR_BOARD_CHUNK;
    } while (at < bytes);
    return XRAY_OK;
}
