/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares comm-mpi: collectives among processes that an engine of MPI started,
 * on any number of hosts. Creates instances.
 */
#include <stdlib.h>

#include <xray/plugin.h>

#include "plugins/comm-mpi/lines.h"

/* A rank tells the others this. */
typedef struct mpi_card {
    mesh_card rank;
    int32_t process; /* rank in MPI's world */
    int32_t size;    /* of that world */
    int32_t tag;     /* the first that the process has not used */
    uint32_t unused;
} mpi_card;

static void find_number(const mesh_comm *comm, mpi_card *mine)
{
    xray_status status = mpi_library_number(comm->host, &mine->process);
    if (status != XRAY_OK)
        mesh_refuse_card(&mine->rank, status, "MPI cannot be used there");
    else if (mine->process < 0)
        mesh_refuse_card(&mine->rank, XRAY_E_CONFIG,
                         "comm = mpi needs Workhorses that mpirun or srun "
                         "started: set runtime = mpi");
}

/* Ranks that are processes started by one of MPI's have its number, and ranks
 * of one process could not tell their messages apart. */
static xray_status check_numbers(const mesh_comm *comm, const mpi_card *all)
{
    for (uint32_t r = 0; r < comm->size; r++)
        for (uint32_t k = 0; k < r; k++)
            if (all[k].process == all[r].process)
                return xr_host_fail(
                    comm->host, XRAY_E_CONFIG, "comm mpi",
                    "ranks %u and %u have the same number %d of MPI: comm = "
                    "mpi needs Workhorses that mpirun or srun started: set "
                    "runtime = mpi",
                    k, r, all[r].process);
    return XRAY_OK;
}

/* Ranks of another world would wait for messages that go elsewhere. */
static xray_status check_world(const mesh_comm *comm, const mpi_card *all)
{
    for (uint32_t r = 0; r < comm->size; r++)
        if (all[r].size != all[0].size || all[r].process >= all[r].size)
            return xr_host_fail(comm->host, XRAY_E_CONFIG, "comm mpi",
                                "rank %u is number %d of %d processes of MPI, "
                                "but rank 0 is one of %d: all ranks must be of "
                                "one job",
                                r, all[r].process, all[r].size, all[0].size);
    return check_numbers(comm, all);
}

/* Initializes MPI, and fills what only it knows. */
static void enter_world(mesh_comm *comm, mpi_card *mine)
{
    const mpi_api *api = mpi_library_api();
    xray_status status = mpi_library_open(comm->host);
    if (status != XRAY_OK) {
        mesh_refuse_card(&mine->rank, status, "MPI cannot be used there");
        return;
    }
    mpi_library_lock();
    if (api->comm_rank(api->world, &mine->process) != MPI_API_OK ||
        api->comm_size(api->world, &mine->size) != MPI_API_OK)
        mesh_refuse_card(&mine->rank, XRAY_E_IO, "MPI does not say who is who");
    mpi_library_unlock();
    mine->tag = mpi_library_tag();
    if (mine->tag + (int)MPI_TAGS > MPI_LAST_TAG)
        mesh_refuse_card(&mine->rank, XRAY_E_RANGE,
                         "the process has no tag of MPI left for an instance");
    if (!mpi_lines_make(comm))
        mesh_refuse_card(&mine->rank, XRAY_E_NOMEM, "no memory for the lines");
}

static void keep_tag(mesh_comm *comm, const mpi_card *all)
{
    mpi_lines *lines = comm->lines;
    for (uint32_t r = 0; r < comm->size; r++) {
        lines->tag = all[r].tag > lines->tag ? all[r].tag : lines->tag;
        lines->of[r].process = all[r].process;
    }
    mpi_library_use_tag(lines->tag);
}

/* Connects all ranks. Every rank takes part in each gather. */
static xray_status connect_ranks(mesh_comm *comm, const xray_comm_setup *setup,
                                 xray_status ready)
{
    mpi_card mine = { .process = -1 };
    mpi_card *all = calloc(setup->size, sizeof(*all));
    mesh_fill_card(comm, ready, &mine.rank);
    find_number(comm, &mine);
    if (!all)
        return xr_host_fail(setup->host, XRAY_E_NOMEM, "comm mpi",
                            "no memory for the processes of the ranks");
    xray_status status =
        mesh_gather_cards(comm, setup, &mine, sizeof(mine), all);
    if (status == XRAY_OK)
        status = check_numbers(comm, all);
    if (status == XRAY_OK) {
        enter_world(comm, &mine);
        status = mesh_gather_cards(comm, setup, &mine, sizeof(mine), all);
    }
    if (status == XRAY_OK)
        status = check_world(comm, all);
    if (status == XRAY_OK) {
        mesh_keep_cards(comm, all, sizeof(*all));
        keep_tag(comm, all);
        status = mpi_lines_open(comm);
    }
    free(all);
    return ready != XRAY_OK ? ready : status;
}

static xray_status mpi_create(const xray_comm_setup *setup, const void *config,
                              void **out_self)
{
    mesh_comm *comm = NULL;
    xray_status status = mesh_new(setup, &mpi_transport, &comm);
    (void)config;
    if (status != XRAY_OK)
        return status;
    status = mesh_prepare(comm);
    /* One rank has nobody to send to, with MPI or without. */
    if (setup->size > 1)
        status = connect_ranks(comm, setup, status);
    if (status == XRAY_OK)
        status = mesh_begin(comm);
    if (status != XRAY_OK) {
        mesh_destroy(comm);
        return status;
    }
    *out_self = comm;
    return XRAY_OK;
}

static const xray_comm_ops ops = {
    .header = XRAY_HEADER(xray_comm_ops),
    .create = mpi_create,
    MESH_CALLBACKS,
};

static const xray_component mpi = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_COMM,
    .name = "mpi",
    .summary = "processes that mpirun or srun started, over MPI",
    .ops = &ops,
};

static const xray_component *const components[] = { &mpi };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI_NEEDED,
    .component_count = 1,
    .name = "comm-mpi",
    .version = "0.1.0",
    .vendor = "X-ray",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(comm_mpi, plugin, "comm-mpi", "0.1.0", "xray.comm/0:mpi")
