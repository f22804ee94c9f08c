/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what becomes of each kind of library of MPI, and of processes whose
 * library, world, messages or driver fail, on a false library (false_mpi.c).
 * A process has one library of MPI, so each case is a process of its own, which
 * this program starts as itself.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "plugins/runtime-mpi/launcher.h"
#include "tests/testing.h"

extern char **environ;

/* ---- what the processes do --------------------------------------------- */

int __real_gethostname(char *out, size_t size);
int __wrap_gethostname(char *out, size_t size);
int __wrap_gethostname(char *out, size_t size)
{
    const char *name = getenv("FALSE_HOST");
    if (!name)
        return __real_gethostname(out, size);
    (void)snprintf(out, size, "%s", name);
    return 0;
}

static xray_status say_failure(const xray_host *host, xray_status code,
                               const char *where, const char *text)
{
    (void)host;
    (void)printf("%s: %s\n", where, text);
    return code;
}

static uint32_t asked; /* whether the process shall stop */

static uint32_t ask_stopping(const xray_call_service *service)
{
    (void)service;
    return ++asked > 2 && getenv("FALSE_STOPS") != NULL;
}

static const xray_call_service calls = { .header =
                                             XRAY_HEADER(xray_call_service),
                                         .stopping = ask_stopping };

static const void *give_service(const xray_host *host, const char *id)
{
    (void)host;
    return strcmp(id, XRAY_SERVICE_CALLS) == 0 ? &calls : NULL;
}

static const xray_host host = { .header = XRAY_HEADER(xray_host),
                                .fail = say_failure,
                                .service = give_service };

static int load_library(const char *library)
{
    mpi_api api;
    char text[13];
    if (mpi_api_load(&host, "here", library, &api) != XRAY_OK)
        return 1;
    (void)printf(
        "world %llx null %llx byte %llx errors %llx ignore %llx "
        "levels %d %d\n",
        (unsigned long long)api.world, (unsigned long long)api.request_null,
        (unsigned long long)api.byte, (unsigned long long)api.errors_return,
        (unsigned long long)api.status_ignore, api.serialized, api.multiple);
    mpi_api_describe(&api, text, sizeof(text));
    (void)printf("it is %s\n", text);
    (void)mpi_api_fail(&host, "here", &api, "a message", 17);
    (void)mpi_api_fail(&host, "here", &api, "a message", 18);
    /* The library that is there is taken, whatever is asked for. */
    return mpi_api_load(&host, "here", "/none/libmpi.so", &api) != XRAY_OK;
}

static int join_world(const char *library, const char *address)
{
    const mpi_config config = { library };
    xray_launch_entry entry = { .header = XRAY_HEADER(xray_launch_entry) };
    xray_status status = mpi_ops.enter(&host, &config, address, &entry);
    (void)printf("status %d, asked %u times\n", status, asked);
    if (status == XRAY_OK)
        (void)printf("a %s at %s with %s\n",
                     entry.kind == XRAY_ENTRY_WORKHORSE ? "Workhorse"
                                                        : "driver",
                     entry.address, entry.token);
    return status != XRAY_OK;
}

/* The driver, whose child is another process of this program. */
static int drive_world(const char *library)
{
    const mpi_config config = { library };
    const xray_launch_place places[2] = { { .name = "actor" } };
    static const uint32_t counts[] = { 1, 3, 2 };
    xray_launch_setup setup = { .header = XRAY_HEADER(xray_launch_setup),
                                .host = &host,
                                .places = places,
                                .place_stride = sizeof(places[0]) };
    xray_launch_entry entry = { .header = XRAY_HEADER(xray_launch_entry) };
    void *self = NULL;
    if (mpi_ops.enter(&host, &config, NULL, &entry) != XRAY_OK ||
        entry.kind != XRAY_ENTRY_DRIVER)
        return 1;
    for (size_t i = 0; i < 3 && !self; i++) {
        setup.count = counts[i];
        (void)printf("status %d\n", mpi_ops.create(&setup, &config, &self));
    }
    if (self)
        mpi_ops.destroy(self);
    return mpi_ops.enter(&host, &config, NULL, &entry) == XRAY_E_STATE ? 0 : 1;
}

