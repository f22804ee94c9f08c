/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes, maps and passes on memory that processes of one host share.
 */
#define _GNU_SOURCE /* memfd_create, F_ADD_SEALS, MSG_CMSG_CLOEXEC */
#include "core/actor/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
/* Bytes from which on a mapping asks for large pages, of which it may leave a
 * part of the last one unused. */
#define LARGE (UINT64_C(8) << 20)

typedef union control {
    struct cmsghdr align;
    char space[CMSG_SPACE(sizeof(int) * XR_MEMORY_FDS)];
} control;

int xr_memory_make(const char *name, uint64_t bytes)
{
    if (bytes > INT64_MAX) {
        errno = ENOMEM;
        return -1;
    }
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    if (ftruncate(fd, (off_t)bytes) || fcntl(fd, F_ADD_SEALS, SEALS)) {
        int why = errno;
        (void)close(fd);
        errno = why;
        return -1;
    }
    return fd;
}

int xr_memory_check(int fd, uint64_t bytes)
{
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fd < 0 || seals < 0 || !(seals & F_SEAL_SHRINK))
        return EINVAL;
    if (fstat(fd, &info))
        return errno;
    return bytes && bytes <= (uint64_t)info.st_size ? 0 : EINVAL;
}

void *xr_memory_map(int fd, uint64_t bytes)
{
    const int kind = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void *data = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, kind, fd, 0);
    if (data == MAP_FAILED)
        return NULL;
    if (bytes >= LARGE)
        (void)madvise(data, (size_t)bytes, MADV_HUGEPAGE);
    return data;
}

/* ---- passing it on ------------------------------------------------------- */

ssize_t xr_memory_send(int socket, struct iovec *iov, size_t count, int fd)
{
    control ctl;
    struct msghdr msg = { .msg_iov = iov, .msg_iovlen = count };
    if (fd >= 0) {
        memset(&ctl, 0, sizeof(ctl));
        msg.msg_control = &ctl;
        msg.msg_controllen = CMSG_SPACE(sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&msg);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &fd, sizeof(int));
    }
    ssize_t sent;
    do
        sent = sendmsg(socket, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent;
}

static void keep_fds(struct msghdr *message, xr_memory_fds *fds)
{
    fds->lost |= (message->msg_flags & MSG_CTRUNC) != 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c;
         c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (fds->count < XR_MEMORY_FDS) {
                fds->fds[fds->count++] = fd;
            } else {
                (void)close(fd);
                fds->lost = 1;
            }
        }
    }
}

ssize_t xr_memory_receive(int socket, struct msghdr *message,
                          xr_memory_fds *fds)
{
    control ctl;
    ssize_t n;
    do {
        message->msg_control = &ctl;
        message->msg_controllen = sizeof(ctl);
        n = recvmsg(socket, message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n >= 0)
        keep_fds(message, fds);
    message->msg_control = NULL;
    message->msg_controllen = 0;
    return n;
}

int xr_memory_take(xr_memory_fds *fds)
{
    const int fd = fds->count ? fds->fds[0] : -1;
    if (fds->count)
        memmove(fds->fds, fds->fds + 1, --fds->count * sizeof(int));
    return fd;
}

void xr_memory_drop(xr_memory_fds *fds)
{
    while (fds->count)
        (void)close(xr_memory_take(fds));
}
