/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that all ranks of a world share: where each says what it does, and
 * a channel for each set of ranks that makes calls together. It is a nameless
 * file in memory that rank 0 makes; it is gone when the last rank is.
 *
 * A channel has two steps, used in turn. The last rank to arrive at a step
 * opens it; the work is cut in pieces that whoever runs takes, so that a rank
 * the system does not run holds up no one; who finishes the last piece closes
 * the step. No rank can be two steps ahead of another, so two are enough.
 */
#ifndef SHM_CONTROL_H
#define SHM_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include <xray/comm.h>

#define SHM_MOST_RANKS 256u
#define SHM_MOST_CHANNELS 512u

#define SHM_OUTSIDE 0u
#define SHM_WAITS 1u
#define SHM_WORKS 2u
#define SHM_GAVE_UP 3u

/* What a rank does, for others to read at any time. */
typedef struct shm_area {
    _Alignas(64) _Atomic uint64_t now; /* shm_now of the call it is in; or 0 */
    _Atomic uint64_t calls;
    _Atomic uint64_t bytes;
    _Atomic uint64_t since; /* CLOCK_MONOTONIC nanoseconds */
    _Atomic uint32_t group;
    _Atomic uint32_t call;
    _Atomic uint32_t dtype;
    _Atomic uint32_t root; /* of a broadcast; the other side of a message */
    _Atomic uint32_t state;
    _Atomic uint32_t left; /* 1: its instance was destroyed */
    _Atomic uint32_t pid;
} shm_area;

/* What a rank came with to a step. Its own until it has arrived. */
typedef struct shm_desc {
    uint64_t count; /* elements */
    uint64_t bytes; /* of count elements */
    uint64_t whole; /* of the call that this is a piece of */
    uint32_t call;
    uint32_t dtype;
    uint32_t root;
    uint32_t in_place; /* its `in` is its part of its `out` */
    uint8_t in[XRAY_HANDLE_BYTES];
    uint8_t out[XRAY_HANDLE_BYTES];
} shm_desc;

typedef struct shm_member {
    _Alignas(64) _Atomic uint64_t arrived; /* number of the call, from 1 */
    shm_desc desc;
    _Alignas(64) _Atomic uint64_t next; /* piece of this member's slice */
} shm_member;

typedef struct shm_step {
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) _Atomic uint32_t open;     /* low half of the call's number */
    _Alignas(64) _Atomic uint32_t closed;   /* the same */
    _Atomic uint32_t sleepers;              /* on open or closed */
    _Alignas(64) _Atomic uint64_t finished; /* pieces */
} shm_step;

/* Why a channel is unfit, and who found it: cause + 256 * rank. */
#define SHM_LATE 1u
#define SHM_DEAD 2u
#define SHM_DIFFERENT 3u
#define SHM_ABORTED 4u
#define SHM_FAILED 5u
#define SHM_LEFT 6u

typedef struct shm_header {
    uint64_t magic;
    uint64_t nonce;
    uint32_t size;
    uint32_t reserved;
    _Atomic uint32_t holders; /* ranks of rank 0's process that use its map */
} shm_header;

typedef struct shm_control {
    char *base;
    uint64_t bytes;
    uint32_t size;    /* ranks */
    uint32_t counted; /* 1: in rank 0's process, whose ranks share one map */
} shm_control;

/* Offers of ranks when they meet; plain bytes to the exchange. */
typedef struct shm_offer {
    uint64_t nonce;
    uint64_t base; /* address in its own process */
    uint32_t pid;
    int32_t fd;
    int32_t status; /* XRAY_OK, or this rank cannot come */
    uint32_t size;
    char why[192]; /* it cannot, as a sentence; "" where another said it */
} shm_offer;

/* Rank 0: makes the memory. 1 on success, else errno. */
int shm_control_make(shm_control *c, uint32_t size, shm_offer *offer);
/* The others: maps what rank 0 offers. 1 on success, else errno. */
int shm_control_join(shm_control *c, const shm_offer *offer);
void shm_control_leave(shm_control *c);

shm_area *shm_area_of(const shm_control *c, uint32_t rank);

/* A channel's number by its key: the same on every rank, given to the first
 * that asks. UINT32_MAX: all are taken. `pair` says who talks on a channel of
 * two (shm_pair), 0 for a group's own. */
uint32_t shm_channel_claim(const shm_control *c, uint64_t key, uint64_t pair);
uint64_t shm_channel_pair(const shm_control *c, uint32_t channel);
_Atomic uint32_t *shm_channel_broken(const shm_control *c, uint32_t channel);
/* parity: 0 or 1. */
shm_step *shm_step_of(const shm_control *c, uint32_t channel, uint32_t parity);
shm_member *shm_member_of(shm_step *step, uint32_t index);

/* Of ranks a and b of the world, in group `group`. Never 0. */
static inline uint64_t shm_pair(uint32_t group, uint32_t a, uint32_t b)
{
    return (uint64_t)1 << 63 | (uint64_t)group << 32 | (uint64_t)a << 16 | b;
}

static inline uint64_t shm_now(uint32_t channel, uint64_t number)
{
    return (uint64_t)(channel + 1) << 48 | (number & 0xffffffffffffu);
}

#endif
