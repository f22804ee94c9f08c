/* SPDX-License-Identifier: Apache-2.0
 *
 * Waits for other ranks: spins for a short time, then sleeps in slices on a
 * word of the shared memory, so that a rank that dies, stops or makes another
 * call is noticed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <immintrin.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "plugins/comm-shm/shm.h"

#define SLICE \
    10000000u /* ns between checks, the time until a death is noticed */
#define LONG_SLICE 50000000u /* used once a wait has lasted for LONG */
#define LONG 1000000000u
#define SPINS 32 /* iterations between two looks at the clock */

uint64_t shm_clock(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_on_word(_Atomic uint32_t *word, uint32_t value, uint64_t ns)
{
    struct timespec t = { (time_t)(ns / 1000000000u),
                          (long)(ns % 1000000000u) };
    (void)syscall(SYS_futex, word, FUTEX_WAIT, value, &t, NULL, 0);
}

static void wake_sleepers(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* A sleeper counts itself before it reads the word, and this function runs
 * after the word was set: at least one of the two sees the other. */
void shm_wake_ranks(shm_round *round, _Atomic uint32_t *word)
{
    if (atomic_load(&round->sleepers))
        wake_sleepers(word);
}

static void mark_broken(const shm_comm *comm, uint32_t channel, uint32_t cause)
{
    uint32_t none = 0;
    (void)atomic_compare_exchange_strong(
        shm_channel_broken(&comm->control, channel), &none,
        cause + 256 * comm->rank);
    for (uint32_t parity = 0; parity < 2; parity++) {
        shm_round *round = shm_round_of(&comm->control, channel, parity);
        wake_sleepers(&round->open);
        wake_sleepers(&round->closed);
    }
}

xray_status shm_break_channel(shm_channel *channel, const shm_call *call,
                              uint32_t cause)
{
    mark_broken(channel->comm, channel->number, cause);
    xray_status status =
        shm_report_ranks(channel, call, cause + 256 * channel->comm->rank);
    shm_trace_end(channel->comm, SHM_GAVE_UP);
    return status;
}

xray_status shm_report_broken(shm_channel *channel, const shm_call *call)
{
    const shm_comm *comm = channel->comm;
    const shm_rank_state *area = shm_rank_state_of(&comm->control, comm->rank);
    xray_status status = shm_report_ranks(
        channel, call,
        atomic_load(shm_channel_broken(&comm->control, channel->number)));
    if (atomic_load(&area->now))
        shm_trace_end(comm, SHM_GAVE_UP);
    return status;
}

/* Returns why the channel cannot go on, or 0. */
static uint32_t find_cause(const shm_channel *channel, uint64_t waited)
{
    const shm_comm *comm = channel->comm;
    if (atomic_load(&comm->aborted))
        return SHM_ABORTED;
    for (uint32_t i = 0; i < channel->count; i++) {
        uint32_t rank = channel->ranks[i];
        uint32_t other;
        if (rank == comm->rank)
            continue;
        if (shm_is_dead(comm, rank))
            return SHM_DEAD;
        if (atomic_load(&shm_rank_state_of(&comm->control, rank)->left))
            return SHM_LEFT;
        if (shm_is_elsewhere(channel, rank, &other)) {
            /* That rank waits there for this one, which will not arrive. */
            mark_broken(comm, other, SHM_DIFFERENT);
            return SHM_DIFFERENT;
        }
    }
    return comm->timeout && waited >= comm->timeout ? SHM_LATE : 0;
}

static int is_channel_broken(const shm_channel *channel)
{
    return atomic_load(shm_channel_broken(&channel->comm->control,
                                          channel->number)) != 0;
}

static int spin_on_word(const shm_channel *channel, _Atomic uint32_t *word,
                        uint32_t want, uint64_t start)
{
    do {
        for (int i = 0; i < SPINS; i++) {
            if (atomic_load(word) == want)
                return 1;
            _mm_pause();
        }
    } while (shm_clock() - start < channel->comm->spin);
    return 0;
}

static uint64_t sleep_slice(const shm_comm *comm, uint64_t waited)
{
    uint64_t ns = waited > LONG ? LONG_SLICE : SLICE;
    if (comm->timeout && comm->timeout > waited && comm->timeout - waited < ns)
        ns = comm->timeout - waited;
    return ns;
}

xray_status shm_wait_word(shm_channel *channel, const shm_call *call,
                          shm_round *round, _Atomic uint32_t *word,
                          uint32_t want)
{
    uint64_t start = shm_clock();
    if (spin_on_word(channel, word, want, start))
        return XRAY_OK;
    uint64_t waited = 0;
    for (;;) {
        if (is_channel_broken(channel))
            return atomic_load(word) == want ? XRAY_OK
                                             : shm_report_broken(channel, call);
        atomic_fetch_add(&round->sleepers, 1);
        uint32_t value = atomic_load(word);
        if (value != want && !is_channel_broken(channel))
            sleep_on_word(word, value, sleep_slice(channel->comm, waited));
        atomic_fetch_sub(&round->sleepers, 1);
        if (atomic_load(word) == want)
            return XRAY_OK;
        uint64_t before = waited;
        waited = shm_clock() - start;
        if (waited / SLICE == before / SLICE &&
            !(channel->comm->timeout && waited >= channel->comm->timeout))
            continue; /* a spurious wake-up: too early for another check */
        uint32_t cause =
            is_channel_broken(channel) ? 0 : find_cause(channel, waited);
        /* A rank that is gone may have done its part before. */
        if (atomic_load(word) == want)
            return XRAY_OK;
        if (cause)
            return shm_break_channel(channel, call, cause);
    }
}
