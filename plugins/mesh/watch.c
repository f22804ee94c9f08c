/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread of an instance that reads the notes of the other ranks while this
 * rank computes. What it waits for is the transport's.
 */
#include <unistd.h>

#include "plugins/mesh/mesh.h"

static void *run_watcher(void *arg)
{
    mesh_comm *comm = arg;
    comm->via->watch(comm);
    return NULL;
}

int mesh_start_watcher(mesh_comm *comm)
{
    comm->watching =
        pthread_create(&comm->watcher, NULL, run_watcher, comm) == 0;
    return comm->watching != 0;
}

void mesh_stop_watcher(mesh_comm *comm)
{
    uint64_t one = 1;
    if (!comm->watching)
        return;
    (void)!write(comm->end, &one, sizeof(one));
    (void)pthread_join(comm->watcher, NULL);
    comm->watching = 0;
}
