/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts the processes of actors on other hosts. A process gets its token by
 * its standard input, where no other user sees it, and ends when that does,
 * which also holds for what a remote shell starts.
 */
#define _GNU_SOURCE /* pipe2 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/actor/hosts.h"
#include "core/base/child.h"
#include "core/base/words.h"

/* ---- command lines ------------------------------------------------------- */

void xr_hosts_name_door(const xray_peer *peer, char *out, size_t size)
{
    const xr_hosts *self = peer->self;
    (void)snprintf(out, size, "%s:%s:%u:%u", self->tls ? "tls" : "tcp",
                   self->door.address, self->door.port, peer->index);
}

/* The launcher's words; or the actor's own command line, with the address. */
static int make_command(const xray_peer *peer, const char *const *argv,
                        char ***out)
{
    const xr_hosts *self = peer->self;
    char address[128];
    xr_err err;
    xr_hosts_name_door(peer, address, sizeof(address));
    const xr_word_value values[] = { { "host", peer->host },
                                     { "address", address } };
    if (peer->launched) {
        xray_status status = xr_words_cut(self->launch, values, 2, &err, out);
        return status == XRAY_E_NOMEM ? ENOMEM : status ? EINVAL : 0;
    }
    *out = xr_words_copy(argv, address);
    return *out ? 0 : ENOMEM;
}

/* ---- processes ----------------------------------------------------------- */

static void close_file(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

void xr_hosts_write_token(const xray_peer *peer, char *out)
{
    for (size_t i = 0; i < XR_TCP_TOKEN; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", peer->token[i]);
}

/* A pipe takes the line whole. */
static int give_token(const xray_peer *peer)
{
    char line[XR_HOSTS_LINE + 1];
    xr_hosts_write_token(peer, line);
    line[XR_HOSTS_LINE - 1] = '\n';
    const size_t size = XR_HOSTS_LINE;
    ssize_t n;
    do
        n = write(peer->leash, line, size);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)size ? 0 : errno;
}

static int run_command(xray_peer *peer, char *const *argv)
{
    const xr_hosts *self = peer->self;
    int in[2] = { -1, -1 };
    int errors[2] = { XR_CHILD_SAME, XR_CHILD_SAME };
    int bad = pipe2(in, O_CLOEXEC) ? errno : 0;
    if (!bad && peer->launched)
        bad = pipe2(errors, O_CLOEXEC) ? errno : 0;
    peer->leash = in[1];
    peer->says = errors[0];
    /* Before the start, since a launcher that ends at once closes the pipe. */
    if (!bad)
        bad = give_token(peer);
    if (!bad && peer->launched)
        bad = fcntl(peer->says, F_SETFL, O_NONBLOCK) ? errno : 0;
    if (!bad && peer->launched)
        bad = xr_hosts_watch(self, peer->says, XR_HOSTS_SAYS, peer->index,
                             EPOLLIN, 0);
    const int files[XR_CHILD_FILES] = { in[0], XR_CHILD_SAME, errors[1],
                                        XR_CHILD_SAME };
    if (!bad)
        bad = xr_child_start(argv, files, 1, &peer->pid);
    if (bad)
        peer->pid = 0;
    close_file(&in[0]);
    close_file(&errors[1]);
    return bad;
}

int xr_hosts_start(xray_peer *peer, const char *const *argv)
{
    char **words = NULL;
    int bad = make_command(peer, argv, &words);
    if (!bad)
        bad = run_command(peer, words);
    free(words);
    return bad;
}

/* ---- standard error ------------------------------------------------------ */

/* Keeps the beginning of the last line that is not empty. */
static void keep_line(xray_peer *peer, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        const int ends = text[i] == '\n' || text[i] == '\r';
        if (ends) {
            peer->line_size = 0;
            continue;
        }
        if (peer->line_size + 1 < sizeof(peer->line)) {
            peer->line[peer->line_size++] = text[i];
            peer->line[peer->line_size] = '\0';
        }
    }
}

void xr_hosts_say(xray_peer *peer, const char *text, size_t size)
{
    keep_line(peer, text, size);
    /* A line that cannot be written here is lost. */
    if (write(STDERR_FILENO, text, size) < 0)
        return;
}

void xr_hosts_read_says(xray_peer *peer)
{
    char text[4096];
    while (peer->used && peer->says >= 0) {
        ssize_t n = read(peer->says, text, sizeof(text));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            close_file(&peer->says);
            return;
        }
        xr_hosts_say(peer, text, (size_t)n);
    }
}
