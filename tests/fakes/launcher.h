/* SPDX-License-Identifier: Apache-2.0
 *
 * A launcher whose engine is this process: it spawns every program here and
 * reports as an engine does, by pipes and descriptors of processes.
 */
#ifndef XR_TEST_FAKES_LAUNCHER_H
#define XR_TEST_FAKES_LAUNCHER_H

#include <sys/types.h>

#include <xray/launcher.h>

#define FAKE_PLACES 16u

typedef struct fake_place {
    pid_t pid; /* 0: none */
    int input; /* its standard input, which stays open; -1: none */
    int says;  /* what it writes to standard error; -1: its end was read */
    int end;   /* a descriptor of the process */
} fake_place;

typedef struct fake_launcher {
    const xray_host *host;
    int epoll;
    uint32_t refuses;   /* 1: `start` fails */
    uint32_t mute;      /* 1: `events` is -1 */
    const char *prefix; /* of the host's names; NULL: "fake" */
    uint32_t per_host;  /* places of each host; 0: all */
    uint32_t late;      /* looks that it takes until the next end is seen */
    fake_place place[FAKE_PLACES];
    char name[FAKE_PLACES][32];
    char text[4096]; /* of the last event */
} fake_launcher;

/* 0 or an errno. */
int fake_launcher_open(fake_launcher *self, const xray_host *host);
void fake_launcher_close(fake_launcher *self);

/* Members of a table of operations; `self` is a fake_launcher. */
const char *fake_host_of(void *self, uint32_t index);
xray_status fake_start(void *self, const xray_launch *launch);
void fake_stop(void *self, uint32_t index);
int32_t fake_events(void *self);
xray_status fake_next(void *self, xray_launch_event *out);

#endif
