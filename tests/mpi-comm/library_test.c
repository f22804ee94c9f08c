/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves how comm-mpi comes to the MPI of its process: whose number it takes,
 * what it initializes and ends, and what it refuses. On a false library, of
 * which a process has one, so each case is a process of its own.
 */
#include <fcntl.h>
#include <unistd.h>

#include <xray/comm.h>
#include <xray/device.h>
#include <xray/plugin.h>

#include "core/base/child.h"
#include "plugins/comm-mpi/lines.h"
#include "tests/scratch.h"
#include "tests/testing.h"

const xray_plugin *xray_plugin_query_device_cpu(uint32_t host_abi);
const xray_plugin *xray_plugin_query_comm_mpi(uint32_t host_abi);

/* ---- what the processes do ------------------------------------------------
 */

static xray_status say_failure(const xray_host *host, xray_status code,
                               const char *where, const char *text)
{
    (void)host;
    (void)printf("%s: %s\n", where, text);
    return code;
}

static const xray_host host = { .header = XRAY_HEADER(xray_host),
                                .fail = say_failure };

static int open_library(void)
{
    int number = 99;
    xray_status status = mpi_library_number(&host, &number);
    (void)printf("number %d\n", number);
    if (status == XRAY_OK)
        status = mpi_library_open(&host);
    if (status == XRAY_OK)
        status = mpi_library_open(&host); /* it is open already */
    if (status == XRAY_OK)
        status = mpi_library_number(&host, &number);
    (void)printf("status %d, number %d\n", status, number);
    return status != XRAY_OK;
}

/* Someone else ends MPI. */
static int open_and_finalize(void)
{
    int bad = open_library();
    return setenv("FALSE_MPI_OVER", "1", 1) || bad;
}

/* Requests outlive their instances until they are complete. */
static int keep_requests(void)
{
    if (mpi_library_open(&host) != XRAY_OK)
        return 1;
    const int first = mpi_library_tag();
    mpi_library_use_tag(first + 100);
    mpi_library_use_tag(first);
    (void)printf("tags after %d\n", mpi_library_tag() - first);
    mpi_library_lock();
    for (mpi_handle request = 1; request < 50; request++)
        mpi_library_keep(request, malloc(100));
    mpi_library_unlock();
    return 0;
}

/* The other rank is the same process once more. */
static xray_status gather_twice(void *ctx, const void *mine, uint64_t size,
                                void *all)
{
    (void)ctx;
    memcpy(all, mine, size);
    memcpy((char *)all + size, mine, size);
    return XRAY_OK;
}

/* The other rank is a process of the next number. */
static xray_status gather_next(void *ctx, const void *mine, uint64_t size,
                               void *all)
{
    int32_t process = 0;
    char *number = (char *)all + size + sizeof(mesh_card);
    (void)gather_twice(ctx, mine, size, all);
    memcpy(&process, number, sizeof(process));
    process++;
    memcpy(number, &process, sizeof(process));
    return XRAY_OK;
}

/* ... of the one before. */
static xray_status gather_before(void *ctx, const void *mine, uint64_t size,
                                 void *all)
{
    int32_t process = 5;
    (void)gather_twice(ctx, mine, size, all);
    memcpy((char *)all + size + sizeof(mesh_card), &process, sizeof(process));
    return XRAY_OK;
}

static int use_instance(const xray_comm_ops *comm, void *self)
{
    static const uint32_t both[] = { 0, 1 };
    xray_comm_group *group = NULL;
    return comm->group(self, both, 2, &group);
}

/* An instance of rank 0 of so many. */
static int create_instance(uint32_t ranks,
                           xray_status (*gather)(void *ctx, const void *mine,
                                                 uint64_t size, void *all))
{
    static const uint64_t config[64]; /* options of the device, all 0 */
    const xray_device_ops *dev =
        xray_plugin_query_device_cpu(XRAY_ABI)->components[0]->ops;
    const xray_comm_ops *comm =
        xray_plugin_query_comm_mpi(XRAY_ABI)->components[0]->ops;
    void *device = NULL;
    void *self = NULL;
    if (dev->create(&host, config, 1, &device) != XRAY_OK)
        return 1;
    const xray_comm_setup setup = { .header = XRAY_HEADER(xray_comm_setup),
                                    .host = &host,
                                    .device = dev,
                                    .device_self = device,
                                    .size = ranks,
                                    .gather = gather };
    xray_status status = comm->create(&setup, NULL, &self);
    (void)printf("status %d\n", status);
    if (status == XRAY_OK && gather == gather_before)
        (void)printf("use %d\n", use_instance(comm, self));
    if (status == XRAY_OK)
        comm->destroy(self);
    dev->destroy(device);
    return status != XRAY_OK;
}

/* ---- starting them --------------------------------------------------------
 */

static const char *program;
static char text[2048]; /* of the last process */
static char log_path[256];