/* ---- starting them ----------------------------------------------------- */

static const char *const usual[] = { "libmpi.so.40",    "libmpi.so.12",
                                     "libmpich.so.12",  "libmpi_abi.so.1",
                                     "libmpi_abi.so.0", "libmpi.so" };
static char folder[64];
static char log_path[96];
static char text[8192]; /* of the last process */
static struct {
    pid_t pid;
    int out;
} child;

static void set_number(const char *name, int number)
{
    char digits[16];
    (void)snprintf(digits, sizeof(digits), "%d", number);
    assert_int_equal(setenv(name, digits, 1), 0);
}

/* Rank RANK of SIZE, as its mpirun says and the library sees it. */
static void set_world(int rank, int size)
{
    set_number("PMI_RANK", rank);
    set_number("PMI_SIZE", size);
    set_number("FALSE_MPI_RANK", rank);
    set_number("FALSE_MPI_SIZE", size);
}

/* argv[0] is this program. `input`: its standard input, or -1. */
static void start_child(const char *const *argv, int input)
{
    posix_spawn_file_actions_t files;
    char *words[8] = { NULL };
    int ends[2];
    for (size_t i = 0; argv[i]; i++)
        memcpy(&words[i], &argv[i], sizeof(words[i]));
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(posix_spawn_file_actions_init(&files), 0);
    (void)posix_spawn_file_actions_adddup2(&files, ends[1], 1);
    if (input >= 0)
        (void)posix_spawn_file_actions_adddup2(&files, input, 0);
    assert_int_equal(
        posix_spawn(&child.pid, "/proc/self/exe", &files, NULL, words, environ),
        0);
    (void)posix_spawn_file_actions_destroy(&files);
    (void)close(ends[1]);
    child.out = ends[0];
}

