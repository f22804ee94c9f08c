/* SPDX-License-Identifier: Apache-2.0
 *
 * The table in which calls.c counts the calls of a run's processes, and which
 * calls_table.c prints: a file that all of them map.
 */
#ifndef XRAY_TESTS_FAULTS_CALLS_H
#define XRAY_TESTS_FAULTS_CALLS_H

#include <stdatomic.h>
#include <stdint.h>

enum {
    CALLS_FRAMES = 6,
    CALLS_KINDS = 6,
    CALLS_SITES = 4096,
    CALLS_PROCESSES = 64,
    CALLS_NAME = 28,
    CALLS_ENDS = 4000,
    /* Kinds of failure: an errno, or one of these. */
    CALLS_SHORT = 1000, /* half of the bytes are read or written */
    CALLS_MISSING       /* a symbol is not there */
};

typedef struct calls_frame {
    char module[CALLS_NAME];
    uint64_t offset;
} calls_frame;

/* One call in the sources, under one stack of callers. */
typedef struct calls_site {
    _Atomic uint64_t key; /* of command, function and frames; 0: free */
    atomic_ulong count;
    char command[CALLS_NAME];
    char function[CALLS_NAME];
    int kinds[CALLS_KINDS]; /* how it can fail; 0: no more */
    int frame_count;
    calls_frame frames[CALLS_FRAMES];
} calls_site;

typedef struct calls_process {
    _Atomic int pid;
    char command[CALLS_NAME];
    atomic_int ended; /* what follows is filled in */
    int threads;
    char files[CALLS_ENDS]; /* a line per open descriptor */
} calls_process;

typedef struct calls_table {
    atomic_int fired; /* the failure has happened */
    atomic_int process_count;
    calls_process processes[CALLS_PROCESSES];
    calls_site sites[CALLS_SITES];
} calls_table;

/* Fills in what this process leaves, at its end. */
void calls_list_ends(calls_process *self);

#endif
