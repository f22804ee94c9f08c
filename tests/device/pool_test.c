/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that a pool runs each task of a job once, on threads that it has, and
 * that threads which sleep take part again.
 */
#include <dirent.h>
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
        cpu_pool *pool = NULL;
        assert_int_equal(cpu_pool_create(threads, &pool), 0);
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

/* The state of a thread of this process, as the system says; 0: it has none. */
static char find_state(const char *thread)
{
    char path[300];
    char line[256];
    (void)snprintf(path, sizeof(path), "/proc/self/task/%s/stat", thread);
    FILE *file = fopen(path, "r");
    const char *got = file ? fgets(line, sizeof(line), file) : NULL;
    const char *end = got ? strrchr(line, ')') : NULL;
    if (file)
        (void)fclose(file);
    return end && end[1] == ' ' ? end[2] : '\0';
}

/* Counts the threads of this process that do not sleep. */
static uint32_t count_awake(void)
{
    uint32_t awake = 0;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir))
        awake += e->d_name[0] != '.' && find_state(e->d_name) != 'S';
    (void)closedir(dir);
    return awake;
}

/* A worker waits for a job busily for some time before it sleeps. */
static void sleeping_threads_take_part_again(void **state)
{
    cpu_pool *pool = NULL;
    assert_int_equal(cpu_pool_create(2, &pool), 0);
    (void)state;
    assert_non_null(pool);
    for (uint32_t i = 0; i < 2; i++) {
        meeting m = { 0, 0 };
        for (time_t end = time(NULL) + 60; count_awake() > 1;) {
            assert_true(time(NULL) < end);
            (void)nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        }
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
