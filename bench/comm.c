/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures collectives of comm-shm among processes of this machine, of comm-tcp
 * among processes in network namespaces, which stand for hosts, or of comm-mpi
 * among processes that mpirun starts.
 *
 *     bench-comm [ranks [megabytes ...]]
 *     bench-comm --tcp namespace,namespace... [ranks [megabytes ...]]
 *     bench-comm --mpi [ranks [megabytes ...]]
 *
 * The namespaces (names of `ip netns`) get equal numbers of neighbouring ranks;
 * "" stands for the one of the program: all ranks use the loopback.
 *
 * Prints one line per collective and size: the larger buffer's bytes over the
 * time from the first rank's start to the return of rank 0, median and best.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <xray/comm.h>
#include <xray/plugin.h>

#include "bench/host.h"

#define MOST_RANKS 64
#define TURNS 60
#define WARM 3
#define BY_MPI "by mpirun" /* no name of a namespace has a blank */

extern char **environ;

const xray_plugin *xray_plugin_query_device_cpu(uint32_t host_abi);
const xray_plugin *xray_plugin_query_comm_shm(uint32_t host_abi);
const xray_plugin *xray_plugin_query_comm_tcp(uint32_t host_abi);
const xray_plugin *xray_plugin_query_comm_mpi(uint32_t host_abi);

typedef struct shared_board {
    _Atomic uint32_t arrived;
    _Atomic uint32_t round;
    char offers[MOST_RANKS][256];
} shared_board;

typedef struct rank_env {
    const char *hosts; /* "-": comm-shm; BY_MPI; otherwise comm-tcp's
                        * namespaces */
    uint32_t rank;
    uint32_t size;
    shared_board *all;
    const xray_device_ops *dev;
    void *dev_self;
    const xray_comm_ops *comm;
    void *comm_self;
    xray_comm_group *world;
} rank_env;

static void wait_for_all_ranks(rank_env *e)
{
    uint32_t round = atomic_load(&e->all->round);
    if (atomic_fetch_add(&e->all->arrived, 1) + 1 == e->size) {
        atomic_store(&e->all->arrived, 0);
        atomic_fetch_add(&e->all->round, 1);
        return;
    }
    while (atomic_load(&e->all->round) == round) {
        struct timespec t = { 0, 1000000 };
        (void)nanosleep(&t, NULL);
    }
}

static xray_status gather_offers(void *ctx, const void *mine, uint64_t size,
                                 void *all)
{
    rank_env *e = ctx;
    if (size > sizeof(e->all->offers[0]))
        return XRAY_E_RANGE;
    memcpy(e->all->offers[e->rank], mine, size);
    wait_for_all_ranks(e);
    for (uint32_t r = 0; r < e->size; r++)
        memcpy((char *)all + r * size, e->all->offers[r], size);
    wait_for_all_ranks(e);
    return XRAY_OK;
}