/* Its exit status; `text` is what it printed. */
static int end_child(void)
{
    size_t used = 0;
    ssize_t n = 0;
    int status = 0;
    while ((n = read(child.out, text + used, sizeof(text) - 1 - used)) > 0)
        used += (size_t)n;
    text[used] = '\0';
    (void)close(child.out);
    assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int run_child(const char *what, const char *library)
{
    const char *const argv[] = { "it", what, library, NULL };
    start_child(argv, -1);
    return end_child();
}

#define EXPECT(part)                                  \
    do {                                              \
        if (!strstr(text, part))                      \
            fail_msg("no \"%s\" in: %s", part, text); \
    } while (0)

/* 1 if the false library was called so. */
static int was_called(const char *line)
{
    char one[128];
    int found = 0;
    FILE *f = fopen(log_path, "re");
    while (f && !found && fgets(one, sizeof(one), f))
        found = strncmp(one, line, strlen(line)) == 0;
    if (f)
        (void)fclose(f);
    return found;
}

static void *read_file(const char *path, void *out, size_t size)
{
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    assert_int_equal(fread(out, 1, size, f), size);
    (void)fclose(f);
    return out;
}

/* The library gives the process these messages. */
static void give_messages(const void *data, size_t size)
{
    char path[96];
    (void)snprintf(path, sizeof(path), "%s/gives", folder);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    (void)fclose(f);
    assert_int_equal(setenv("FALSE_MPI_GIVES", path, 1), 0);
}

/* ---- kinds of library -------------------------------------------------- */

static void libraries_are_told_by_what_they_export(void **state)
{
    static const char *const mpich =
        "world 44000000 null 2c000000 byte 4c00010d errors 54000001 ignore 1 "
        "levels 2 3\n";
    static const char *const standard =
        "world 101 null 180 byte 247 errors 143 ignore 0 levels 2048 4096\n";
    (void)state;
    assert_int_equal(run_child("--load", FALSE_MPI), 0);
    EXPECT(mpich);
    EXPECT("it is False MPI 9\n");
    (void)setenv("FALSE_MPI_MAJOR", "1", 1);
    assert_int_equal(run_child("--load", FALSE_MPI), 0);
    EXPECT(standard);
    (void)setenv("FALSE_MPI_MAJOR", "0", 1);
    assert_int_equal(run_child("--load", FALSE_MPI), 0);
    EXPECT(mpich);
    (void)setenv("FALSE_MPI_MAJOR", "1", 1);
    (void)setenv("FALSE_MPI_FAILS", "abi", 1);
    assert_int_equal(run_child("--load", FALSE_MPI), 0);
    EXPECT(mpich);
    (void)setenv("FALSE_MPI_FAILS", "version", 1);
    assert_int_equal(run_child("--load", FALSE_MPI), 0);
    EXPECT("it is unknown MPI\n");
}

static void reasons_are_one_line(void **state)
{
    (void)state;
    assert_int_equal(run_child("--load", FALSE_MPI), 0);
    EXPECT("here: MPI refused a message: error 17\n");
    EXPECT("here: MPI refused a message: error 18\n");
    (void)setenv("FALSE_MPI_TEXT", "Lost it, error stack:\nPMPI_Send: 3\n", 1);
    assert_int_equal(run_child("--load", FALSE_MPI), 0);
    EXPECT("here: MPI refused a message: Lost it\n");
    (void)setenv("FALSE_MPI_TEXT", "MPI_ERR: gone\r\nand more", 1);
    assert_int_equal(run_child("--load", FALSE_MPI), 0);
    EXPECT("here: MPI refused a message: MPI_ERR: gone\n");
}

static void libraries_that_do_not_serve_are_refused(void **state)
{
    (void)state;
    assert_int_equal(run_child("--load", FALSE_MPI_OLD), 1);
    EXPECT(FALSE_MPI_OLD
           " has no MPI_Cancel: it is no library of MPI 3 or later");
    assert_int_equal(run_child("--load", FALSE_MPI_HALF), 1);
    EXPECT(" has no ompi_request_null: it is no library of MPI 3 or later");
    assert_int_equal(run_child("--load", "/none/libmpi.so"), 1);
    EXPECT("here: the library of MPI cannot be loaded: /none/libmpi.so: ");
    (void)setenv("XRAY_MPI_LIBRARY", FALSE_MPI_OLD, 1);
    assert_int_equal(run_child("--load", ""), 1);
    EXPECT(" has no MPI_Cancel");
    assert_int_equal(run_child("--load", FALSE_MPI),
                     0); /* which goes before it */
}

static void put_library(const char *name, const char *file)
{
    char path[96];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    (void)unlink(path);
    assert_int_equal(symlink(file, path), 0);
}

/* First that of the mpirun which started the process, if it can be loaded. */
static void usual_libraries_are_those_of_the_mpirun(void **state)
{
    (void)state;
    put_library(usual[0], FALSE_MPI_OLD);
    put_library(usual[1], FALSE_MPI);
    (void)setenv("LD_LIBRARY_PATH", folder, 1);
    assert_int_equal(run_child("--load", ""), 1);
    EXPECT("libmpi.so.40 has no MPI_Cancel");
    (void)setenv("PMI_RANK", "0", 1);
    assert_int_equal(run_child("--load", ""), 0);
    (void)setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    assert_int_equal(run_child("--load", ""), 1);
    for (size_t i = 1; i <= 6; i++) {
        put_library(usual[i - 1], "/dev/null");
        if (i < 6)
            put_library(usual[i], FALSE_MPI);
        assert_int_equal(run_child("--load", ""), i == 6);
        (void)unsetenv("OMPI_COMM_WORLD_SIZE");
        assert_int_equal(run_child("--load", ""), i == 6);
        (void)setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    }
    EXPECT("here: no library of MPI was found (libmpi.so.40, libmpi.so.12, ");
}

/* ---- joining ----------------------------------------------------------- */

static void worlds_that_do_not_fit_are_refused(void **state)
{
    static const struct {
        const char *name;
        const char *value;
        const char *says;
    } cases[] = {
        { "FALSE_MPI_SIZE", "1",
          "3 processes were started, but the library of MPI sees 1 (False MPI "
          "9): it is not that of this mpirun or srun" },
        { "FALSE_MPI_RANK", "2", "but the library of MPI sees 3 (False" },
        { "FALSE_MPI_LEVEL", "1",
          "the library of MPI (False MPI 9) serves one thread only" },
        { "FALSE_MPI_FAILS", "init", "MPI refused to begin: error 17" },
        { "FALSE_MPI_FAILS", "rank", "MPI refused its world: error 17" },
        { "FALSE_MPI_FAILS", "size", "MPI refused its world: error 17" },
        { "FALSE_MPI_FAILS", "errors", "MPI refused its world: error 17" },
        { "FALSE_MPI_FAILS", "irecv", "MPI refused a message: error 17" },
        { "FALSE_MPI_FAILS", "isend", "MPI refused a message: error 17" },
        { "FALSE_MPI_FAILS", "test", "MPI refused a message: error 17" },
    };
    (void)state;
    (void)setenv("FALSE_STOPS", "1", 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        set_world(1, 3);
        (void)unsetenv("FALSE_MPI_FAILS");
        (void)setenv(cases[i].name, cases[i].value, 1);
        (void)unlink(log_path);
        assert_int_equal(run_child("--join", FALSE_MPI), 1);
        EXPECT("runtime mpi: ");
        EXPECT(cases[i].says);
        /* Rank 0 speaks first, so the others wait until they are told. */
        if (!strstr(cases[i].says, "a message"))
            EXPECT("asked 3 times");
        /* So that its mpirun ends the job. */
        assert_false(was_called("finalize"));
        (void)unsetenv(cases[i].name);
    }
}

static void ranks_take_the_place_that_they_are_given(void **state)
{
    mpi_hello hello;
    char path[100];
    mpi_place place = { .kind = MPI_PLACE,
                        .address = "tcp:here:1:1",
                        .token = "secret" };
    (void)state;
    set_world(1, 2);
    (void)setenv("FALSE_HOST", "-n\xc3\xa9.A_z-9 ", 1);
    give_messages(&place, sizeof(place));
    assert_int_equal(run_child("--join", FALSE_MPI), 0);
    EXPECT("a Workhorse at tcp:here:1:1 with secret\n");
    assert_true(was_called("errors 44000000 54000001"));
    assert_true(was_called("isend 4c00010d 44000000"));
    assert_true(was_called("irecv 4c00010d 44000000"));
    /* At the end of a process that is well, with all messages done. */
    assert_true(was_called("finalize 0 "));
    (void)snprintf(path, sizeof(path), "%s.0", log_path);
    read_file(path, &hello, sizeof(hello));
    assert_string_equal(hello.host, "_n__.A_z-9_");
    (void)unlink(log_path);
    (void)setenv("FALSE_MPI_OVER", "1", 1);
    assert_int_equal(run_child("--join", FALSE_MPI), 0);
    assert_false(was_called("finalize"));
    (void)setenv("FALSE_HOST", "", 1);
    assert_int_equal(run_child("--join", FALSE_MPI), 0);
    assert_string_equal(
        ((mpi_hello *)read_file(path, &hello, sizeof(hello)))->host, "unnamed");
    /* The run does not take place, or the process is told to stop. */
    place.kind = MPI_QUIT;
    give_messages(&place, sizeof(place));
    assert_int_equal(run_child("--join", FALSE_MPI), 1);
    assert_string_equal(text, "");
    (void)setenv("FALSE_MPI_NEVER", "2", 1); /* the tag of places */
    (void)setenv("FALSE_STOPS", "1", 1);
    assert_int_equal(run_child("--join", FALSE_MPI), 1);
    EXPECT("runtime mpi: the host stops\n");
}

/* ---- rank 0 ------------------------------------------------------------ */

/* Starts the child of a driver, which this process is. Returns its line. */
static int start_rank_0(void)
{
    static const char *const argv[] = { "it",   "workhorse",      "mpi",
                                        "none", "mpi:" FALSE_MPI, NULL };
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends),
                     0);
    start_child(argv, ends[1]);
    (void)close(ends[1]);
    return ends[0];
}

