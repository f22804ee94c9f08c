/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that share numbered tasks. Each job wakes all of them, and ends when
 * the last has found no further task.
 */
#include "model/nn/weights_threads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/base/str.h"

#define MAX_THREADS 16

typedef struct worker {
    xm_threads *all;
    pthread_t thread;
    uint32_t index;
} worker;

struct xm_threads {
    pthread_mutex_t lock; /* guards the members up to `stop` */
    pthread_cond_t wake;
    pthread_cond_t idle;
    uint64_t job;    /* number of jobs so far */
    uint32_t active; /* workers that have not ended the job */
    int stop;
    _Atomic uint64_t next;
    uint64_t tasks; /* these do not change during a job */
    xm_task *task;
    void *ctx;
    uint32_t count; /* with the caller's thread */
    worker workers[MAX_THREADS];
};

static void run_tasks(xm_threads *t, uint32_t thread)
{
    for (;;) {
        uint64_t i = atomic_fetch_add(&t->next, 1);
        if (i >= t->tasks)
            return;
        t->task(t->ctx, i, thread);
    }
}

static void *run_worker(void *arg)
{
    const worker *me = arg;
    xm_threads *t = me->all;
    uint64_t seen = 0;
    (void)pthread_mutex_lock(&t->lock);
    for (;;) {
        while (t->job == seen && !t->stop)
            (void)pthread_cond_wait(&t->wake, &t->lock);
        if (t->stop)
            break;
        seen = t->job;
        (void)pthread_mutex_unlock(&t->lock);
        run_tasks(t, me->index);
        (void)pthread_mutex_lock(&t->lock);
        if (--t->active == 0)
            (void)pthread_cond_signal(&t->idle);
    }
    (void)pthread_mutex_unlock(&t->lock);
    return NULL;
}

void xm_threads_run(xm_threads *t, uint64_t tasks, xm_task *task, void *ctx)
{
    if (tasks <= 1 || t->count == 1) {
        for (uint64_t i = 0; i < tasks; i++)
            task(ctx, i, 0);
        return;
    }
    (void)pthread_mutex_lock(&t->lock);
    t->tasks = tasks;
    t->task = task;
    t->ctx = ctx;
    atomic_store(&t->next, 0);
    t->active = t->count - 1;
    t->job++;
    (void)pthread_cond_broadcast(&t->wake);
    (void)pthread_mutex_unlock(&t->lock);
    run_tasks(t, 0);
    (void)pthread_mutex_lock(&t->lock);
    while (t->active > 0)
        (void)pthread_cond_wait(&t->idle, &t->lock);
    (void)pthread_mutex_unlock(&t->lock);
}

xm_threads *xm_threads_create(uint32_t count)
{
    xm_threads *t = xr_calloc(1, sizeof *t);
    if (!t)
        return NULL;
    (void)pthread_mutex_init(&t->lock, NULL);
    (void)pthread_cond_init(&t->wake, NULL);
    (void)pthread_cond_init(&t->idle, NULL);
    t->count = 1;
    for (uint32_t i = 1; i < count && i < MAX_THREADS; i++) {
        worker *w = &t->workers[i];
        *w = (worker){ .all = t, .index = i };
        if (pthread_create(&w->thread, NULL, run_worker, w) != 0)
            break;
        t->count++;
    }
    return t;
}

void xm_threads_destroy(xm_threads *t)
{
    if (!t)
        return;
    (void)pthread_mutex_lock(&t->lock);
    t->stop = 1;
    (void)pthread_cond_broadcast(&t->wake);
    (void)pthread_mutex_unlock(&t->lock);
    for (uint32_t i = 1; i < t->count; i++)
        (void)pthread_join(t->workers[i].thread, NULL);
    (void)pthread_cond_destroy(&t->idle);
    (void)pthread_cond_destroy(&t->wake);
    (void)pthread_mutex_destroy(&t->lock);
    free(t);
}
