/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting for other ranks: a little spinning, then sleep on a word of the
 * shared memory, in slices, so that who dies, stops or goes elsewhere is
 * noticed.
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

#define SLICE 10000000u      /* ns: how soon a death is noticed */
#define LONG_SLICE 50000000u /* once a wait has lasted LONG */
#define LONG 1000000000u
#define SPINS 32 /* between looks at the clock */

uint64_t shm_clock(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_on(_Atomic uint32_t *word, uint32_t value, uint64_t ns)
{
    struct timespec t = { (time_t)(ns / 1000000000u),
                          (long)(ns % 1000000000u) };
    (void)syscall(SYS_futex, word, FUTEX_WAIT, value, &t, NULL, 0);
}

static void wake_all(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* A sleeper counts itself, then looks at the word; the word is set, then the
 * sleepers are looked at: one of the two sees the other. */
void shm_wake(shm_step *step, _Atomic uint32_t *word)
{
    if (atomic_load(&step->sleepers))
        wake_all(word);
}

static void break_channel(const shm_comm *comm, uint32_t channel,
                          uint32_t cause)
{
    uint32_t none = 0;
    (void)atomic_compare_exchange_strong(
        shm_channel_broken(&comm->control, channel), &none,
        cause + 256 * comm->rank);
    for (uint32_t parity = 0; parity < 2; parity++) {
        shm_step *step = shm_step_of(&comm->control, channel, parity);
        wake_all(&step->open);
        wake_all(&step->closed);
    }
}

xray_status shm_break(shm_channel *channel, const shm_call *call,
                      uint32_t cause)
{
    break_channel(channel->comm, channel->number, cause);
    xray_status status =
        shm_report(channel, call, cause + 256 * channel->comm->rank);
    shm_trace_end(channel->comm, SHM_GAVE_UP);
    return status;
}

xray_status shm_unfit(shm_channel *channel, const shm_call *call)
{
    const shm_comm *comm = channel->comm;
    const shm_area *area = shm_area_of(&comm->control, comm->rank);
    xray_status status = shm_report(
        channel, call,
        atomic_load(shm_channel_broken(&comm->control, channel->number)));
    if (atomic_load(&area->now))
        shm_trace_end(comm, SHM_GAVE_UP);
    return status;
}

/* What a look around finds, or 0. */
static uint32_t look_around(const shm_channel *channel, uint64_t waited)
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
        if (atomic_load(&shm_area_of(&comm->control, rank)->left))
            return SHM_LEFT;
        if (shm_is_elsewhere(channel, rank, &other)) {
            /* It waits for this rank there, and will not get it. */
            break_channel(comm, other, SHM_DIFFERENT);
            return SHM_DIFFERENT;
        }
    }
    return comm->timeout && waited >= comm->timeout ? SHM_LATE : 0;
}

static int is_broken(const shm_channel *channel)
{
    return atomic_load(shm_channel_broken(&channel->comm->control,
                                          channel->number)) != 0;
}

static int spin(const shm_channel *channel, _Atomic uint32_t *word,
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

static uint64_t slice(const shm_comm *comm, uint64_t waited)
{
    uint64_t ns = waited > LONG ? LONG_SLICE : SLICE;
    if (comm->timeout && comm->timeout > waited && comm->timeout - waited < ns)
        ns = comm->timeout - waited;
    return ns;
}

xray_status shm_wait(shm_channel *channel, const shm_call *call, shm_step *step,
                     _Atomic uint32_t *word, uint32_t want)
{
    uint64_t start = shm_clock();
    if (spin(channel, word, want, start))
        return XRAY_OK;
    uint64_t waited = 0;
    for (;;) {
        if (is_broken(channel))
            return atomic_load(word) == want ? XRAY_OK
                                             : shm_unfit(channel, call);
        atomic_fetch_add(&step->sleepers, 1);
        uint32_t value = atomic_load(word);
        if (value != want && !is_broken(channel))
            sleep_on(word, value, slice(channel->comm, waited));
        atomic_fetch_sub(&step->sleepers, 1);
        if (atomic_load(word) == want)
            return XRAY_OK;
        uint64_t before = waited;
        waited = shm_clock() - start;
        if (waited / SLICE == before / SLICE &&
            !(channel->comm->timeout && waited >= channel->comm->timeout))
            continue; /* woken for nothing: no need to look around */
        uint32_t cause = is_broken(channel) ? 0 : look_around(channel, waited);
        /* Who is gone may have done its part before. */
        if (atomic_load(word) == want)
            return XRAY_OK;
        if (cause)
            return shm_break(channel, call, cause);
    }
}