static void hear_child(int line, void *out, size_t size)
{
    assert_int_equal(recv(line, out, size, MSG_WAITALL), size);
}

static void expect_sent(int rank, uint32_t kind, const char *token)
{
    char path[100];
    mpi_place place;
    (void)snprintf(path, sizeof(path), "%s.%d", log_path, rank);
    read_file(path, &place, sizeof(place));
    assert_int_equal(place.kind, kind);
    assert_string_equal(place.token, token);
    (void)unlink(path);
}

static void rank_0_tells_hosts_and_gives_places(void **state)
{
    mpi_report report;
    mpi_hello hellos[3] = { { "" }, { "beta" }, { "gamma" } };
    mpi_place places[3] = {
        { .kind = MPI_PLACE, .address = "tcp:here:1:2", .token = "zero" },
        { .kind = MPI_PLACE, .token = "one" },
        { .kind = MPI_PLACE, .token = "two" }
    };
    (void)state;
    set_world(0, 3);
    (void)setenv("FALSE_HOST", "alpha", 1);
    give_messages(&hellos[1], 2 * sizeof(hellos[1]));
    int line = start_rank_0();
    hear_child(line, &report, sizeof(report));
    assert_int_equal(report.count, 3);
    assert_string_equal(report.why, "");
    hear_child(line, hellos, sizeof(hellos));
    assert_string_equal(hellos[0].host, "alpha");
    assert_string_equal(hellos[1].host, "beta");
    assert_string_equal(hellos[2].host, "gamma");
    /* In two pieces. */
    const struct timespec pause = { .tv_nsec = 50000000 };
    assert_int_equal(send(line, places, 100, 0), 100);
    (void)nanosleep(&pause, NULL);
    assert_int_equal(send(line, (char *)places + 100, sizeof(places) - 100, 0),
                     sizeof(places) - 100);
    assert_int_equal(end_child(), 0);
    EXPECT("a Workhorse at tcp:here:1:2 with zero\n");
    expect_sent(1, MPI_PLACE, "one");
    expect_sent(2, MPI_PLACE, "two");
    assert_true(was_called("finalize 0 ")); /* with all messages done */
    (void)close(line);
}

