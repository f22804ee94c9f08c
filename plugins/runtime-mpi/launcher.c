/* SPDX-License-Identifier: Apache-2.0
 *
 * The launcher mpi: finds out what a process of the job is.
 */
#include "plugins/runtime-mpi/launcher.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/str.h"

/* The variables by which a rank and the number of ranks are known before MPI is
 * initialized: of Open MPI's mpirun, of MPICH's and Slurm's pmi2, and of Slurm,
 * the step before the job. */
static const struct {
    const char *rank;
    const char *size;
} names[] = {
    { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE" },
    { "PMI_RANK", "PMI_SIZE" },
    { "PMIX_RANK", "SLURM_STEP_NUM_TASKS" },
    { "SLURM_PROCID", "SLURM_STEP_NUM_TASKS" },
    { "SLURM_PROCID", "SLURM_NTASKS" },
};

static int read_number(const char *name, uint32_t *out)
{
    const char *text = getenv(name);
    int64_t value = 0;
    if (!text || xr_parse_int(text, &value) || value < 0 || value > INT32_MAX)
        return 0;
    *out = (uint32_t)value;
    return 1;
}

xray_status mpi_identify(const xray_host *host, mpi_identity *out)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (read_number(names[i].rank, &out->rank) &&
            read_number(names[i].size, &out->size) && out->rank < out->size)
            return XRAY_OK;
    return xr_host_fail(host, XRAY_E_CONFIG, MPI_WHERE,
                        "no MPI started this process: start it with mpirun or "
                        "srun, as many processes as [run] ranks, such as "
                        "mpirun -n 4 xray train run.ini");
}

static xray_status enter_job(const xray_host *host, const void *config,
                             const char *address, xray_launch_entry *out)
{
    const size_t prefix = sizeof(MPI_ADDRESS) - 1;
    xray_launch_entry entry = { .header = XRAY_HEADER(xray_launch_entry),
                                .kind = XRAY_ENTRY_DRIVER };
    const char *library = ((const mpi_config *)config)->library;
    const int child = address && strncmp(address, MPI_ADDRESS, prefix) == 0;
    mpi_identity self;
    xray_status status = mpi_identify(host, &self);
    if (child) /* which has no options of its own */
        library = address + prefix;
    if (status == XRAY_OK && self.rank == 0 && !child)
        status = mpi_drive(host, library, &self);
    else if (status == XRAY_OK)
        status =
            mpi_join(host, library, &self, child ? STDIN_FILENO : -1, &entry);
    if (status == XRAY_OK)
        xray_fill(out, &entry);
    return status;
}

/* Whether there are enough processes is known when they run. */
static xray_status check_library(const xray_launch_setup *setup,
                                 const void *config)
{
    mpi_api api;
    return mpi_api_load(setup->host, MPI_WHERE,
                        ((const mpi_config *)config)->library, &api);
}

/* The others of the job are no children, and the loss of its connection says
 * that one has ended. */
static int32_t give_events(void *self)
{
    (void)self;
    return -1;
}

static xray_status give_next(void *self, xray_launch_event *out)
{
    (void)self;
    (void)out;
    return XRAY_AGAIN;
}

const xray_launcher_ops mpi_ops = {
    .header = XRAY_HEADER(xray_launcher_ops),
    .create = mpi_create,
    .destroy = mpi_destroy,
    .host_of = mpi_host_of,
    .start = mpi_start,
    .stop = mpi_stop,
    .events = give_events,
    .next = give_next,
    .check = check_library,
    .enter = enter_job,
};
