/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread of an instance that reads the notes of the other ranks while this
 * rank computes. It sleeps until one comes. That a host is silent is noticed by
 * the system, which probes idle lines (connect.c), so a rank that was stopped
 * or runs late is never taken for one that is gone.
 */
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "plugins/comm-tcp/tcp.h"

static void read_all_notes(tcp_comm *comm, const struct pollfd *fds)
{
    for (uint32_t r = 0; r < comm->size; r++)
        if (r != comm->rank && fds[r].revents)
            tcp_read_notes(comm, r);
}

static void *run_watcher(void *arg)
{
    tcp_comm *comm = arg;
    struct pollfd fds[TCP_MOST_RANKS + 1];
    for (;;) {
        (void)pthread_mutex_lock(&comm->lock);
        for (uint32_t r = 0; r < comm->size; r++)
            fds[r] =
                (struct pollfd){ r == comm->rank ? -1 : comm->peers[r].notes,
                                 POLLIN, 0 };
        (void)pthread_mutex_unlock(&comm->lock);
        fds[comm->size] = (struct pollfd){ comm->end, POLLIN, 0 };
        if (poll(fds, comm->size + 1, -1) < 0)
            continue;
        if (fds[comm->size].revents)
            return NULL;
        read_all_notes(comm, fds);
    }
}

int tcp_start_watcher(tcp_comm *comm)
{
    comm->watching =
        pthread_create(&comm->watcher, NULL, run_watcher, comm) == 0;
    return comm->watching != 0;
}

void tcp_stop_watcher(tcp_comm *comm)
{
    uint64_t one = 1;
    if (!comm->watching)
        return;
    (void)!write(comm->end, &one, sizeof(one));
    (void)pthread_join(comm->watcher, NULL);
    comm->watching = 0;
}
