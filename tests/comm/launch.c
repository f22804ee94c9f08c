/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts the ranks of a scenario as processes or threads, and collects how each
 * of them ended.
 */
#define _GNU_SOURCE
#include "tests/comm/ranks.h"

#include "tests/testing.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define FAILED_MS 3000u /* for the other ranks, once one has failed */

extern char **environ;

const char ranks_exited = '.';

static meeting *map_meeting(int fd)
{
    void *p =
        mmap(NULL, sizeof(meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* argv: program, "--rank", scenario, rank, size, descriptor. */
void ranks_main(int argc, char **argv)
{
    if (argc != 6 || strcmp(argv[1], "--rank") != 0)
        return;
    static ranks_env e;
    e.rank = (uint32_t)strtoul(argv[3], NULL, 10);
    e.size = (uint32_t)strtoul(argv[4], NULL, 10);
    e.all = map_meeting((int)strtol(argv[5], NULL, 10));
    CHECK(&e, e.all);
    ranks_play(&e, argv[2]);
    ranks_close(&e);
    exit(0);
}

/* ---- processes ---------------------------------------------------------- */

static pid_t start_rank(const char *name, uint32_t rank, uint32_t size, int fd)
{
    char numbers[3][16];
    char program[] = "/proc/self/exe";
    char option[] = "--rank";
    char what[64];
    (void)snprintf(what, sizeof(what), "%s", name);
    (void)snprintf(numbers[0], 16, "%u", rank);
    (void)snprintf(numbers[1], 16, "%u", size);
    (void)snprintf(numbers[2], 16, "%d", fd);
    char *argv[] = { program,    option,     what, numbers[0],
                     numbers[1], numbers[2], NULL };
    pid_t pid = 0;
    assert_int_equal(posix_spawn(&pid, program, NULL, NULL, argv, environ), 0);
    return pid;
}

/* Updates how a process ended: '.', 'k' or '?'; 's': it is stopped; 0: it
 * runs. */
static void find_fate(pid_t pid, char *fate)
{
    int status = 0;
    if (*fate && *fate != 's')
        return;
    while (waitpid(pid, &status, WNOHANG | WUNTRACED | WCONTINUED) == pid) {
        if (WIFSTOPPED(status))
            *fate = 's';
        else if (WIFCONTINUED(status))
            *fate = 0;
        else if (WIFSIGNALED(status))
            *fate = WTERMSIG(status) == SIGKILL ? 'k' : '?';
        else
            *fate = WEXITSTATUS(status) == 0 ? '.' : '?';
    }
}

static int count_running(const pid_t *pids, uint32_t size, char *fates)
{
    int count = 0;
    for (uint32_t r = 0; r < size; r++)
        find_fate(pids[r], &fates[r]);
    for (uint32_t r = 0; r < size; r++)
        count += !fates[r];
    return count;
}

/* Once a rank has failed, the others need not wait for it to the end. One that
 * is stopped is so for good when no other runs that could continue it, which
 * the last look shows. */
static void await_fates(const pid_t *pids, uint32_t size, char *out)
{
    uint64_t until = ranks_ms() + RANKS_LIMIT_MS;
    while (ranks_ms() < until &&
           (count_running(pids, size, out) || count_running(pids, size, out))) {
        if (memchr(out, '?', size) && until > ranks_ms() + FAILED_MS)
            until = ranks_ms() + FAILED_MS;
        ranks_sleep_ms(2);
    }
    for (uint32_t r = 0; r < size; r++)
        out[r] = out[r] ? out[r] : '?';
}

void ranks_run(const char *name, uint32_t size, const char *fates)
{
    pid_t pids[MOST_RANKS];
    char got[MOST_RANKS + 1] = "";
    int fd = memfd_create("meeting", 0);
    assert_true(fd >= 0 && ftruncate(fd, sizeof(meeting)) == 0);
    for (uint32_t r = 0; r < size; r++)
        pids[r] = start_rank(name, r, size, fd);
    await_fates(pids, size, got);
    for (uint32_t r = 0; r < size; r++) {
        if (got[r] == 's' || got[r] == '?') {
            (void)kill(pids[r], SIGKILL);
            (void)waitpid(pids[r], NULL, 0);
        }
    }
    (void)close(fd);
    assert_string_equal(got, fates ? fates : &"........"[8 - size]);
}

/* ---- threads ------------------------------------------------------------ */

typedef struct thread_rank {
    ranks_env env;
    const char *name;
} thread_rank;

static void *run_thread_rank(void *arg)
{
    thread_rank *t = arg;
    ranks_play(&t->env, t->name);
    /* Within a process the memory of a device that is destroyed is unmapped for
     * a rank, too, that has yet to find its last call done. */
    ranks_meet(&t->env);
    ranks_close(&t->env);
    return NULL;
}

void ranks_run_threads(const char *name, uint32_t size)
{
    static thread_rank ranks[MOST_RANKS];
    pthread_t ids[MOST_RANKS];
    meeting *all = calloc(1, sizeof(*all));
    assert_non_null(all);
    for (uint32_t r = 0; r < size; r++) {
        ranks[r] = (thread_rank){ .name = name };
        ranks[r].env.rank = r;
        ranks[r].env.size = size;
        ranks[r].env.all = all;
        ranks[r].env.shares_process = 1;
        assert_int_equal(
            pthread_create(&ids[r], NULL, run_thread_rank, &ranks[r]), 0);
    }
    for (uint32_t r = 0; r < size; r++)
        (void)pthread_join(ids[r], NULL);
    free(all);
}
