/* SPDX-License-Identifier: Apache-2.0
 *
 * A pool of threads that run numbered tasks together with the caller's thread.
 */
#ifndef CPU_POOL_H
#define CPU_POOL_H

#include <stddef.h>
#include <stdint.h>

typedef struct cpu_pool cpu_pool;

/* Does task number `task`. `thread`, which is less than the pool's size,
 * selects the scratch. */
typedef void cpu_task(void *ctx, size_t task, size_t thread);

/* The size of a pool that is created with `threads`. */
uint32_t cpu_pool_size(uint32_t threads);

/* `threads` includes the caller; 0 means one per core. Returns 0, or an errno
 * if a thread cannot start. */
int cpu_pool_create(uint32_t threads, cpu_pool **out);
void cpu_pool_destroy(cpu_pool *pool); /* accepts NULL */
uint32_t cpu_pool_threads(const cpu_pool *pool);

/* Runs tasks 0 .. tasks - 1, each once, and returns when all are done. Any
 * thread may run any task, so no two tasks may write the same memory. */
void cpu_pool_run(cpu_pool *pool, size_t tasks, cpu_task *task, void *ctx);

#endif
