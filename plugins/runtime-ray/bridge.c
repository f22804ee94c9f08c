/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts, asks, hears and ends the bridge to Ray.
 */
#define _GNU_SOURCE /* memfd_create, environ */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/child.h"
#include "core/base/process.h"
#include "core/base/system_error.h"
#include "plugins/runtime-ray/ray.h"

#define TAIL 300      /* bytes of standard error that a sentence holds */
#define END_MS 5000u  /* in which a bridge whose channel ended is gone */
#define SEND_MS 10000 /* in which it takes a request */

/* ---- start -------------------------------------------------------------- */

static int spawn_python(const char *python, int channel, int errors, pid_t *out)
{
    const union {
        const char *in[8];
        char *out[8]; /* as POSIX declares what it does not write */
    } argv = { .in = { python, "-u", "-X", "utf8", "-c", ray_script, NULL } };
    const int files[XR_CHILD_FILES] = { XR_CHILD_NOTHING, errors, errors,
                                        channel };
    return xr_child_start(argv.out, files, 0, out);
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

/* 0 or an errno. */
static int start_bridge(ray_bridge *bridge, const char *python)
{
    int pair[2] = { -1, -1 };
    int bad = 0;
    bridge->errors = memfd_create("xray-ray", MFD_CLOEXEC);
    if (bridge->errors < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        bad = errno;
    bridge->fd = pair[0];
    if (!bad)
        bad = spawn_python(python, pair[1], bridge->errors, &bridge->pid);
    close_fd(&pair[1]);
    return bad;
}

xray_status ray_bridge_open(const ray_config *config, xr_err *err,
                            ray_bridge *out)
{
    *out = (ray_bridge){ .fd = -1, .errors = -1, .name = config->python };
    int bad = start_bridge(out, config->python);
    if (!bad)
        return XRAY_OK;
    close_fd(&out->fd);
    close_fd(&out->errors);
    out->pid = 0;
    if (bad == ENOMEM)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    return xr_fail_key(err, XRAY_E_CONFIG, NULL, "python",
                       " = %s cannot be started: %s", config->python,
                       XR_SYSTEM_ERROR(bad));
}

/* ---- talk --------------------------------------------------------------- */

void ray_bridge_send(ray_bridge *bridge, const xr_str *line)
{
    size_t sent = 0;
    while (bridge->fd >= 0 && sent < line->size) {
        ssize_t n = send(bridge->fd, line->data + sent, line->size - sent,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) {
            sent += (size_t)n;
            continue;
        }
        struct pollfd wait = { .fd = bridge->fd, .events = POLLOUT };
        if (errno == EAGAIN && poll(&wait, 1, SEND_MS) == 1)
            continue;
        if (errno == EINTR)
            continue;
        /* Half a request is none: the next receive reports the end. */
        (void)shutdown(bridge->fd, SHUT_RDWR);
        return;
    }
}

/* The last line that the bridge wrote to its standard error. */
static void read_last_line(int errors, char *out, size_t cap)
{
    char text[TAIL + 1];
    off_t size = lseek(errors, 0, SEEK_END);
    off_t from = size > TAIL ? size - TAIL : 0;
    ssize_t n = size > 0 ? pread(errors, text, TAIL, from) : 0;
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' '))
        n--;
    text[n > 0 ? n : 0] = '\0';
    const char *line = strrchr(text, '\n');
    (void)snprintf(out, cap, "%s", line ? line + 1 : text);
    xr_one_line(out);
}

/* The process is about to end when its channel has, and how it does is the
 * reason. */
static void note_end(ray_bridge *bridge)
{
    char how[96] = "closed its channel";
    char line[TAIL + 1] = "";
    int status = 0;
    close_fd(&bridge->fd);
    int found = xr_process_reap(bridge->pid, END_MS, &status);
    if (found == XR_PROCESS_RUNS) {
        (void)kill(-bridge->pid, SIGKILL);
        (void)xr_process_reap(bridge->pid, END_MS, &status);
    } else if (found == XR_PROCESS_ENDED) {
        (void)xr_process_describe(status, how, sizeof(how));
    }
    read_last_line(bridge->errors, line, sizeof(line));
    if (strstr(line, "GCS may have been killed")) /* and more, of Ray's files */
        (void)snprintf(line, sizeof(line), "the cluster's head is gone");
    (void)snprintf(bridge->why, sizeof(bridge->why),
                   "the bridge to Ray (%s) %s%s%s", bridge->name, how,
                   line[0] ? ": " : "", line);
    bridge->pid = 0;
}

int ray_bridge_has_line(const ray_bridge *bridge)
{
    const xr_str *in = &bridge->in;
    return bridge->taken < in->size &&
           memchr(in->data + bridge->taken, '\n', in->size - bridge->taken);
}

/* Parses the next complete line, if there is one; others than messages are
 * passed over. */
static cJSON *take_line(ray_bridge *bridge)
{
    xr_str *in = &bridge->in;
    while (bridge->taken < in->size) {
        char *from = in->data + bridge->taken;
        char *end = memchr(from, '\n', in->size - bridge->taken);
        if (!end)
            break;
        cJSON *message = NULL;
        bridge->taken += (size_t)(end - from) + 1;
        if (xr_json_line(from, (size_t)(end - from), "the bridge to Ray", NULL,
                         &message) == XRAY_OK)
            return message;
    }
    if (bridge->taken) {
        memmove(in->data, in->data + bridge->taken, in->size - bridge->taken);
        in->size -= bridge->taken;
        bridge->taken = 0;
    }
    return NULL;
}

int ray_bridge_receive(ray_bridge *bridge, int ms, cJSON **out)
{
    char bytes[16384];
    *out = take_line(bridge);
    while (!*out && bridge->fd >= 0) {
        struct pollfd wait = { .fd = bridge->fd, .events = POLLIN };
        if (poll(&wait, 1, ms) != 1)
            return RAY_NOTHING;
        ssize_t n = recv(bridge->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (n > 0)
            xr_str_append(&bridge->in, bytes, (size_t)n);
        else if (n == 0 || (errno != EINTR && errno != EAGAIN))
            note_end(bridge);
        *out = take_line(bridge);
    }
    return *out ? RAY_MESSAGE : RAY_ENDED;
}

/* ---- end ---------------------------------------------------------------- */

void ray_bridge_close(ray_bridge *bridge, uint64_t ms)
{
    int status = 0;
    close_fd(&bridge->fd);
    if (bridge->pid &&
        xr_process_reap(bridge->pid, ms, &status) == XR_PROCESS_RUNS) {
        (void)kill(-bridge->pid, SIGKILL);
        (void)xr_process_reap(bridge->pid, END_MS, &status);
    }
    bridge->pid = 0;
    close_fd(&bridge->errors);
    xr_str_free(&bridge->in);
}
