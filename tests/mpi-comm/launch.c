/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts ranks by mpirun, for the suites of tests/comm. Its start takes longer
 * than a scenario, so the processes of one serve all scenarios after which they
 * live on: each waits for a scenario, takes its part of it as a Workhorse
 * would, with MPI initialized before, and waits for the next one. The number of
 * a rank is not that of MPI.
 */
#define _GNU_SOURCE
#include "tests/mpi-comm/launch.h"

#include "tests/testing.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "core/base/process.h"
#include "plugins/mpi/mpi_api.h"

extern char **environ;

const char ranks_exited = 'k'; /* it has not done its part */

/* The processes and the test share this. */
typedef struct stage {
    meeting all;
    _Atomic uint32_t number; /* of the scenario, from 1 */
    _Atomic uint32_t over;   /* 1: no other one comes */
    uint32_t size;           /* ranks of the scenario */
    char name[64];
    _Atomic uint32_t done[MOST_RANKS]; /* number of the last scenario */
    _Atomic uint32_t pid[MOST_RANKS];
} stage;

typedef struct troupe {
    stage *stage;
    int fd;
    pid_t mpirun; /* 0: it has ended */
    int status;
} troupe;

static void skip_suite(const char *why)
{
    (void)printf("skipped: %s\n", why);
    exit(77);
}

/* ---- one rank -------------------------------------------------------------
 */

