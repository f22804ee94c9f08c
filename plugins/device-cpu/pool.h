/* SPDX-License-Identifier: Apache-2.0
 *
 * A pool of threads that share numbered tasks. The caller works too.
 */
#ifndef CPU_POOL_H
#define CPU_POOL_H

#include <stddef.h>
#include <stdint.h>

typedef struct cpu_pool cpu_pool;

/* Does task number `task`; `thread` < the pool's size tells scratch apart. */
typedef void cpu_task(void *ctx, size_t task, size_t thread);

/* `threads` counts the caller; 0 for one a core. NULL if none can start. */
cpu_pool *cpu_pool_create(uint32_t threads);
void cpu_pool_destroy(cpu_pool *pool); /* accepts NULL */
uint32_t cpu_pool_threads(const cpu_pool *pool);

/* Runs tasks 0 .. tasks - 1, each once, and returns when all are done. Which
 * thread does which is not fixed: a task must write what no other writes. */
void cpu_pool_run(cpu_pool *pool, size_t tasks, cpu_task *task, void *ctx);

#endif
