/* SPDX-License-Identifier: Apache-2.0
 *
 * A pool of threads that run numbered tasks.
 *
 * A job is published by one store of `state`, which holds a generation, an open
 * bit and the number of workers inside. Workers join while the job is open. The
 * caller closes it when no task is left and waits only for the workers inside,
 * so a worker that sleeps or is not scheduled never delays a job.
 */
#include "plugins/device-cpu/pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include <immintrin.h>

#define STATE_OPEN 1u
#define STATE_WORKER 2u /* one worker inside */
#define STATE_INSIDE 0xFFFEu
#define STATE_JOB 0x10000u /* one generation */
/* Tens of microseconds: longer than the pause between most jobs. */
#define SPINS 2000
/* Some tenths of a millisecond, in which other processes may use the core.
 * Waking a sleeping thread costs a virtual machine nearly as much. */
#define SPINS_AND_YIELDS 20000
#define MAX_THREADS 256

typedef struct pool_worker {
    cpu_pool *pool;
    pthread_t thread;
    size_t index;
} pool_worker;

struct cpu_pool {
    _Alignas(64) _Atomic uint64_t state;
    _Alignas(64) _Atomic size_t next;
    _Alignas(64) size_t tasks;
    cpu_task *task;
    void *ctx;
    _Atomic uint32_t sleepers;
    _Atomic uint32_t stop;
    uint32_t threads;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pool_worker workers[MAX_THREADS];
};

static void run_tasks(cpu_pool *pool, size_t thread)
{
    size_t tasks = pool->tasks;
    for (;;) {
        size_t i =
            atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (i >= tasks)
            return;
        pool->task(pool->ctx, i, thread);
    }
}

/* Joins the job that `state` describes; returns 0 if that job is closed or
 * another has replaced it. */
static int join_job(cpu_pool *pool, uint64_t *state)
{
    while (*state & STATE_OPEN)
        if (atomic_compare_exchange_weak(&pool->state, state,
                                         *state + STATE_WORKER))
            return 1;
    return 0;
}

/* Waits until the generation is not `seen`, spinning before it sleeps. */
static uint64_t wait_for_job(cpu_pool *pool, uint64_t seen)
{
    for (int i = 0; i < SPINS_AND_YIELDS; i++) {
        uint64_t state = atomic_load(&pool->state);
        if (state / STATE_JOB != seen || atomic_load(&pool->stop))
            return state;
        if (i >= SPINS && i % 64 == 0)
            (void)sched_yield();
        else
            _mm_pause();
    }
    (void)pthread_mutex_lock(&pool->lock);
    (void)atomic_fetch_add(&pool->sleepers, 1);
    uint64_t state = atomic_load(&pool->state);
    while (state / STATE_JOB == seen && !atomic_load(&pool->stop)) {
        (void)pthread_cond_wait(&pool->wake, &pool->lock);
        state = atomic_load(&pool->state);
    }
    (void)atomic_fetch_sub(&pool->sleepers, 1);
    (void)pthread_mutex_unlock(&pool->lock);
    return state;
}

static void *run_worker(void *arg)
{
    pool_worker *me = arg;
    cpu_pool *pool = me->pool;
    uint64_t seen = 0;
    for (;;) {
        uint64_t state = wait_for_job(pool, seen);
        if (atomic_load(&pool->stop))
            return NULL;
        int in = join_job(pool, &state);
        seen = state / STATE_JOB;
        if (!in)
            continue;
        run_tasks(pool, me->index);
        (void)atomic_fetch_sub(&pool->state, STATE_WORKER);
    }
}

static void wake_sleepers(cpu_pool *pool)
{
    if (atomic_load(&pool->sleepers) == 0)
        return;
    (void)pthread_mutex_lock(&pool->lock);
    (void)pthread_cond_broadcast(&pool->wake);
    (void)pthread_mutex_unlock(&pool->lock);
}

void cpu_pool_run(cpu_pool *pool, size_t tasks, cpu_task *task, void *ctx)
{
    if (tasks <= 1 || pool->threads == 1) {
        for (size_t i = 0; i < tasks; i++)
            task(ctx, i, 0);
        return;
    }
    pool->tasks = tasks;
    pool->task = task;
    pool->ctx = ctx;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    uint64_t job = (atomic_load(&pool->state) / STATE_JOB + 1) * STATE_JOB;
    atomic_store(&pool->state, job | STATE_OPEN);
    wake_sleepers(pool);
    run_tasks(pool, 0);
    uint64_t state = atomic_fetch_and(&pool->state, ~(uint64_t)STATE_OPEN);
    for (int i = 0; state & STATE_INSIDE; i++) {
        if (i < SPINS)
            _mm_pause();
        else
            (void)sched_yield();
        state = atomic_load(&pool->state);
    }
}

uint32_t cpu_pool_threads(const cpu_pool *pool)
{
    return pool->threads;
}

uint32_t cpu_pool_size(uint32_t threads)
{
    if (threads == 0) {
        long cores = sysconf(_SC_NPROCESSORS_ONLN);
        threads = cores > 0 ? (uint32_t)cores : 1;
    }
    return threads > MAX_THREADS ? MAX_THREADS : threads;
}

int cpu_pool_create(uint32_t threads, cpu_pool **out)
{
    threads = cpu_pool_size(threads);
    cpu_pool *pool = aligned_alloc(64, (sizeof(*pool) + 63) / 64 * 64);
    if (!pool)
        return ENOMEM;
    *pool = (cpu_pool){ .threads = 1 };
    int bad = pthread_mutex_init(&pool->lock, NULL);
    if (bad)
        goto free_pool;
    bad = pthread_cond_init(&pool->wake, NULL);
    if (bad)
        goto destroy_lock;
    for (uint32_t i = 1; i < threads; i++) {
        pool_worker *w = &pool->workers[i];
        *w = (pool_worker){ .pool = pool, .index = i };
        bad = pthread_create(&w->thread, NULL, run_worker, w);
        if (bad) {
            cpu_pool_destroy(pool);
            return bad;
        }
        pool->threads++;
    }
    *out = pool;
    return 0;

destroy_lock:
    (void)pthread_mutex_destroy(&pool->lock);
free_pool:
    free(pool);
    return bad;
}

void cpu_pool_destroy(cpu_pool *pool)
{
    if (!pool)
        return;
    atomic_store(&pool->stop, 1);
    (void)pthread_mutex_lock(&pool->lock);
    (void)pthread_cond_broadcast(&pool->wake);
    (void)pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 1; i < pool->threads; i++)
        (void)pthread_join(pool->workers[i].thread, NULL);
    (void)pthread_cond_destroy(&pool->wake);
    (void)pthread_mutex_destroy(&pool->lock);
    free(pool);
}
