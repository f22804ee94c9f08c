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
    uint32_t tls;
    uint32_t reserved;
    unsigned char token[XR_TCP_TOKEN];
    char text[128];
} xr_hosts_address;

/* Reads "tcp:ADDRESS:PORT:INDEX", or "tls:" instead, and the token from the
 * standard input. */
xray_status xr_hosts_find_parent(const xray_host *host, const char *address,
                                 xr_hosts_address *out);
/* A connection to the parent. */
typedef struct xr_hosts_line {
    int fd;        /* -1: none */
    uint32_t near; /* 1: it is one within this host, which passes memory on */
    xr_tls *tls;   /* what is over it; NULL: its bytes are sent as they are */
} xr_hosts_line;

/* Connects and greets: for messages within this host where that is possible,
 * for a pulse over TCP. What *out then holds is the caller's. */
xray_status xr_hosts_join(const xray_host *host, const xr_hosts_address *parent,
                          uint32_t purpose, const unsigned char *build,
                          xr_hosts_line *out);
/* Has the kernel end this connection once the other host has not answered for
 * that long, whatever the program there does. */
void xr_hosts_watch_pulse(int fd, uint32_t hang_ms);

#endif
