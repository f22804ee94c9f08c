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
#include <time.h>

#define LIMIT_MS 100000u

extern char **environ;

uint64_t ranks_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

void ranks_sleep_ms(uint64_t ms)
{
    struct timespec t = { (time_t)(ms / 1000), (long)(ms % 1000) * 1000000 };
    (void)nanosleep(&t, NULL);
}

void ranks_die(const ranks_env *e, const char *file, int line, const char *text)
{
    (void)fprintf(stderr, "%s:%d: rank %u of %u: %s (last error: %s)\n", file,
                  line, e->rank, e->size, text, e->text);
    _exit(3);
}

int ranks_said(const ranks_env *e, const char *part)
{
    return strstr(e->text, part) != NULL;
}

/* ---- one rank ----------------------------------------------------------- */

static xray_status record_failure(const xray_host *host, xray_status code,
                                  const char *where, const char *msg)
{
    ranks_env *e = host->host_data;
    char inner[2048];
    (void)snprintf(inner, sizeof(inner), "%.2000s", e->text);
    (void)snprintf(e->text, sizeof(e->text), "%s: %.1000s%s%s", where, msg,
                   *inner ? " <- " : "", inner);
    return code;
}

void ranks_meet(ranks_env *e)
{
    uint32_t round = atomic_load(&e->all->round);
    if (atomic_fetch_add(&e->all->arrived, 1) + 1 == e->size) {
        atomic_store(&e->all->arrived, 0);
        atomic_fetch_add(&e->all->round, 1);
        return;
    }
    uint64_t start_rank = ranks_ms();
    while (atomic_load(&e->all->round) == round) {
        ranks_sleep_ms(1);
        CHECK(e, ranks_ms() - start_rank < LIMIT_MS);
    }
}

static xray_status gather_offers(void *ctx, const void *mine, uint64_t size,
                                 void *all)
{
    ranks_env *e = ctx;
    CHECK(e, size <= sizeof(e->all->offers[0]));
    memcpy(e->all->offers[e->rank], mine, size);
    ranks_meet(e);
    for (uint32_t r = 0; r < e->size; r++)
        memcpy((char *)all + r * size, e->all->offers[r], size);
    ranks_meet(e);
    return XRAY_OK;
}

xray_comm_setup ranks_setup(ranks_env *e, uint64_t timeout_ms)
{
    xray_comm_setup setup = { .header = XRAY_HEADER(xray_comm_setup),
                              .host = &e->host,
                              .device = e->dev,
                              .device_self = e->dev_self,
                              .rank = e->rank,
                              .size = e->size,
                              .timeout_ms = timeout_ms,
                              .trace = &e->all->traces[e->rank].own,
                              .traces = &e->all->traces[0].own,
                              .trace_stride = sizeof(e->all->traces[0]),
                              .gather_ctx = e,
                              .gather = gather_offers };
    return setup;
}

static uint32_t ask_stopping(const xray_call_service *service)
{
    const ranks_env *e = service->host_data;
    return e->stop_ms && ranks_ms() >= e->stop_ms;
}

static const void *find_service(const xray_host *host, const char *id)
{
    const ranks_env *e = host->host_data;
    return strcmp(id, XRAY_SERVICE_CALLS) == 0 ? &e->calls : NULL;
}

static void open_rank(ranks_env *e, uint64_t timeout_ms)
{
    static const xray_host plain = { .header = XRAY_HEADER(xray_host),
                                     .fail = record_failure,
                                     .service = find_service };
    uint32_t ranks[MOST_RANKS];
    e->host = plain;
    e->host.host_data = e;
    e->calls = (xray_call_service){ .header = XRAY_HEADER(xray_call_service),
                                    .host_data = e,
                                    .stopping = ask_stopping };
    ranks_parts(e);
    CHECK_OK(e, e->dev->create(&e->host, NULL, 1, &e->dev_self));
    xray_comm_setup setup = ranks_setup(e, timeout_ms);
    CHECK_OK(e, e->comm->create(&setup, e->comm_config, &e->comm_self));
    for (uint32_t r = 0; r < e->size; r++)
        ranks[r] = r;
    CHECK_OK(e, e->comm->group(e->comm_self, ranks, e->size, &e->world));
}

static void run_scenario(ranks_env *e, const char *name)
{
    const scenario *s = ranks_scenarios;
    while (s->name && strcmp(s->name, name) != 0)
        s++;
    CHECK(e, s->name);
    open_rank(e, s->timeout_ms);
    s->run(e);
}

static void close_rank(ranks_env *e)
{
    e->comm->destroy(e->comm_self);
    e->dev->destroy(e->dev_self);
}

void *ranks_alloc(ranks_env *e, uint64_t bytes)
{
    void *p = NULL;
    CHECK_OK(e,
             e->dev->alloc(e->dev_self, "test", XRAY_TAG_WORKSPACE, bytes, &p));
    return p;
}

xray_status ranks_barrier(ranks_env *e, xray_comm_group *group)
{
    if (!e->one)
        e->one = ranks_alloc(e, sizeof(*e->one));
    *e->one = 0;
    xray_status status = e->comm->all_reduce(group, NULL, e->one, 1, XRAY_F32);
    return status == XRAY_OK ? e->dev->sync(e->dev_self, NULL) : status;
}

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
    run_scenario(&e, argv[2]);
    close_rank(&e);
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

/* Waits for a process and returns how it ended: '.', 'k', 's' or '?'. */
static char wait_for_fate(pid_t pid, uint64_t until)
{
    int status = 0;
    while (ranks_ms() < until) {
        if (waitpid(pid, &status, WNOHANG | WUNTRACED) == pid) {
            if (WIFSTOPPED(status)) {
                return 's';
            }
            if (WIFSIGNALED(status))
                return WTERMSIG(status) == SIGKILL ? 'k' : '?';
            return WEXITSTATUS(status) == 0 ? '.' : '?';
        }
        ranks_sleep_ms(2);
    }
    return '?';
}

void ranks_run(const char *name, uint32_t size, const char *fates)
{
    pid_t pids[MOST_RANKS];
    char got[MOST_RANKS + 1] = "";
    int fd = memfd_create("meeting", 0);
    assert_true(fd >= 0 && ftruncate(fd, sizeof(meeting)) == 0);
    for (uint32_t r = 0; r < size; r++)
        pids[r] = start_rank(name, r, size, fd);
    uint64_t until = ranks_ms() + LIMIT_MS;
    for (uint32_t r = 0; r < size; r++)
        got[r] = wait_for_fate(pids[r], until);
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
    run_scenario(&t->env, t->name);
    /* Within a process the memory of a device that is destroyed is unmapped for
     * a rank, too, that has yet to find its last call done. */
    ranks_meet(&t->env);
    close_rank(&t->env);
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
        assert_int_equal(
            pthread_create(&ids[r], NULL, run_thread_rank, &ranks[r]), 0);
    }
    for (uint32_t r = 0; r < size; r++)
        (void)pthread_join(ids[r], NULL);
    free(all);
}
