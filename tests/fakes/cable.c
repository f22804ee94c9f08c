/* SPDX-License-Identifier: Apache-2.0
 *
 * A slow cable that loses what is sent, for tests of several hosts: it makes an
 * interface in each of two network namespaces and carries frames from one to
 * the other until it is ended.
 *
 *     cable NETNS INTERFACE NETNS INTERFACE SEED DELAY JITTER LOSS
 *
 * NETNS is the file of a namespace. DELAY and JITTER are in ms: a frame takes
 * between DELAY - JITTER and DELAY + JITTER, and none overtakes another. LOSS
 * is how many of 1,000 frames are lost. SEED and the number of a frame in its
 * direction decide what happens to it. From SIGUSR1 until SIGUSR2 both ends
 * still seem to be connected, and nothing arrives. It needs root and
 * /dev/net/tun, and ends with status 77 where that is missing, with the program
 * that started it, or with one of the interfaces.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <xray/numerics.h>

#define WAITING 1024u /* frames on their way; of more the last is lost */
#define FRAME 2048u   /* bytes; interfaces have an MTU of 1500 */
#define MS 1000000u

typedef struct frame {
    uint64_t due; /* ns */
    size_t bytes;
    char data[FRAME];
} frame;

/* What comes in at one end, on its way to the other. */
typedef struct direction {
    int from;
    int to;
    uint64_t seed;
    uint64_t number; /* frames that came */
    uint64_t put;    /* frames that were kept, and of them those that left */
    uint64_t got;
    frame waiting[WAITING];
} direction;

typedef struct cable {
    direction ways[2];
    uint64_t delay; /* ns */
    uint64_t jitter;
    uint64_t loss;
} cable;

static volatile sig_atomic_t silent;

static void set_silent(int signal)
{
    silent = signal == SIGUSR1;
}

static _Noreturn void end_with(int status, const char *what, const char *which)
{
    (void)fprintf(stderr, "cable: %s %s: %s\n", what, which, strerror(errno));
    exit(status);
}

static uint64_t read_clock(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u * MS + (uint64_t)t.tv_nsec;
}

/* Makes an interface in a namespace, whose frames are read and written here. It
 * ends with this process. */
static int open_end(const char *netns, const char *interface)
{
    struct ifreq ask = { .ifr_flags = IFF_TAP | IFF_NO_PI };
    int place = open(netns, O_RDONLY | O_CLOEXEC);
    if (place < 0 || setns(place, CLONE_NEWNET) != 0)
        end_with(1, "entering the network namespace", netns);
    (void)close(place);
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        end_with(77, "opening", "/dev/net/tun");
    (void)snprintf(ask.ifr_name, sizeof(ask.ifr_name), "%s", interface);
    if (ioctl(fd, TUNSETIFF, &ask) != 0)
        end_with(1, "making the interface", interface);
    return fd;
}

/* ---- frames
 * -------------------------------------------------------------- */

/* Takes the next frame of a direction. Returns 0 if there is none. */
static int take_frame(cable *c, direction *d, uint64_t now)
{
    frame spare;
    int full = d->put - d->got == WAITING;
    frame *f = full ? &spare : &d->waiting[d->put % WAITING];
    ssize_t n = read(d->from, f->data, sizeof(f->data));
    if (n <= 0)
        return 0;
    uint64_t luck = xray_mix64(d->seed, d->number++);
    if (full || silent || luck % 1000 < c->loss)
        return 1;
    uint64_t part = (luck >> 32) % (2 * c->jitter + 1);
    uint64_t last =
        d->put == d->got ? 0 : d->waiting[(d->put - 1) % WAITING].due;
    f->bytes = (size_t)n;
    f->due = now + c->delay - c->jitter + part;
    f->due = f->due < last ? last : f->due;
    d->put++;
    return 1;
}

/* Passes on what is due. An end that is down takes nothing, and what it does
 * not take is lost. */
static void pass_frames(direction *d, uint64_t now)
{
    for (; d->got < d->put; d->got++) {
        const frame *f = &d->waiting[d->got % WAITING];
        if (f->due > now)
            return;
        if (!silent)
            (void)!write(d->to, f->data, f->bytes);
    }
}

/* Waits for a frame, or until the first is due. Returns 0 once an interface has
 * been removed. */
static int wait_for_frames(const cable *c)
{
    struct pollfd ends[2] = { { .fd = c->ways[0].from, .events = POLLIN },
                              { .fd = c->ways[1].from, .events = POLLIN } };
    uint64_t now = read_clock();
    uint64_t first = now + 1000u * MS;
    for (int i = 0; i < 2; i++) {
        const direction *d = &c->ways[i];
        uint64_t due =
            d->got < d->put ? d->waiting[d->got % WAITING].due : first;
        first = due < first ? due : first;
    }
    uint64_t left = first > now ? first - now : 0;
    struct timespec pause = { (time_t)(left / (1000u * MS)),
                              (long)(left % (1000u * MS)) };
    (void)ppoll(ends, 2, &pause, NULL);
    return !((ends[0].revents | ends[1].revents) & POLLERR);
}

int main(int argc, char **argv)
{
    static cable c;
    if (argc != 9) {
        (void)fprintf(stderr,
                      "cable: NETNS INTERFACE NETNS INTERFACE SEED DELAY "
                      "JITTER LOSS are expected\n");
        return 1;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct sigaction action = { .sa_handler = set_silent };
    (void)sigaction(SIGUSR1, &action, NULL);
    (void)sigaction(SIGUSR2, &action, NULL);
    c.delay = strtoull(argv[6], NULL, 10) * MS;
    c.jitter = strtoull(argv[7], NULL, 10) * MS;
    c.loss = strtoull(argv[8], NULL, 10);
    if (c.jitter > c.delay) {
        (void)fprintf(stderr, "cable: JITTER is above DELAY\n");
        return 1;
    }
    for (int i = 0; i < 2; i++) {
        direction *d = &c.ways[i];
        d->from = open_end(argv[1 + 2 * i], argv[2 + 2 * i]);
        d->seed = xray_mix64(strtoull(argv[5], NULL, 10), (uint64_t)i);
        c.ways[1 - i].to = d->from;
    }
    while (wait_for_frames(&c)) {
        for (int i = 0; i < 2; i++) {
            uint64_t now = read_clock();
            for (int n = 0; n < 64 && take_frame(&c, &c.ways[i], now);)
                n++;
            pass_frames(&c.ways[i], now);
        }
    }
    return 0;
}
