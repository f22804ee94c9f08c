/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks for tests: processes of the test's own program, or threads of it, each
 * with a device, an instance of comm and the group of all ranks.
 */
#ifndef TEST_RANKS_H
#define TEST_RANKS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include <xray/comm.h>
#include <xray/plugin.h>

#define MOST_RANKS 8
#define NOTES 64 /* 64-bit words a rank can leave for others */

/* Mapped by all ranks. */
typedef struct meeting {
    _Atomic uint32_t arrived;
    _Atomic uint32_t round;
    _Atomic uint64_t notes[MOST_RANKS][NOTES];
    char offers[MOST_RANKS][256];
    xray_comm_trace traces[MOST_RANKS];
} meeting;

typedef struct ranks_env {
    uint32_t rank;
    uint32_t size;
    meeting *all;
    xray_host host;
    char text[4096]; /* what host->fail was told last, outer reason first */
    const xray_device_ops *dev;
    void *dev_self;
    const xray_comm_ops *comm;
    void *comm_self;
    xray_comm_group *world;
    const void *comm_config;
    uint32_t brief;      /* 1: fewer elements and repetitions */
    const char *serves;  /* a device that the comm serves */
    const char *refuses; /* one that it does not */
} ranks_env;

/* The device and the comm of a rank: each program links one (parts_shm.c). */
void ranks_parts(ranks_env *e);

typedef struct scenario {
    const char *name;
    void (*run)(ranks_env *e);
    uint64_t timeout_ms;
} scenario;

/* The program's scenarios, ended by a NULL name. */
extern const scenario ranks_scenarios[];

/* Ends a rank with a message. */
void ranks_die(const ranks_env *e, const char *file, int line,
               const char *text);
#define CHECK(e, condition)                               \
    do {                                                  \
        if (!(condition))                                 \
            ranks_die(e, __FILE__, __LINE__, #condition); \
    } while (0)
#define CHECK_OK(e, call) CHECK(e, (call) == XRAY_OK)

/* In main: does not come back where this process is a rank. */
void ranks_main(int argc, char **argv);

/* Runs a scenario in `size` processes. `fates` (NULL: all end well) is a string
 * of a letter a rank: 'k' was killed, 's' was stopped and is killed at the end,
 * '.' ended well. Fails the cmocka test otherwise. */
void ranks_run(const char *name, uint32_t size, const char *fates);
/* The same in threads. */
void ranks_run_threads(const char *name, uint32_t size);

/* What a comm of this rank is created with. */
xray_comm_setup ranks_setup(ranks_env *e, uint64_t timeout_ms);

/* All ranks meet, without the comm plugin. */
void ranks_meet(ranks_env *e);

void *ranks_alloc(ranks_env *e, uint64_t bytes);
uint64_t ranks_ms(void);
void ranks_sleep_ms(uint64_t ms);
/* 1 if the last error holds it. */
int ranks_said(const ranks_env *e, const char *part);

#endif
