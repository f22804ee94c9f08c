/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines that take and give a few bytes at a time, as a network does whose
 * buffers are full: the programs of tests/comm go over them, and every frame is
 * cut anywhere. Ranks of one host find no memory to share, so that all bytes go
 * over lines.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <xray/numerics.h>

#define PARTS 2 /* of a message that the mesh sends or receives */

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __real_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);

int __wrap_memfd_create(const char *name, unsigned flags)
{
    errno = ENOSYS;
    return strcmp(name, "xray-comm-tcp") == 0
               ? -1
               : __real_memfd_create(name, flags);
}

/* How many bytes the next call moves at most: often fewer than a header has. */
static size_t draw_bytes(void)
{
    static const size_t most[] = { 1, 7, 40, 63, 64, 65, 200, 5000 };
    static _Thread_local uint64_t turn;
    const uint64_t drawn = xray_mix64(turn++, 11);
    return drawn & 64 ? most[drawn % 8] : SIZE_MAX;
}

/* The first bytes of a message. */
static struct msghdr cut_message(const struct msghdr *whole,
                                 struct iovec parts[PARTS])
{
    struct msghdr cut = *whole;
    size_t left = draw_bytes();
    size_t count = 0;
    for (; count < whole->msg_iovlen && count < PARTS && left; count++) {
        parts[count] = whole->msg_iov[count];
        if (parts[count].iov_len > left)
            parts[count].iov_len = left;
        left -= parts[count].iov_len;
    }
    cut.msg_iov = parts;
    cut.msg_iovlen = count;
    return cut;
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct iovec parts[PARTS];
    const struct msghdr cut = cut_message(message, parts);
    return __real_sendmsg(fd, &cut, flags);
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags)
{
    struct iovec parts[PARTS];
    struct msghdr cut = cut_message(message, parts);
    return __real_recvmsg(fd, &cut, flags);
}
