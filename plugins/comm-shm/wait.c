/* SPDX-License-Identifier: Apache-2.0
 *
 * Waits for other ranks: reads a word of the shared memory in a loop for a
 * short time, then sleeps on it (futex) for limited times, between which it
 * checks whether a rank died, destroyed its instance or makes another call.
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

/* Nanoseconds from one check of the other ranks to the next: so long may a
 * death stay unnoticed. */
#define SLICE 10000000u
#define LONG_SLICE 50000000u /* ns, instead of SLICE after LONG */
#define LONG 1000000000u     /* ns of waiting */
#define SPINS 32             /* readings of the word per reading of the clock */

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

/* No wake-up is lost: a waiting rank increments `sleepers` before it reads the
 * word, and this function is called after the word was set. So either that rank
 * reads the new value, or this function sees that it sleeps. */
void shm_wake_ranks(shm_round *round, _Atomic uint32_t *word)
{
    if (atomic_load(&round->sleepers))
        wake_sleepers(word);
}

/* Stores who broke the channel and why unless it is already broken, and wakes
 * all its ranks. */
void shm_mark_broken(const shm_comm *comm, uint32_t channel, uint32_t broken)
{
    uint32_t none = 0;
    (void)atomic_compare_exchange_strong(
        shm_channel_broken(&comm->control, channel), &none, broken);
    for (uint32_t parity = 0; parity < 2; parity++) {
        shm_round *round = shm_round_of(&comm->control, channel, parity);
        wake_sleepers(&round->open);
        wake_sleepers(&round->closed);
    }
}

xray_status shm_break_channel(shm_channel *channel, const shm_call *call,
                              uint32_t cause)
{
    uint32_t broken = shm_broken_here(channel->comm, cause);
    shm_mark_broken(channel->comm, channel->number, broken);
    xray_status status = shm_report_ranks(channel, call, broken);
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
    if (atomic_load(&area->now[0]))
        shm_trace_end(comm, SHM_GAVE_UP);
    return status;
}

/* Checks the other ranks. Returns the cause (SHM_*) for which the channel
 * cannot go on, or 0. With SHM_DIFFERENT, *out_other is the channel in which
 * another rank waits for this one. */
static uint32_t check_other_ranks(const shm_wait *wait, uint32_t *out_other)
{
    const shm_channel *channel = wait->channel;
    const shm_comm *comm = channel->comm;
    if (atomic_load(&comm->aborted))
        return SHM_ABORTED;
    for (uint32_t i = 0; i < channel->count; i++) {
        uint32_t rank = channel->ranks[i];
        if (rank == comm->rank)
            continue;
        if (shm_is_dead(comm, rank))
            return SHM_DEAD;
        if (atomic_load(&shm_rank_state_of(&comm->control, rank)->left))
            return SHM_LEFT;
        if (shm_is_elsewhere(wait, rank, out_other))
            return SHM_DIFFERENT;
    }
    return comm->timeout && wait->waited >= comm->timeout ? SHM_LATE : 0;
}

static int is_channel_broken(const shm_channel *channel)
{
    return atomic_load(shm_channel_broken(&channel->comm->control,
                                          channel->number)) != 0;
}

/* The word holds the low half of the number of its last call. */
int shm_wait_is_over(const shm_wait *wait)
{
    return atomic_load(wait->word) == (uint32_t)(wait->channel->calls + 1);
}

static int spin_on_word(const shm_wait *wait)
{
    do {
        for (int i = 0; i < SPINS; i++) {
            if (shm_wait_is_over(wait))
                return 1;
            _mm_pause();
        }
    } while (shm_clock() - wait->start < wait->channel->comm->spin);
    return 0;
}

static uint64_t choose_sleep_time(const shm_comm *comm, uint64_t waited)
{
    uint64_t ns = waited > LONG ? LONG_SLICE : SLICE;
    if (comm->timeout && comm->timeout > waited && comm->timeout - waited < ns)
        ns = comm->timeout - waited;
    return ns;
}

/* Sleeps until the word is set, or for the time. */
static void sleep_once(const shm_wait *wait, uint64_t ns)
{
    const shm_channel *channel = wait->channel;
    shm_round *round = shm_next_round(channel);
    atomic_fetch_add(&round->sleepers, 1);
    uint32_t value = atomic_load(wait->word);
    if (value != (uint32_t)(channel->calls + 1) && !is_channel_broken(channel))
        sleep_on_word(wait->word, value, ns);
    atomic_fetch_sub(&round->sleepers, 1);
}

/* Checks the other ranks once in each slice of the wait. */
static xray_status check_wait(shm_wait *wait)
{
    shm_channel *channel = wait->channel;
    const shm_comm *comm = channel->comm;
    uint64_t before = wait->waited;
    uint32_t other = 0;
    wait->waited = shm_clock() - wait->start;
    if (wait->waited / SLICE == before / SLICE &&
        !(comm->timeout && wait->waited >= comm->timeout))
        return XRAY_AGAIN; /* woken early: the slice has not passed yet */
    uint32_t cause =
        is_channel_broken(channel) ? 0 : check_other_ranks(wait, &other);
    /* Asked last, since a rank that is told earlier leaves or ends. */
    if (xr_stop_check(comm->calls, NULL) != XRAY_OK)
        cause = SHM_CANCELED;
    /* A rank that died, or that is in its next call already, may have set the
     * word before. Only if it did not is that call another one than this
     * rank's next. */
    if (shm_wait_is_over(wait))
        return XRAY_OK;
    if (cause == SHM_DIFFERENT) /* this rank will not arrive there */
        shm_mark_broken(comm, other, shm_broken_here(comm, SHM_DIFFERENT));
    return cause ? shm_break_channel(channel, wait->call, cause) : XRAY_AGAIN;
}

xray_status shm_wait_word(shm_wait *wait, uint64_t most)
{
    shm_channel *channel = wait->channel;
    if (!wait->start) {
        wait->start = shm_clock();
        if (spin_on_word(wait))
            return XRAY_OK;
    }
    xray_status status = XRAY_AGAIN;
    do {
        uint64_t ns = choose_sleep_time(channel->comm, wait->waited);
        if (is_channel_broken(channel))
            return shm_wait_is_over(wait)
                       ? XRAY_OK
                       : shm_report_broken(channel, wait->call);
        sleep_once(wait, most && most < ns ? most : ns);
        status = shm_wait_is_over(wait) ? XRAY_OK : check_wait(wait);
    } while (status == XRAY_AGAIN && !most);
    return status;
}