static double read_clock(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct buffers {
    float *full;
    float *part;
    uint64_t count; /* elements of `full` */
} buffers;

static const char *const names[] = { "all_reduce", "reduce_scatter",
                                     "all_gather" };

static xray_status call_collective(rank_env *e, int what, const buffers *b)
{
    uint64_t part = b->count / e->size;
    switch (what) {
    case 0:
        return e->comm->all_reduce(e->world, NULL, b->full, b->count, XRAY_F32);
    case 1:
        return e->comm->reduce_scatter(e->world, NULL, b->full, b->part, part,
                                       XRAY_F32);
    default:
        return e->comm->all_gather(e->world, NULL, b->part, b->full, part,
                                   XRAY_F32);
    }
}

static int time_call(rank_env *e, int what, const buffers *b)
{
    double times[TURNS];
    double bytes = (double)b->count * sizeof(float);
    int turns = b->count > 8u << 20 ? TURNS / 4 : TURNS;
    for (int i = -WARM; i < turns; i++) {
        if (e->comm->all_reduce(e->world, NULL, b->part, 1, XRAY_F32) !=
            XRAY_OK)
            return 0;
        double start = read_clock();
        if (call_collective(e, what, b) != XRAY_OK)
            return 0;
        if (i >= 0)
            times[i] = read_clock() - start;
    }
    qsort(times, (size_t)turns, sizeof(*times), compare_doubles);
    if (e->rank == 0)
        printf("%-14s %2u ranks %4.0f MB  median %8.3f ms %7.2f GB/s  best "
               "%8.3f ms %7.2f GB/s\n",
               names[what], e->size, bytes / 0x1p20, 1e3 * times[turns / 2],
               1e-9 * bytes / times[turns / 2], 1e3 * times[0],
               1e-9 * bytes / times[0]);
    return 1;
}

static int allocate_floats(rank_env *e, uint64_t count, float **out)
{
    void *p = NULL;
    if (e->dev->alloc(e->dev_self, "bench", XRAY_TAG_WORKSPACE,
                      count * sizeof(float), &p) != XRAY_OK)
        return 0;
    *out = p;
    for (uint64_t i = 0; i < count; i++)
        (*out)[i] = 0; /* repeated sums stay finite */
    return 1;
}

static const xray_comm_ops *choose_comm(const rank_env *e)
{
    const xray_plugin *plugin =
        strcmp(e->hosts, "-") == 0      ? xray_plugin_query_comm_shm(XRAY_ABI)
        : strcmp(e->hosts, BY_MPI) == 0 ? xray_plugin_query_comm_mpi(XRAY_ABI)
                                        : xray_plugin_query_comm_tcp(XRAY_ABI);
    return plugin->components[0]->ops;
}

static int run_rank(rank_env *e, char **sizes, int count)
{
    static const xray_host host = { .header = XRAY_HEADER(xray_host),
                                    .fail = print_failure };
    uint32_t ranks[MOST_RANKS];
    e->dev = xray_plugin_query_device_cpu(XRAY_ABI)->components[0]->ops;
    e->comm = choose_comm(e);
    if (e->dev->create(&host, NULL, 1, &e->dev_self) != XRAY_OK)
        return 0;
    xray_comm_setup setup = { .header = XRAY_HEADER(xray_comm_setup),
                              .host = &host,
                              .device = e->dev,
                              .device_self = e->dev_self,
                              .rank = e->rank,
                              .size = e->size,
                              .timeout_ms = 60000,
                              .gather_ctx = e,
                              .gather = gather_offers };
    if (e->comm->create(&setup, NULL, &e->comm_self) != XRAY_OK)
        return 0;
    for (uint32_t r = 0; r < e->size; r++)
        ranks[r] = r;
    int good =
        e->comm->group(e->comm_self, ranks, e->size, &e->world) == XRAY_OK;
    for (int i = 0; good && i < count; i++) {
        uint64_t floats = strtoull(sizes[i], NULL, 10) << 18;
        buffers b = { .count = floats };
        good = allocate_floats(e, floats, &b.full) &&
               allocate_floats(e, floats / e->size, &b.part);
        for (int what = 0; good && what < 3; what++)
            good = time_call(e, what, &b);
        e->dev->free(e->dev_self, b.full);
        e->dev->free(e->dev_self, b.part);
    }
    e->comm->destroy(e->comm_self);
    e->dev->destroy(e->dev_self);
    return good;
}

/* Moves a rank to its network namespace. */
static int enter_host(const rank_env *e)
{
    char path[256];
    const char *at = e->hosts;
    uint32_t count = 1;
    if (strcmp(at, "-") == 0 || strcmp(at, BY_MPI) == 0 || !*at)
        return 1;
    for (const char *c = at; *c; c++)
        count += *c == ',';
    for (uint32_t skip = e->rank * count / e->size; skip; skip--)
        at = strchr(at, ',') + 1;
    (void)snprintf(path, sizeof(path), "/run/netns/%.*s", (int)strcspn(at, ","),
                   at);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) {
        (void)fprintf(stderr, "%s cannot be entered: %s\n", path,
                      strerror(errno));
        return 0;
    }
    (void)close(fd);
    return 1;
}

/* The number that mpirun gave this process. */
static const char *find_number(void)
{
    const char *open_mpi = getenv("OMPI_COMM_WORLD_RANK");
    const char *mpich = getenv("PMI_RANK");
    return open_mpi ? open_mpi : mpich ? mpich : "0";
}

/* Runs one rank. argv: program, "--rank", rank ("-": as mpirun says), ranks,
 * path of the board, hosts, sizes. */
