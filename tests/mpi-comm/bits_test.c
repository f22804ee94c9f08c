/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that comm-mpi has the bits of comm-shm, that instances of one process
 * do not hear each other, that it initializes MPI where nobody did, and what it
 * says where there is no MPI to be a part of.
 */
#include "tests/comm/both.h"
#include "tests/mpi-comm/launch.h"

#include "tests/testing.h"

const xray_plugin *xray_plugin_query_comm_mpi(uint32_t host_abi);

/* Each instance has messages of its own, also while others are alive: were
 * their tags the same, one would receive what is meant for the other. */
static void use_two_instances(ranks_env *e)
{
    uint32_t ranks[MOST_RANKS] = { 0, 1, 2 };
    xray_comm_setup setup = ranks_setup(e, 60000);
    float *a = ranks_alloc(e, 400000);
    for (int turn = 0; turn < 3; turn++) {
        void *other = NULL;
        xray_comm_group *group = NULL;
        CHECK_OK(e, e->comm->create(&setup, NULL, &other));
        CHECK_OK(e, e->comm->group(other, ranks, e->size, &group));
        for (uint32_t i = 0; i < 100000; i++)
            a[i] = (float)(e->rank + 1);
        CHECK_OK(e, e->comm->all_reduce(group, NULL, a, 100000, XRAY_F32));
        CHECK_OK(e, e->comm->all_reduce(e->world, NULL, a, 100000, XRAY_F32));
        for (uint32_t i = 0; i < 100000; i += 999)
            CHECK(e, a[i] == 18.0f); /* three times 1 + 2 + 3 */
        e->comm->destroy(other);
        CHECK_OK(e, ranks_barrier(e, e->world));
    }
}

const scenario ranks_scenarios[] = {
    { "bits", both_compare, 60000 },
    { "two", use_two_instances, 60000 },
    { NULL, NULL, 0 },
};

static void bits_are_those_of_shm(void **state)
{
    (void)state;
    ranks_run("bits", 2, NULL);
    ranks_run("bits", 3, NULL);
    ranks_run("bits", 5, NULL);
}

static void instances_do_not_hear_each_other(void **state)
{
    (void)state;
    ranks_run("two", 3, NULL);
}

static void mpi_is_initialized_where_nobody_did(void **state)
{
    (void)state;
    launch_late("bits", 2);
}

/* ---- without MPI ----------------------------------------------------------
 */

static char said[1024];

static xray_status keep_text(const xray_host *host, xray_status code,
                             const char *where, const char *msg)
{
    (void)host;
    (void)snprintf(said, sizeof(said), "%s: %s", where, msg);
    return code;
}

/* The other rank says what this one says. */
static xray_status gather_twice(void *ctx, const void *mine, uint64_t size,
                                void *all)
{
    (void)ctx;
    memcpy(all, mine, size);
    memcpy((char *)all + size, mine, size);
    return XRAY_OK;
}

static xray_status create_one_of_two(void)
{
    static const xray_host host = { .header = XRAY_HEADER(xray_host),
                                    .fail = keep_text };
    static const xray_device_ops device = { .header =
                                                XRAY_HEADER(xray_device_ops) };
    const xray_comm_setup setup = { .header = XRAY_HEADER(xray_comm_setup),
                                    .host = &host,
                                    .device = &device,
                                    .size = 2,
                                    .gather = gather_twice };
    const xray_comm_ops *ops =
        xray_plugin_query_comm_mpi(XRAY_ABI)->components[0]->ops;
    void *self = NULL;
    return ops->create(&setup, NULL, &self);
}

static void processes_of_no_mpirun_are_told(void **state)
{
    (void)state;
    (void)unsetenv("OMPI_COMM_WORLD_RANK");
    (void)unsetenv("PMIX_RANK");
    (void)unsetenv("PMI_RANK");
    assert_int_equal(create_one_of_two(), XRAY_E_PEER);
    assert_non_null(strstr(said, "comm mpi: rank 0 (pid "));
    assert_non_null(
        strstr(said, ") cannot take part: comm = mpi needs Workhorses that "
                     "mpirun or srun started: set runtime = mpi"));
}

/* Workhorses that a process of mpirun started have its number. */
static void processes_of_one_number_are_told(void **state)
{
    (void)state;
    (void)setenv("PMI_RANK", "3", 1);
    assert_int_equal(create_one_of_two(), XRAY_E_CONFIG);
    assert_non_null(
        strstr(said, "ranks 0 and 1 have the same number 3 of MPI"));
    (void)unsetenv("PMI_RANK");
}

int main(int argc, char **argv)
{
    ranks_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_of_no_mpirun_are_told),
        cmocka_unit_test(processes_of_one_number_are_told),
        cmocka_unit_test(bits_are_those_of_shm),
        cmocka_unit_test(instances_do_not_hear_each_other),
        cmocka_unit_test(mpi_is_initialized_where_nobody_did),
    };
    return cmocka_run_group_tests_name("mpi_comm.bits", tests, NULL, NULL);
}