static xray_status run_child(const char *what)
{
    const char *const argv[] = { program, what, NULL };
    const xr_child child = { .name = "it",
                             .argv = argv,
                             .input = open("/dev/null", O_RDONLY | O_CLOEXEC),
                             .seconds = 60 };
    xr_str out = { 0 };
    (void)unlink(log_path);
    xray_status status = xr_child_run(&child, NULL, NULL, &out);
    (void)snprintf(text, sizeof(text), "%s", xr_str_text(&out));
    xr_str_free(&out);
    (void)close(child.input);
    return status;
}

static void expect_text(const char *part)
{
    if (!strstr(text, part))
        fail_msg("no \"%s\" in: %s", part, text);
}

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

static int forget_settings(void **state)
{
    static const char *const names[] = {
        "OMPI_COMM_WORLD_RANK", "PMIX_RANK",       "PMI_RANK",
        "FALSE_MPI_UP",         "FALSE_MPI_OVER",  "FALSE_MPI_LEVEL",
        "FALSE_MPI_FAILS",      "FALSE_MPI_NEVER", "FALSE_MPI_MAJOR",
        "FALSE_MPI_SIZE",       "FALSE_MPI_GIVES",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        (void)unsetenv(names[i]);
    (void)setenv("XRAY_MPI_LIBRARY", FALSE_MPI, 1);
    (void)setenv("FALSE_MPI_RANK", "6", 1);
    (void)snprintf(log_path, sizeof(log_path), "%s", scratch_path("log"));
    return setenv("FALSE_MPI_LOG", log_path, 1);
}

/* ---- cases ----------------------------------------------------------------
 */

/* Before there is MPI the environment says who a process is. */
static void numbers_come_from_the_environment_first(void **state)
{
    static const struct {
        const char *open, *pmix, *pmi;
        const char *says;
    } cases[] = {
        { NULL, NULL, NULL, "number -1\n" }, { "3", "4", "5", "number 3\n" },
        { NULL, "4", "5", "number 4\n" },    { NULL, NULL, "5", "number 5\n" },
        { "none", "4", NULL, "number 4\n" }, { "", NULL, "7", "number 7\n" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        (void)forget_settings(state);
        if (cases[i].open)
            (void)setenv("OMPI_COMM_WORLD_RANK", cases[i].open, 1);
        if (cases[i].pmix)
            (void)setenv("PMIX_RANK", cases[i].pmix, 1);
        if (cases[i].pmi)
            (void)setenv("PMI_RANK", cases[i].pmi, 1);
        assert_int_equal(run_child("--open"), XRAY_OK);
        expect_text(cases[i].says);
    }
}

/* Who begins MPI ends it. */
static void libraries_are_begun_and_ended_once(void **state)
{
    (void)state;
    assert_int_equal(run_child("--open"), XRAY_OK);
    assert_true(was_called("init 2 0")); /* one thread at a time */
    assert_true(was_called("errors 44000000 54000001"));
    assert_true(was_called("finalize"));
    assert_int_equal(run_child("--over"), XRAY_OK);
    assert_true(was_called("init"));
    assert_false(was_called("finalize")); /* it was, by someone else */
    (void)setenv("FALSE_MPI_UP", "1", 1);
    assert_int_equal(run_child("--open"), XRAY_OK);
    expect_text("status 0, number 6\n");
    assert_false(was_called("init"));
    assert_true(was_called("errors 44000000 54000001"));
    assert_false(was_called("finalize"));
}

static void libraries_that_do_not_serve_are_refused(void **state)
{
    static const struct {
        const char *name, *value;
        const char *says;
    } cases[] = {
        { "FALSE_MPI_OVER", "1",
          "comm mpi: MPI is finalized in this process\nstatus -200" },
        { "FALSE_MPI_LEVEL", "1",
          "comm mpi: MPI was initialized for one thread, but " },
        { "FALSE_MPI_FAILS", "initialized",
          "comm mpi: MPI refused to be initialized: error 17\nstatus -301" },
        { "FALSE_MPI_FAILS", "finalized",
          "comm mpi: MPI refused to be initialized: error 17\nstatus -301" },
        { "FALSE_MPI_FAILS", "init",
          "comm mpi: MPI refused to be initialized: error 17\nstatus -301" },
        { "XRAY_MPI_LIBRARY", "/none/libmpi.so",
          "comm mpi: the library of MPI cannot be loaded: " },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        (void)forget_settings(state);
        (void)setenv(cases[i].name, cases[i].value, 1);
        assert_int_equal(run_child("--open"), XRAY_E_IO);
        expect_text(cases[i].says);
    }
    (void)forget_settings(state);
    (void)setenv("FALSE_MPI_UP", "1", 1);
    (void)setenv("FALSE_MPI_LEVEL", "1", 1);
    assert_int_equal(run_child("--open"), XRAY_E_IO);
    expect_text("MPI was initialized for one thread, but ");
    (void)setenv("FALSE_MPI_FAILS", "query", 1);
    assert_int_equal(run_child("--open"), XRAY_E_IO);
    expect_text("MPI refused to be initialized: error 17\n");
}

static void tags_are_used_once(void **state)
{
    char after[40];
    (void)state;
    (void)snprintf(after, sizeof(after), "tags after %d\n",
                   100 + (int)MPI_TAGS);
    assert_int_equal(run_child("--keep"), XRAY_OK);
    expect_text(after);
}

/* Ranks that MPI did not start, or not each as its own process, are refused;
 * one rank has nobody to send to and needs no MPI. */
static void instances_need_a_process_for_each_rank(void **state)
{
    (void)state;
    assert_int_equal(run_child("--alone"), XRAY_OK);
    expect_text("status 0\n");
    assert_false(was_called("init"));
    assert_int_equal(run_child("--pair"), XRAY_E_IO);
    expect_text(" cannot take part: comm = mpi needs Workhorses that mpirun or "
                "srun started: set runtime = mpi\n");
    (void)setenv("PMI_RANK", "4", 1);
    assert_int_equal(run_child("--pair"), XRAY_E_IO);
    expect_text("comm mpi: ranks 0 and 1 have the same number 4 of MPI: comm = "
                "mpi needs Workhorses that mpirun or srun started: set runtime "
                "= mpi\n");
    assert_false(was_called("init"));
}

/* The memory made for the lines until then is given back once. */
static void ranks_of_another_world_are_refused(void **state)
{
    (void)state;
    (void)setenv("PMI_RANK", "6", 1);
    (void)setenv("FALSE_MPI_SIZE", "7", 1);
    assert_int_equal(run_child("--next"), XRAY_E_IO);
    expect_text("comm mpi: rank 1 is number 7 of 7 processes of MPI, but rank "
                "0 is one of 7: all ranks must be of one job\nstatus -");
    assert_true(was_called("finalize"));
}

/* A message says how long it is, and may be damaged: of one that says more than
 * there is nothing is read, even if it begins like a frame. */
static void longer_messages_than_there_are_end_their_line(void **state)
{
    static mpi_message message = { .bytes = MPI_MESSAGE + 1 };
    const mesh_frame frame = { .magic = MESH_FRAME_MAGIC,
                               .kind = MESH_CALL,
                               .channel = 5,
                               .number = 1,
                               .call = XRAY_COMM_ALL_REDUCE };
    (void)state;
    memcpy(message.data, &frame, sizeof(frame));
    (void)setenv("PMI_RANK", "6", 1);
    (void)setenv("FALSE_MPI_SIZE", "7", 1);
    (void)setenv("FALSE_MPI_NEVER", "4097", 1); /* no note comes */
    for (int damaged = 0; damaged < 2; damaged++) {
        message.bytes = damaged ? MPI_MESSAGE + 1 : sizeof(frame);
        FILE *f = fopen(scratch_path("gives"), "we");
        assert_non_null(f);
        assert_int_equal(fwrite(&message, sizeof(message), 1, f), 1);
        assert_int_equal(fclose(f), 0);
        (void)setenv("FALSE_MPI_GIVES", scratch_path("gives"), 1);
        assert_int_equal(run_child("--before"), XRAY_OK);
        expect_text(damaged ? "the line to a rank is garbled: "
                            : "the ranks are in different calls: ");
        expect_text("use -");
    }
}

/* Of a request that MPI cannot ask for nothing comes any more. */
static void requests_that_fail_end_their_line(void **state)
{
    (void)state;
    (void)setenv("PMI_RANK", "6", 1);
    (void)setenv("FALSE_MPI_SIZE", "7", 1);
    (void)setenv("FALSE_MPI_FAILS", "test", 1);
    assert_int_equal(run_child("--before"), XRAY_OK);
    expect_text("use -");
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--open") == 0)
        return open_library();
    if (argc == 2 && strcmp(argv[1], "--over") == 0)
        return open_and_finalize();
    if (argc == 2 && strcmp(argv[1], "--alone") == 0)
        return create_instance(1, gather_twice);
    if (argc == 2 && strcmp(argv[1], "--pair") == 0)
        return create_instance(2, gather_twice);
    if (argc == 2 && strcmp(argv[1], "--before") == 0)
        return create_instance(2, gather_before);
    if (argc == 2 && strcmp(argv[1], "--next") == 0)
        return create_instance(2, gather_next);
    if (argc == 2 && strcmp(argv[1], "--keep") == 0)
        return keep_requests();
    program = argv[0];
#define CASE(name) cmocka_unit_test_setup(name, forget_settings)
    const struct CMUnitTest tests[] = {
        CASE(numbers_come_from_the_environment_first),
        CASE(libraries_are_begun_and_ended_once),
        CASE(libraries_that_do_not_serve_are_refused),
        CASE(tags_are_used_once),
        CASE(instances_need_a_process_for_each_rank),
        CASE(ranks_of_another_world_are_refused),
        CASE(longer_messages_than_there_are_end_their_line),
        CASE(requests_that_fail_end_their_line),
    };
    return cmocka_run_group_tests_name("mpi_comm.library", tests, scratch_make,
                                       scratch_drop);
}