/* The others are told that there is no run, whenever the driver goes. */
static void rank_0_without_a_driver_ends_the_others(void **state)
{
    mpi_report report;
    mpi_hello hellos[2];
    (void)state;
    set_world(0, 2);
    int line = start_rank_0();
    hear_child(line, &report, sizeof(report));
    hear_child(line, hellos, sizeof(hellos));
    (void)close(line);
    assert_int_equal(end_child(), 1);
    assert_string_equal(text, "");
    expect_sent(1, MPI_QUIT, "");
    (void)setenv("FALSE_MPI_NEVER", "1", 1); /* the tag of hellos */
    (void)close(start_rank_0());
    assert_int_equal(end_child(), 1);
    assert_string_equal(text, "");
    expect_sent(1, MPI_QUIT, "");
    assert_false(was_called("finalize"));
}

static void rank_0_tells_its_driver_why_it_fails(void **state)
{
    mpi_report report;
    (void)state;
    set_world(0, 2);
    (void)setenv("FALSE_MPI_SIZE", "1", 1);
    int line = start_rank_0();
    hear_child(line, &report, sizeof(report));
    assert_int_equal(strncmp(report.why, "2 processes were started, but", 29),
                     0);
    assert_int_equal(end_child(), 1);
    assert_string_equal(text, "");
    (void)close(line);
    assert_int_equal(run_child("--drive", FALSE_MPI), 0);
    EXPECT("runtime mpi: 2 processes were started, but [run] ranks is 1; start "
           "as many processes as ranks\n");
    EXPECT("runtime mpi: 2 processes were started, but [run] ranks is 3; start "
           "as many processes as ranks\n");
    EXPECT("runtime mpi: 2 processes were started, but the library of MPI "
           "sees 1 (False MPI 9)");
    EXPECT("runtime mpi: this process has joined its job before\n");
    (void)setenv("FALSE_MPI_DIES", "7", 1);
    assert_int_equal(run_child("--drive", FALSE_MPI), 0);
    EXPECT("runtime mpi: the process that joins MPI as rank 0 exited with "
           "status 7\n");
}