static stage *map_stage(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *p =
        mmap(NULL, sizeof(stage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* As runtime-mpi does when a Workhorse starts. */
static void enter_world(mpi_api *api, int *out_rank, int *out_size)
{
    const xray_host host = { .header = XRAY_HEADER(xray_host) };
    int level = 0;
    if (mpi_api_load(&host, "test", "", api) != XRAY_OK ||
        api->init_thread(NULL, NULL, api->serialized, &level) != MPI_API_OK ||
        api->comm_rank(api->world, out_rank) != MPI_API_OK ||
        api->comm_size(api->world, out_size) != MPI_API_OK) {
        (void)fprintf(stderr, "MPI cannot be initialized\n");
        _exit(4);
    }
    /* MPI knows its number now, whatever its engine calls that. */
    (void)unsetenv("OMPI_COMM_WORLD_RANK");
    (void)unsetenv("PMIX_RANK");
    (void)unsetenv("PMI_RANK");
}

static void play_scenarios(stage *s, uint32_t rank)
{
    for (uint32_t number = 1; !atomic_load(&s->over); number++) {
        while (atomic_load(&s->number) < number && !atomic_load(&s->over))
            ranks_sleep_ms(1);
        if (atomic_load(&s->number) < number)
            return;
        ranks_env *e = calloc(1, sizeof(*e));
        *e = (ranks_env){ .rank = rank, .size = s->size, .all = &s->all };
        if (rank < s->size) {
            ranks_play(e, s->name);
            ranks_close(e);
        }
        free(e);
        atomic_store(&s->done[rank], number);
    }
}

/* Plays as a process of which MPI knows nothing yet. */
static void play_late(stage *s)
{
    const char *open_mpi = getenv("OMPI_COMM_WORLD_RANK");
    const char *number = open_mpi ? open_mpi : getenv("PMI_RANK");
    if (!number)
        _exit(4);
    uint32_t rank = (uint32_t)strtoul(number, NULL, 10);
    atomic_store(&s->pid[rank], (uint32_t)getpid());
    play_scenarios(s, rank);
    exit(0);
}

/* argv: program, "--stage" or "--late", path of the shared memory. */
void ranks_main(int argc, char **argv)
{
    mpi_api api;
    int process = 0;
    int size = 0;
    if (argc != 3)
        return;
    stage *s = map_stage(argv[2]);
    if (!s)
        _exit(4);
    if (strcmp(argv[1], "--late") == 0)
        play_late(s);
    enter_world(&api, &process, &size);
    if (size > MOST_RANKS)
        _exit(4);
    uint32_t rank = (uint32_t)(size - 1 - process);
    atomic_store(&s->pid[rank], (uint32_t)getpid());
    play_scenarios(s, rank);
    (void)api.finalize();
    exit(0);
}

/* ---- starting -------------------------------------------------------------
 */

/* The program that starts ranks: that of the environment, or the first one. */
static const char *find_mpirun(void)
{
    static char path[512];
    static const char *const usual[] = { "mpirun.openmpi", "mpirun" };
    const char *wanted = getenv("XRAY_TEST_MPIRUN");
    const char *const *names = wanted ? &wanted : usual;
    for (int i = 0; i < (wanted ? 1 : 2); i++) {
        char folders[4096];
        char *rest = NULL;
        (void)snprintf(folders, sizeof(folders), "%s", getenv("PATH"));
        for (char *f = strtok_r(folders, ":", &rest); f;
             f = strtok_r(NULL, ":", &rest)) {
            (void)snprintf(path, sizeof(path), "%s/%s", f, names[i]);
            if (access(path, X_OK) == 0)
                return path;
        }
    }
    return NULL;
}

static int is_open_mpi(const char *mpirun)
{
    char command[600];
    char line[128] = "";
    (void)snprintf(command, sizeof(command), "%s --version 2>&1", mpirun);
    FILE *f = popen(command, "re"); // NOLINT(cert-env33-c)
    if (f && !fgets(line, sizeof(line), f))
        *line = '\0';
    if (f)
        (void)pclose(f);
    return strstr(line, "Open MPI") || strstr(line, "OpenRTE");
}

static const char *need_mpirun(void)
{
    const char *mpirun = find_mpirun();
    if (SEES_THREADS_ONLY)
        skip_suite("ThreadSanitizer does not know what MPI does");
    if (!mpirun)
        skip_suite("there is no mpirun");
    /* Those are of MPI; and mpirun as root is meant. */
    (void)setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    (void)setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    (void)setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    return mpirun;
}

pid_t launch_mpirun(uint32_t size, char *const *command)
{
    static char *const open_mpi[] = { "--oversubscribe",
                                      "--bind-to",
                                      "none",
                                      "--mca",
                                      "mpi_yield_when_idle",
                                      "0",
                                      "--enable-recovery",
                                      "--mca",
                                      "plm",
                                      "isolated",
                                      "--mca",
                                      "btl_vader_single_copy_mechanism",
                                      "none",
                                      NULL };
    const char *mpirun = need_mpirun();
    char path[512];
    char number[16];
    char *argv[32] = { path, "-n", number };
    uint32_t n = 3;
    pid_t pid = 0;
    posix_spawnattr_t group;
    (void)snprintf(path, sizeof(path), "%s", mpirun);
    (void)snprintf(number, sizeof(number), "%u", size);
    int is_open = is_open_mpi(mpirun);
    for (uint32_t i = 0; is_open && open_mpi[i]; i++)
        argv[n++] = open_mpi[i];
    for (uint32_t i = 0; command[i]; i++)
        argv[n++] = command[i];
    (void)posix_spawnattr_init(&group);
    (void)posix_spawnattr_setflags(&group, POSIX_SPAWN_SETPGROUP);
    assert_int_equal(posix_spawn(&pid, path, NULL, &group, argv, environ), 0);
    (void)posix_spawnattr_destroy(&group);
    return pid;
}

static troupe start_troupe(uint32_t size, const char *how)
{
    troupe t = { .fd = memfd_create("stage", 0) };
    char program[512] = "";
    char shared[64];
    char option[16];
    char *command[] = { program, option, shared, NULL };
    (void)snprintf(option, sizeof(option), "%s", how);
    assert_true(t.fd >= 0 && ftruncate(t.fd, sizeof(stage)) == 0);
    assert_true(readlink("/proc/self/exe", program, sizeof(program) - 1) > 0);
    (void)snprintf(shared, sizeof(shared), "/proc/%d/fd/%d", (int)getpid(),
                   t.fd);
    t.stage = map_stage(shared);
    assert_non_null(t.stage);
    t.mpirun = launch_mpirun(size, command);
    return t;
}

/* ---- scenarios ------------------------------------------------------------
 */

static int has_ended(troupe *t)
{
    if (t->mpirun && waitpid(t->mpirun, &t->status, WNOHANG) == t->mpirun)
        t->mpirun = 0;
    return !t->mpirun;
}

/* Ends all processes: they have `ms` to end by themselves. */
static void dismiss_troupe(troupe *t, uint64_t ms)
{
    uint64_t until = ranks_ms() + ms;
    atomic_store(&t->stage->over, 1);
    while (!has_ended(t) && ranks_ms() < until)
        ranks_sleep_ms(5);
    if (t->mpirun) {
        (void)kill(-t->mpirun, SIGKILL);
        (void)waitpid(t->mpirun, &t->status, 0);
    }
    for (uint32_t r = 0; r < MOST_RANKS; r++)
        if (atomic_load(&t->stage->pid[r]) &&
            xr_process_state(atomic_load(&t->stage->pid[r])))
            (void)kill((pid_t)atomic_load(&t->stage->pid[r]), SIGKILL);
    (void)munmap(t->stage, sizeof(*t->stage));
    (void)close(t->fd);
    t->stage = NULL;
}

static uint32_t begin_scenario(stage *s, const char *name, uint32_t size)
{
    memset(&s->all, 0, sizeof(s->all));
    (void)snprintf(s->name, sizeof(s->name), "%s", name);
    s->size = size;
    return atomic_fetch_add(&s->number, 1) + 1;
}

/* How a rank ended, as in ranks_run; 0 while it has not. */
static char find_fate(const stage *s, uint32_t rank, uint32_t number)
{
    uint32_t pid = atomic_load(&s->pid[rank]);
    char state = pid ? xr_process_state(pid) : 'R';
    if (atomic_load(&s->done[rank]) == number)
        return '.';
    if (state == 'T')
        return 's';
    return !state || state == 'Z' ? 'k' : 0;
}

static void await_fates(troupe *t, uint32_t size, uint32_t number, char *out)
{
    uint64_t until = ranks_ms() + RANKS_LIMIT_MS;
    for (uint32_t r = 0; r < size; r++) {
        while (!(out[r] = find_fate(t->stage, r, number)) && !has_ended(t) &&
               ranks_ms() < until)
            ranks_sleep_ms(1);
        out[r] = out[r] ? out[r] : '?';
    }
}

static troupe regulars; /* serve all scenarios in which no process ends */

static void dismiss_regulars(void)
{
    if (regulars.stage)
        dismiss_troupe(&regulars, 20000);
}

void ranks_run(const char *name, uint32_t size, const char *fates)
{
    char got[MOST_RANKS + 1] = "";
    troupe once;
    troupe *t = &regulars;
    /* MPICH ends all processes when one was killed; Open MPI can be told not
     * to. */
    if (fates && strchr(fates, 'k') && !is_open_mpi(need_mpirun()))
        skip();
    if (fates) {
        once = start_troupe(size, "--stage");
        t = &once;
    } else if (!regulars.stage) {
        regulars = start_troupe(MOST_RANKS, "--stage");
        (void)atexit(dismiss_regulars);
    }
    uint32_t number = begin_scenario(t->stage, name, size);
    await_fates(t, fates ? size : MOST_RANKS, number, got);
    got[size] = '\0';
    const char *want = fates ? fates : &"........"[8 - size];
    /* MPI would wait for the dead, and ranks that failed serve nobody. */
    if (fates || strcmp(got, want) != 0)
        dismiss_troupe(t, 0);
    assert_string_equal(got, want);
}

void launch_late(const char *name, uint32_t size)
{
    char got[MOST_RANKS + 1] = "";
    troupe t = start_troupe(size, "--late");
    uint32_t number = begin_scenario(t.stage, name, size);
    await_fates(&t, size, number, got);
    dismiss_troupe(&t, 20000);
    assert_string_equal(got, &"........"[8 - size]);
    assert_int_equal(t.status, 0);
}

/* Ranks of MPI are processes. */
void ranks_run_threads(const char *name, uint32_t size)
{
    (void)name;
    (void)size;
    skip();
}
