/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that a pool runs each task of a job once, on threads that it has, and
 * that threads which sleep take part again.
 */
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "plugins/device-cpu/pool.h"
#include "tests/testing.h"

#define TASKS_MOST 300

typedef struct job {
    _Atomic uint32_t runs[TASKS_MOST];
    _Atomic uint32_t beyond; /* tasks on threads that the pool does not have */
    uint32_t threads;
} job;

static void count_run(void *ctx, size_t task, size_t thread)
{
    job *j = ctx;
    (void)atomic_fetch_add(&j->runs[task], 1);
    if (thread >= j->threads)
        (void)atomic_fetch_add(&j->beyond, 1);
}

static void each_task_runs_once(void **state)
{
    static job j;
    (void)state;
    for (uint32_t threads = 1; threads <= 4; threads++) {
        cpu_pool *pool = cpu_pool_create(threads);
        assert_non_null(pool);
        assert_int_equal(cpu_pool_threads(pool), threads);
        for (size_t tasks = 0; tasks <= TASKS_MOST; tasks += 1 + tasks / 4) {
            memset(&j, 0, sizeof(j));
            j.threads = threads;
            cpu_pool_run(pool, tasks, count_run, &j);
            for (size_t i = 0; i < TASKS_MOST; i++)
                assert_int_equal(j.runs[i], i < tasks);
            assert_int_equal(j.beyond, 0);
        }
        cpu_pool_destroy(pool);
    }
    cpu_pool_destroy(NULL);
}

/* Two tasks that wait for each other need two threads. */
typedef struct meeting {
    _Atomic uint32_t here;
    _Atomic uint32_t missed;
} meeting;

static void meet_other(void *ctx, size_t task, size_t thread)
{
    meeting *m = ctx;
    time_t end = time(NULL) + 30;
    (void)task;
    (void)thread;
    (void)atomic_fetch_add(&m->here, 1);
    while (atomic_load(&m->here) < 2 && time(NULL) < end)
        (void)sched_yield();
    if (atomic_load(&m->here) < 2)
        (void)atomic_fetch_add(&m->missed, 1);
}

/* A worker waits for a job busily for less than a millisecond. */
static void sleeping_threads_take_part_again(void **state)
{
    cpu_pool *pool = cpu_pool_create(2);
    (void)state;
    assert_non_null(pool);
    for (uint32_t i = 0; i < 3; i++) {
        meeting m = { 0, 0 };
        (void)nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
        cpu_pool_run(pool, 2, meet_other, &m);
        assert_int_equal(m.missed, 0);
    }
    cpu_pool_destroy(pool);
}

static void a_pool_has_the_size_that_was_asked_for(void **state)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    (void)state;
    assert_int_equal(cpu_pool_size(1), 1);
    assert_int_equal(cpu_pool_size(7), 7);
    assert_int_equal(cpu_pool_size(256), 256);
    assert_int_equal(cpu_pool_size(257), 256);
    assert_int_equal(cpu_pool_size(0), cores < 256 ? cores : 256);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_task_runs_once),
        cmocka_unit_test(sleeping_threads_take_part_again),
        cmocka_unit_test(a_pool_has_the_size_that_was_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
