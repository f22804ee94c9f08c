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
#include <xray/services.h>

#define MOST_RANKS 8
#define NOTES 64 /* 64-bit words that a rank can leave for the others */

/* The record of a rank in a host whose traces are longer than the plugin
 * knows; nobody writes `rest`. */
typedef struct comm_record {
    xray_comm_trace own;
    uint64_t rest[3];
} comm_record;

/* Shared by all ranks. */
typedef struct meeting {
    _Atomic uint32_t arrived;
    _Atomic uint32_t round;
    _Atomic uint64_t notes[MOST_RANKS][NOTES];
    char offers[MOST_RANKS][256];
    comm_record traces[MOST_RANKS];
    _Atomic uint64_t jump; /* ns by which programs advance the clock */
} meeting;

/* ThreadSanitizer finds nothing among processes. */
#ifdef __SANITIZE_THREAD__
#define SEES_THREADS_ONLY 1
#else
#define SEES_THREADS_ONLY 0
#endif

typedef struct ranks_env {
    uint32_t rank;
    uint32_t size;
    uint64_t argument; /* what follows the scenario's name: "name:12" */
    meeting *all;
    xray_host host;
    xray_call_service calls;  /* that the host has */
    _Atomic uint64_t stop_ms; /* ranks_ms() from which it says stop; 0: never */
    char text[4096];          /* texts of host->fail, the outer reason first */
    const xray_device_ops *dev;
    void *dev_self;
    const xray_comm_ops *comm;
    void *comm_self;
    xray_comm_group *world;
    float *one; /* of ranks_barrier */
    const void *comm_config;
    const void *other_config; /* with which calls may end later, or NULL */
    uint32_t shares_process;  /* 1: the ranks are threads */
    uint32_t brief;           /* 1: fewer elements and repetitions */
    uint32_t sends_copies;    /* 1: ranks read no memory of each other */
    uint32_t compares_not;    /* 1: nor their calls */
    const char *serves;       /* a device that the plugin serves */
    const char *refuses;      /* a device that it does not serve */
} ranks_env;

/* The device and the plugin of a rank; each program links one definition
 * (parts_shm.c). */
void ranks_parts(ranks_env *e);

typedef struct scenario {
    const char *name;
    void (*run)(ranks_env *e);
    uint64_t timeout_ms;
} scenario;

/* The scenarios of the program; a NULL name ends the list. */
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

#define RANKS_LIMIT_MS 100000u /* in which every scenario ends */

/* Makes the device, the instance and the group of all ranks, and runs the
 * scenario; then frees them. */
void ranks_play(ranks_env *e, const char *name);
void ranks_close(ranks_env *e);

/* Call this in main: it does not return if the process is a rank. */
void ranks_main(int argc, char **argv);

/* Runs a scenario in `size` processes. `fates` (NULL: all end well) has one
 * letter per rank: 'k' was killed, 's' was stopped and is killed at the end,
 * '.' ended well. Otherwise the cmocka test fails. */
void ranks_run(const char *name, uint32_t size, const char *fates);
/* The letter of a rank that exits in the middle of a scenario. */
extern const char ranks_exited;
/* The same in threads. */
void ranks_run_threads(const char *name, uint32_t size);

/* Returns the setup with which this rank's comm is created. */
xray_comm_setup ranks_setup(ranks_env *e, uint64_t timeout_ms);

/* Waits until all ranks are here, without the plugin. */
void ranks_meet(ranks_env *e);

/* A call that every rank of the group has reached when it is done: all_reduce
 * of 4 bytes of f32. */
xray_status ranks_barrier(ranks_env *e, xray_comm_group *group);

void *ranks_alloc(ranks_env *e, uint64_t bytes);
uint64_t ranks_ms(void);
void ranks_sleep_ms(uint64_t ms);
/* Returns 1 if the last error contains the words. */
int ranks_said(const ranks_env *e, const char *part);

#endif