static int run_as_rank(int argc, char **argv)
{
    const char *rank = strcmp(argv[2], "-") == 0 ? find_number() : argv[2];
    rank_env e = { .hosts = argv[5],
                   .rank = (uint32_t)strtoul(rank, NULL, 10),
                   .size = (uint32_t)strtoul(argv[3], NULL, 10) };
    int fd = open(argv[4], O_RDWR | O_CLOEXEC);
    void *all = mmap(NULL, sizeof(shared_board), PROT_READ | PROT_WRITE,
                     MAP_SHARED, fd, 0);
    if (all == MAP_FAILED)
        return 1;
    e.all = all;
    return enter_host(&e) && run_rank(&e, argv + 6, argc - 6) ? 0 : 1;
}

/* Lets Open MPI start more processes than there are cores, also as root; they
 * sleep by themselves. */
static void set_mpi_options(void)
{
    (void)setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
    (void)setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    (void)setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);
    (void)setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);
    (void)setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);
}

static int wait_for_end(pid_t pid)
{
    int status = 0;
    return waitpid(pid, &status, 0) != pid || status != 0;
}

/* argv is that of a rank. */
static int start_by_mpirun(char *size, char **argv)
{
    char program[512] = "";
    char mpirun[] = "mpirun";
    char option[] = "-n";
    char *all[3 + 6 + 16 + 1] = { mpirun, option, size, program };
    pid_t pid;
    if (readlink("/proc/self/exe", program, sizeof(program) - 1) < 0)
        return 1;
    for (int i = 1; argv[i]; i++)
        all[3 + i] = argv[i];
    set_mpi_options();
    int error = posix_spawnp(&pid, mpirun, NULL, NULL, all, environ);
    if (error) {
        (void)fprintf(stderr, "mpirun: %s\n", strerror(error));
        return 1;
    }
    return wait_for_end(pid);
}

static int start_all_ranks(char *hosts, uint32_t size, char **sizes, int count,
                           int fd)
{
    pid_t pids[MOST_RANKS];
    int bad = 0;
    char number[16] = "-";
    char ranks[16];
    char board[64];
    char program[] = "/proc/self/exe";
    char option[] = "--rank";
    char *argv[6 + 16 + 1] = { program, option, number, ranks, board, hosts };
    (void)snprintf(ranks, sizeof(ranks), "%u", size);
    (void)snprintf(board, sizeof(board), "/proc/%d/fd/%d", (int)getpid(), fd);
    for (int i = 0; i < count && i < 16; i++)
        argv[6 + i] = sizes[i];
    if (strcmp(hosts, BY_MPI) == 0)
        return start_by_mpirun(ranks, argv);
    for (uint32_t r = 0; r < size; r++) {
        (void)snprintf(number, sizeof(number), "%u", r);
        if (posix_spawn(&pids[r], program, NULL, NULL, argv, environ) != 0)
            return 1;
    }
    for (uint32_t r = 0; r < size; r++)
        bad |= wait_for_end(pids[r]);
    return bad;
}

int main(int argc, char **argv)
{
    char four[] = "4";
    char sixteen[] = "16";
    char more[] = "64";
    char shm[] = "-";
    char mpi[] = BY_MPI;
    char *usual[] = { four, sixteen, more };
    char *hosts = shm;
    if (argc > 6 && strcmp(argv[1], "--rank") == 0)
        return run_as_rank(argc, argv);
    if (argc > 2 && strcmp(argv[1], "--tcp") == 0) {
        hosts = argv[2];
        argc -= 2;
        argv += 2;
    } else if (argc > 1 && strcmp(argv[1], "--mpi") == 0) {
        hosts = mpi;
        argc -= 1;
        argv += 1;
    }
    uint32_t size = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 2;
    int count = argc > 2 ? argc - 2 : 3;
    if (size < 1 || size > MOST_RANKS || count > 16) {
        (void)fprintf(stderr, "usage: bench-comm [--tcp namespaces | --mpi] "
                              "[ranks [megabytes ...]]\n");
        return 2;
    }
    int fd = memfd_create("bench", 0);
    if (fd < 0 || ftruncate(fd, sizeof(shared_board)) != 0)
        return 1;
    return start_all_ranks(hosts, size, argc > 2 ? argv + 2 : usual, count, fd);
}
