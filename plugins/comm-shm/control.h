/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that all ranks of a world share: what each rank does at the
 * moment, and one channel for each set of ranks that make calls together. It is
 * an unlinked memory file that rank 0 creates, and it ends with the last rank
 * that maps it.
 *
 * A channel has two rounds, used alternately. The last rank to arrive at a
 * round opens it. The work is cut into pieces, and each running rank takes the
 * next one, so that a rank which the system does not run delays no other. The
 * rank that finishes the last piece closes the round. No rank can be two rounds
 * ahead of another, so two are enough.
 */
#ifndef SHM_CONTROL_H
#define SHM_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include <xray/comm.h>

#define SHM_MAX_RANKS 256u
#define SHM_MAX_CHANNELS 512u

#define SHM_OUTSIDE 0u
#define SHM_WAITS 1u
#define SHM_WORKS 2u
#define SHM_GAVE_UP 3u

/* The current activity of a rank, which others may read at any time. */
typedef struct shm_rank_state {
    /* shm_call_tag of the current call, or of the last one if the rank gave up
     * in it, or 0; an exchange has two. */
    _Alignas(64) _Atomic uint64_t now[2];
    _Atomic uint64_t calls;
    _Atomic uint64_t bytes;
    _Atomic uint64_t from_bytes; /* what an exchange receives */
    _Atomic uint64_t since;      /* CLOCK_MONOTONIC nanoseconds */
    _Atomic uint64_t ended;      /* the same, when it gave up last */
    _Atomic uint32_t group;
    _Atomic uint32_t call;
    _Atomic uint32_t dtype;
    _Atomic uint32_t root; /* root of a broadcast, or the peer of a message */
    _Atomic uint32_t from; /* rank from which an exchange receives */
    _Atomic uint32_t state;
    _Atomic uint32_t left; /* 1: its instance was destroyed */
    _Atomic uint32_t pid;
} shm_rank_state;

/* The call that a rank makes in a round. Only that rank may touch it until it
 * has arrived. */
typedef struct shm_call_desc {
    uint64_t count;      /* number of elements */
    uint64_t bytes;      /* size of count elements */
    uint64_t call_bytes; /* of the complete call, if this is a piece of one */
    uint32_t call;
    uint32_t dtype;
    uint32_t root;
    uint32_t in_place; /* 1: `in` is this rank's part of `out` */
    uint32_t half;     /* 1: one of the two messages of an exchange */
    uint8_t in[XRAY_HANDLE_BYTES];
    uint8_t out[XRAY_HANDLE_BYTES];
} shm_call_desc;

typedef struct shm_member {
    _Alignas(64) _Atomic uint64_t arrived; /* number of the call, from 1 */
    shm_call_desc desc;
    _Alignas(64) _Atomic uint64_t
        next; /* index of the next piece in this member's slice */
} shm_member;

typedef struct shm_round {
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) _Atomic uint32_t
        open; /* low half of the number of the call that was opened */
    _Alignas(64) _Atomic uint32_t
        closed; /* low half of the number of the call that was closed */
    _Atomic uint32_t sleepers; /* ranks that sleep on `open` or `closed` */
    _Alignas(64) _Atomic uint64_t finished; /* number of finished pieces */
} shm_round;

/* Why a channel is broken, and which rank found it: cause + 256 * rank. */
#define SHM_LATE 1u
#define SHM_DEAD 2u
#define SHM_DIFFERENT 3u
#define SHM_ABORTED 4u
#define SHM_FAILED 5u
#define SHM_LEFT 6u
#define SHM_CANCELED 7u

typedef struct shm_header {
    uint64_t magic;
    uint64_t nonce;
    uint32_t size;
    uint32_t reserved;
    _Atomic uint32_t holders; /* ranks that use rank 0's mapping */
} shm_header;

typedef struct shm_control {
    char *base;
    uint64_t bytes;
    uint32_t size;    /* number of ranks */
    uint32_t counted; /* 1: this rank belongs to rank 0's process, whose ranks
                       * share one mapping */
} shm_control;

/* The record that ranks send each other when they connect; the gather treats
 * it as plain bytes. */
typedef struct shm_offer {
    uint64_t nonce;
    uint64_t base; /* address of the mapping in rank 0's process */
    uint32_t pid;
    int32_t fd;
    int32_t status; /* XRAY_OK, or why this rank cannot take part */
    uint32_t size;
    char why[192]; /* a sentence about `status`; "" if it was reported elsewhere
                    */
} shm_offer;

/* Rank 0: creates the memory. Returns 1 on success; otherwise errno is set. */
int shm_control_create(shm_control *c, uint32_t size, shm_offer *offer);
/* The other ranks: map the memory that rank 0 offers. Returns 1 on success;
 * otherwise errno is set. */
int shm_control_join(shm_control *c, const shm_offer *offer);
void shm_control_leave(shm_control *c);

shm_rank_state *shm_rank_state_of(const shm_control *c, uint32_t rank);

/* Returns the number of the channel with a key, which is the same on every
 * rank; the first rank that asks takes a free channel. UINT32_MAX: none is
 * free. `pair` names the two ranks of a message channel (shm_pair) and is 0 for
 * a group's own channel. */
uint32_t shm_channel_claim(const shm_control *c, uint64_t key, uint64_t pair);
uint64_t shm_channel_pair(const shm_control *c, uint32_t channel);
_Atomic uint32_t *shm_channel_broken(const shm_control *c, uint32_t channel);
/* `parity` is 0 or 1. */
shm_round *shm_round_of(const shm_control *c, uint32_t channel,
                        uint32_t parity);
shm_member *shm_member_of(shm_round *round, uint32_t index);

/* Key of the channel of messages from one rank of the world to another in group
 * `group`; never 0. */
static inline uint64_t shm_pair(uint32_t group, uint32_t from, uint32_t to)
{
    return (uint64_t)1 << 63 | (uint64_t)group << 32 | (uint64_t)from << 16 |
           to;
}

static inline uint64_t shm_call_tag(uint32_t channel, uint64_t number)
{
    return (uint64_t)(channel + 1) << 48 | (number & 0xffffffffffffu);
}

#endif
