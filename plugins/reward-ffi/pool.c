/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread that serves the workers: it gives each idle one a job, passes its
 * answer to the scores, and replaces a worker that ends or takes too long.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "core/base/json.h"
#include "core/base/system_error.h"
#include "plugins/reward-ffi/fn.h"

/* The least time that a worker has to load its file: imports may take longer
 * than a call. */
#define LOAD_NS 60000000000

struct fn_pool {
    const xray_host *host;
    const fn_config *config;
    xr_scores *scores;
    fn_worker *workers;
    struct pollfd *polls; /* the wake-up, then channel and log of each worker */
    pthread_t thread;
    int threaded;
    int wake;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t changed;
    fn_job *first;
    fn_job **end;
    int ready; /* a worker has answered */
    int takes_ids;
    int closing;
    char broken[512]; /* why no worker can be started, or "" */
};

void fn_job_free(fn_job *job)
{
    if (!job)
        return;
    xr_str_free(&job->line);
    free(job->ids);
    free(job);
}

static int64_t read_clock(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- jobs --------------------------------------------------------------- */

/* Every sample of the job has the same reason for its failure. */
static void fail_job(fn_pool *pool, fn_job *job, const char *reason)
{
    for (size_t i = 0; i < job->count; i++)
        xr_scores_fail(pool->scores, job->ids[i], "%s", reason);
    fn_job_free(job);
}

static fn_job *take_job(fn_pool *pool)
{
    (void)pthread_mutex_lock(&pool->lock);
    fn_job *job = pool->first;
    if (job) {
        pool->first = job->next;
        if (!pool->first)
            pool->end = &pool->first;
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return job;
}

/* No worker can be started, so no job will be done. */
static void break_pool(fn_pool *pool, const char *reason)
{
    (void)pthread_mutex_lock(&pool->lock);
    if (!*pool->broken)
        (void)snprintf(pool->broken, sizeof(pool->broken), "%s", reason);
    (void)pthread_cond_broadcast(&pool->changed);
    (void)pthread_mutex_unlock(&pool->lock);
}

static void start_worker(fn_pool *pool, fn_worker *worker)
{
    int64_t limit = pool->config->timeout;
    int bad = fn_worker_start(worker, pool->config);
    worker->deadline = read_clock() + (limit > LOAD_NS ? limit : LOAD_NS);
    if (bad) {
        char reason[256];
        (void)snprintf(reason, sizeof(reason), "a worker cannot be started: %s",
                       XR_SYSTEM_ERROR(bad));
        break_pool(pool, reason);
    }
}

/* Ends a worker, and logs the rest of what it has printed. */
static void end_worker(fn_pool *pool, fn_worker *worker, char *how, size_t cap)
{
    fn_worker_end(worker, how, cap);
    while (worker->log >= 0 && fn_worker_log(worker, pool->host))
        ;
    if (worker->log >= 0) /* what it has started may still print */
        (void)close(worker->log);
    worker->log = -1;
    xr_str_clear(&worker->printed);
}

/* Ends a worker, whose job fails, and starts another one in its place. One that
 * ends before it is ready would end again. `how` NULL: the worker says it. */
static void replace_worker(fn_pool *pool, fn_worker *worker, const char *how)
{
    char end[128] = "";
    char reason[256];
    fn_job *job = worker->job;
    int ready = worker->ready;
    end_worker(pool, worker, how ? NULL : end, sizeof(end));
    (void)snprintf(reason, sizeof(reason), "the function %s%s", how ? how : end,
                   ready ? "" : " while its file was loaded");
    worker->job = NULL;
    if (job)
        fail_job(pool, job, reason);
    if (ready)
        start_worker(pool, worker);
    else
        break_pool(pool, reason);
}

/* ---- answers ------------------------------------------------------------ */

static void greet_worker(fn_pool *pool, fn_worker *worker, const cJSON *answer)
{
    const cJSON *error = xr_json_get(answer, "error");
    const cJSON *ids = xr_json_get(answer, "ids");
    if (!cJSON_IsNumber(xr_json_get(answer, "ready"))) {
        break_pool(pool, cJSON_IsString(error) ? error->valuestring
                                               : "a worker said nonsense");
        end_worker(pool, worker, NULL, 0);
        return;
    }
    worker->ready = 1;
    (void)pthread_mutex_lock(&pool->lock);
    pool->ready = 1;
    pool->takes_ids = cJSON_IsNumber(ids) && ids->valueint;
    (void)pthread_cond_broadcast(&pool->changed);
    (void)pthread_mutex_unlock(&pool->lock);
}

static void pass_answers(fn_pool *pool, fn_job *job, cJSON *answers)
{
    const cJSON *error = xr_json_get(answers, "error");
    if (!cJSON_IsArray(answers) ||
        (size_t)cJSON_GetArraySize(answers) != job->count) {
        fail_job(pool, job,
                 cJSON_IsString(error) ? error->valuestring
                                       : "the answer is not that of a worker");
        return;
    }
    for (size_t i = 0; i < job->count; i++) {
        cJSON *one = cJSON_DetachItemFromArray(answers, 0);
        const cJSON *reason = xr_json_get(one, "error");
        if (cJSON_IsString(reason)) {
            xr_scores_fail(pool->scores, job->ids[i], "%s",
                           reason->valuestring);
            cJSON_Delete(one);
        } else {
            xr_scores_put(pool->scores, job->ids[i], one);
        }
    }
    fn_job_free(job);
}

/* Handles the answer that is complete. */
static void take_answer(fn_pool *pool, fn_worker *worker, size_t size)
{
    cJSON *answer = cJSON_ParseWithLength(worker->in.data, size);
    fn_job *job = worker->job;
    if (!worker->ready) {
        greet_worker(pool, worker, answer);
    } else if (job) {
        worker->job = NULL;
        pass_answers(pool, job, answer);
    }
    cJSON_Delete(answer);
    xr_str_clear(&worker->in);
}

static void read_worker(fn_pool *pool, fn_worker *worker)
{
    int ended = fn_worker_receive(worker) || worker->in.failed;
    const char *line =
        worker->in.data ? memchr(worker->in.data, '\n', worker->in.size) : NULL;
    if (line)
        take_answer(pool, worker, (size_t)(line - worker->in.data));
    if (worker->pid && ended)
        replace_worker(pool, worker, NULL);
}

/* ---- the thread --------------------------------------------------------- */

static void serve_worker(fn_pool *pool, fn_worker *worker,
                         const struct pollfd *polls)
{
    if (worker->log >= 0 && polls[1].revents)
        (void)fn_worker_log(worker, pool->host);
    if (worker->pid && (polls[0].revents & ~POLLOUT))
        read_worker(pool, worker);
    if (worker->pid && worker->job && (polls[0].revents & POLLOUT) &&
        fn_worker_send(worker))
        replace_worker(pool, worker, NULL);
    if (worker->pid && (worker->job || !worker->ready) &&
        read_clock() >= worker->deadline) {
        char how[64];
        (void)snprintf(how, sizeof(how), "did not return within %g s (timeout)",
                       1e-9 * (double)pool->config->timeout);
        replace_worker(pool, worker, how);
    }
}

static void give_job(fn_pool *pool, fn_worker *worker)
{
    if (!worker->pid || !worker->ready || worker->job)
        return;
    worker->job = take_job(pool);
    worker->sent = 0;
    worker->deadline = read_clock() + pool->config->timeout;
    if (worker->job && fn_worker_send(worker))
        replace_worker(pool, worker, NULL);
}

/* Fills what to wait for; returns the milliseconds until the next deadline, or
 * -1. */
static int prepare_wait(fn_pool *pool)
{
    int64_t least = -1;
    int64_t now = read_clock();
    pool->polls[0] = (struct pollfd){ .fd = pool->wake, .events = POLLIN };
    for (int64_t w = 0; w < pool->config->workers; w++) {
        const fn_worker *worker = &pool->workers[w];
        struct pollfd *polls = pool->polls + 1 + 2 * w;
        int sending = worker->job && worker->sent < worker->job->line.size;
        polls[0] = (struct pollfd){ .fd = worker->pid ? worker->fd : -1,
                                    .events = (short)(sending ? POLLIN | POLLOUT
                                                              : POLLIN) };
        polls[1] = (struct pollfd){ .fd = worker->log, .events = POLLIN };
        if (!worker->pid || (worker->ready && !worker->job))
            continue;
        int64_t left = worker->deadline > now ? worker->deadline - now : 0;
        if (least < 0 || left < least)
            least = left;
    }
    return least < 0
               ? -1
               : (int)(least / 1000000 < 60000 ? least / 1000000 + 1 : 60000);
}

/* Fails the jobs that nobody is left to do. */
static void drop_jobs(fn_pool *pool)
{
    fn_job *job;
    for (int64_t w = 0; w < pool->config->workers; w++)
        if (pool->workers[w].pid)
            return;
    while ((job = take_job(pool)))
        fail_job(pool, job, pool->broken);
}

static int read_closing(fn_pool *pool)
{
    (void)pthread_mutex_lock(&pool->lock);
    int closing = pool->closing;
    (void)pthread_mutex_unlock(&pool->lock);
    return closing;
}

static void *serve_pool(void *data)
{
    fn_pool *pool = data;
    for (int64_t w = 0; w < pool->config->workers; w++)
        start_worker(pool, &pool->workers[w]);
    while (!read_closing(pool)) {
        uint64_t count;
        int limit = prepare_wait(pool);
        if (poll(pool->polls, (nfds_t)(1 + 2 * pool->config->workers), limit) <
            0)
            continue;
        if (pool->polls[0].revents &&
            read(pool->wake, &count, sizeof(count)) < 0)
            continue;
        for (int64_t w = 0; w < pool->config->workers; w++)
            serve_worker(pool, &pool->workers[w], pool->polls + 1 + 2 * w);
        for (int64_t w = 0; w < pool->config->workers; w++)
            give_job(pool, &pool->workers[w]);
        drop_jobs(pool);
    }
    for (int64_t w = 0; w < pool->config->workers; w++)
        if (pool->workers[w].pid)
            end_worker(pool, &pool->workers[w], NULL, 0);
    return NULL;
}

static void wake_thread(fn_pool *pool)
{
    const uint64_t one = 1;
    while (write(pool->wake, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

/* ---- the control thread ------------------------------------------------- */

static int start_thread(fn_pool *pool)
{
    sigset_t all;
    sigset_t old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int bad = pthread_create(&pool->thread, NULL, serve_pool, pool);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    pool->threaded = !bad;
    return bad;
}

static xray_status wait_until_ready(fn_pool *pool, xr_err *err)
{
    (void)pthread_mutex_lock(&pool->lock);
    while (!pool->ready && !*pool->broken)
        (void)pthread_cond_wait(&pool->changed, &pool->lock);
    int ready = pool->ready;
    (void)pthread_mutex_unlock(&pool->lock);
    return ready ? XRAY_OK : xr_fail(err, XRAY_E_CONFIG, "%s", pool->broken);
}

xray_status fn_pool_open(const xray_host *host, const fn_config *config,
                         xr_scores *scores, xr_err *err, fn_pool **out)
{
    size_t count = (size_t)config->workers;
    fn_pool *pool = xr_calloc(1, sizeof(*pool));
    if (!pool)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    *pool = (fn_pool){ .host = host,
                       .config = config,
                       .scores = scores,
                       .lock = PTHREAD_MUTEX_INITIALIZER,
                       .changed = PTHREAD_COND_INITIALIZER };
    pool->end = &pool->first;
    pool->workers = xr_calloc(count, sizeof(*pool->workers));
    pool->polls = xr_calloc(1 + 2 * count, sizeof(*pool->polls));
    pool->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    for (size_t w = 0; pool->workers && w < count; w++)
        pool->workers[w].log = -1;
    int bad = !pool->workers || !pool->polls ? ENOMEM
              : pool->wake < 0               ? errno
                                             : start_thread(pool);
    xray_status status =
        bad ? xr_fail(err, XRAY_E_NOMEM, "the workers cannot be served: %s",
                      XR_SYSTEM_ERROR(bad))
            : wait_until_ready(pool, err);
    if (status == XRAY_OK)
        *out = pool;
    else
        fn_pool_close(pool);
    return status;
}

void fn_pool_close(fn_pool *pool)
{
    if (!pool)
        return;
    if (pool->threaded) {
        (void)pthread_mutex_lock(&pool->lock);
        pool->closing = 1;
        (void)pthread_mutex_unlock(&pool->lock);
        wake_thread(pool);
        (void)pthread_join(pool->thread, NULL);
    }
    for (int64_t w = 0; pool->workers && w < pool->config->workers; w++) {
        fn_worker *worker = &pool->workers[w];
        fn_job_free(worker->job);
        xr_str_free(&worker->in);
        xr_str_free(&worker->printed);
    }
    fn_job *job;
    while ((job = take_job(pool)))
        fn_job_free(job);
    if (pool->wake >= 0)
        (void)close(pool->wake);
    (void)pthread_mutex_destroy(&pool->lock);
    (void)pthread_cond_destroy(&pool->changed);
    free(pool->workers);
    free(pool->polls);
    free(pool);
}

int fn_pool_takes_ids(const fn_pool *pool)
{
    return pool->takes_ids;
}

void fn_pool_submit(fn_pool *pool, fn_job *job)
{
    (void)pthread_mutex_lock(&pool->lock);
    job->next = NULL;
    *pool->end = job;
    pool->end = &job->next;
    (void)pthread_mutex_unlock(&pool->lock);
    wake_thread(pool);
}
