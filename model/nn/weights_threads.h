/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that share numbered tasks while weights are filled.
 */
#ifndef XM_WEIGHTS_THREADS_H
#define XM_WEIGHTS_THREADS_H

#include <stdint.h>

typedef struct xm_threads xm_threads;

/* `thread` is below the number of threads; no two tasks have the same at a
 * time. */
typedef void xm_task(void *ctx, uint64_t task, uint32_t thread);

/* Creates a set of `count` threads, the caller's being one of them, or of fewer
 * if the system refuses more. NULL: out of memory. */
xm_threads *xm_threads_create(uint32_t count);
void xm_threads_destroy(xm_threads *threads); /* accepts NULL */

/* Runs tasks 0 to tasks - 1, which begin in this order, and waits for all. */
void xm_threads_run(xm_threads *threads, uint64_t tasks, xm_task *task,
                    void *ctx);

#endif
