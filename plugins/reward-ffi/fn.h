/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of the reward "ffi", and its pool of workers.
 */
#ifndef REWARD_FFI_FN_H
#define REWARD_FFI_FN_H

#include <xray/plugin.h>
#include <xray/reward.h>

#include "core/base/err.h"
#include "core/base/scores.h"

enum { FN_C, FN_PYTHON };
enum { FN_VERL, FN_TRL, FN_BATCH };
enum { FN_STOP, FN_SCORE };

typedef struct fn_config {
    int64_t language; /* FN_C or FN_PYTHON */
    const char *library;
    const char *symbol;
    const char *signature;
    const char *path;
    const char *name;
    const char *interpreter;
    int64_t call; /* FN_VERL, FN_TRL or FN_BATCH */
    int64_t workers;
    int64_t timeout; /* nanoseconds of one call */
    uint64_t memory; /* bytes of one worker, 0: no limit */
    int64_t on_error;
    double error_score;
} fn_config;

extern const xray_reward_ops fn_ops;

/* One call: a line of JSON with its samples. */
typedef struct fn_job {
    struct fn_job *next;
    uint64_t *ids;
    size_t count;
    xr_str line;
} fn_job;

void fn_job_free(fn_job *job);

/* One process. */
typedef struct fn_worker {
    int pid; /* 0: none */
    int fd;  /* requests and answers */
    int log; /* what it prints */
    int ready;
    fn_job *job;
    size_t sent;
    int64_t
        deadline; /* of its start, or of its job; meaningful if it has one */
    xr_str in;
    xr_str printed;
} fn_worker;

/* Starts a worker, which answers once when it is ready. Returns 0, or an
 * errno. */
int fn_worker_start(fn_worker *worker, const fn_config *config);
/* Ends the worker with every process of its group, and says how it ended. */
void fn_worker_end(fn_worker *worker, char *how, size_t cap);
/* Sends what is left of its job. Returns 0, or -1 if the worker is gone. */
int fn_worker_send(fn_worker *worker);
/* Reads what has arrived; -1 at its end. */
int fn_worker_receive(fn_worker *worker);
/* Logs the complete lines among what the worker has printed; 0 if nothing more
 * has arrived. */
int fn_worker_log(fn_worker *worker, const xray_host *host);

/* The workers, which a thread of their own serves. */
typedef struct fn_pool fn_pool;

/* Starts the workers and waits until one is ready. */
xray_status fn_pool_open(const xray_host *host, const fn_config *config,
                         xr_scores *scores, xr_err *err, fn_pool **out);
void fn_pool_close(fn_pool *pool);
int fn_pool_takes_ids(const fn_pool *pool);
/* Takes the job, whose samples were announced to the scores. */
void fn_pool_submit(fn_pool *pool, fn_job *job);

#endif