static int begin_case(void **state)
{
    static const char *const names[] = {
        "MAJOR", "FAILS", "TEXT", "LEVEL", "DIES",  "UP",
        "OVER",  "RANK",  "SIZE", "GIVES", "NEVER",
    };
    char name[32];
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        (void)snprintf(name, sizeof(name), "FALSE_MPI_%s", names[i]);
        (void)unsetenv(name);
    }
    for (char **at = environ; *at; at++)
        if (strncmp(*at, "OMPI_COMM_WORLD_", 16) == 0 ||
            strncmp(*at, "PMI", 3) == 0 || strncmp(*at, "SLURM_", 6) == 0) {
            (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(*at, "="),
                           *at);
            (void)unsetenv(name);
            at = environ - 1;
        }
    (void)unsetenv("XRAY_MPI_LIBRARY");
    (void)unsetenv("LD_LIBRARY_PATH");
    (void)unsetenv("FALSE_HOST");
    (void)unsetenv("FALSE_STOPS");
    (void)unlink(log_path);
    return 0;
}

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/xray-mpi-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(log_path, sizeof(log_path), "%s/log", folder);
    return setenv("FALSE_MPI_LOG", log_path, 1);
}

static int remove_folder(void **state)
{
    static const char *const names[] = { "log", "log.0", "log.1", "log.2",
                                         "gives" };
    char path[100];
    (void)state;
    for (size_t i = 0; i < 5 + 6; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder,
                       i < 5 ? names[i] : usual[i - 5]);
        (void)unlink(path);
    }
    return rmdir(folder);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--load") == 0)
        return load_library(argv[2]);
    if (argc == 3 && strcmp(argv[1], "--join") == 0)
        return join_world(argv[2], NULL);
    if (argc == 3 && strcmp(argv[1], "--drive") == 0)
        return drive_world(argv[2]);
    if (argc == 5 && strcmp(argv[1], "workhorse") == 0)
        return join_world("", argv[4]);
#define CASE(name) cmocka_unit_test_setup(name, begin_case)
    const struct CMUnitTest tests[] = {
        CASE(libraries_are_told_by_what_they_export),
        CASE(reasons_are_one_line),
        CASE(libraries_that_do_not_serve_are_refused),
        CASE(usual_libraries_are_those_of_the_mpirun),
        CASE(worlds_that_do_not_fit_are_refused),
        CASE(ranks_take_the_place_that_they_are_given),
        CASE(rank_0_tells_hosts_and_gives_places),
        CASE(rank_0_without_a_driver_ends_the_others),
        CASE(rank_0_tells_its_driver_why_it_fails),
    };
    return cmocka_run_group_tests_name("mpi.library", tests, make_folder,
                                       remove_folder);
}
