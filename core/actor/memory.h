/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that processes of one host share: memfds, and Unix sockets that pass
 * them on. It has no name in any file system and ends with the last process
 * that maps it.
 */
#ifndef XR_ACTOR_MEMORY_H
#define XR_ACTOR_MEMORY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define XR_MEMORY_FDS 8

struct iovec;
struct msghdr;

/* File descriptors that were received and not yet taken, the oldest first. */
typedef struct xr_memory_fds {
    uint32_t count;
    uint32_t lost; /* 1: more came than this process may keep */
    int fds[XR_MEMORY_FDS];
} xr_memory_fds;

/* A memfd of that size, sealed against shrinking; or -1 and errno. */
int xr_memory_make(const char *name, uint64_t bytes);
/* 0 or an errno: received memory must have the announced size and keep it. */
int xr_memory_check(int fd, uint64_t bytes);
/* NULL and errno on failure. The memory cannot shrink, so no access to it
 * faults. `fd` -1: memory of this process only. */
void *xr_memory_map(int fd, uint64_t bytes);

/* Sends as much as the socket takes now, `fd` with the first byte unless it is
 * -1. Returns the bytes sent, or -1 and errno. */
ssize_t xr_memory_send(int socket, struct iovec *iov, size_t count, int fd);
/* Receives what is there, and descriptors with it. Returns the bytes, or -1 and
 * errno. */
ssize_t xr_memory_receive(int socket, struct msghdr *message,
                          xr_memory_fds *fds);
/* The oldest descriptor, which is the caller's to close; -1: none. */
int xr_memory_take(xr_memory_fds *fds);
/* Closes those that were not taken. */
void xr_memory_drop(xr_memory_fds *fds);

#endif
