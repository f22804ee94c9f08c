/* SPDX-License-Identifier: Apache-2.0
 *
 * How an actor's process finds and greets its parent on another host.
 */
#ifndef XR_ACTOR_HOSTS_JOIN_H
#define XR_ACTOR_HOSTS_JOIN_H

#include <sys/socket.h>

#include "core/actor/hosts.h"

typedef struct xr_hosts_address {
    struct sockaddr_storage to;
    socklen_t size;
    uint32_t index;
    unsigned char token[XR_TCP_TOKEN];
    char text[128];
} xr_hosts_address;

/* Reads "tcp:ADDRESS:PORT:INDEX", and the token from the standard input. */
xray_status xr_hosts_find_parent(const xray_host *host, const char *address,
                                 xr_hosts_address *out);
/* Connects and greets. On success *out_fd is the connection, and *out_near 1 if
 * it is one within this host; NULL: over TCP only. */
xray_status xr_hosts_join(const xray_host *host, const xr_hosts_address *parent,
                          uint32_t purpose, const unsigned char *build,
                          int *out_fd, uint32_t *out_near);
/* Has the kernel end this connection once the other host has not answered for
 * that long, whatever the program there does. */
void xr_hosts_watch_pulse(int fd, uint32_t hang_ms);

#endif
