/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells the age of this process, and the state and the end of another one, and
 * reaps children.
 */
#ifndef XR_PROCESS_H
#define XR_PROCESS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Seconds since this process was started, rounded up by at most one clock tick
 * (10 ms); NAN if the system does not report it. */
double xr_process_age(void);
/* The state letter of /proc/PID/stat ('T': stopped, 'Z': dead, but not waited
 * for); 0 if the process does not exist. */
char xr_process_state(uint32_t pid);
/* Opens a descriptor that reports the end of another process, even after its
 * number has been reused. The caller closes it. Returns -1 for this process, or
 * if the system does not support such descriptors. */
int xr_process_open(uint32_t pid);
/* 1 if the process is dead. `file` comes from xr_process_open, or is -1. */
int xr_process_is_dead(uint32_t pid, int file);

enum {
    XR_PROCESS_RUNS,
    XR_PROCESS_ENDED, /* *out_status is that of waitpid */
    XR_PROCESS_GONE   /* other code of the program has reaped it */
};

/* Reaps a child if it has ended, and waits up to `ms` for that; 0 does not
 * wait. Returns one of the above. */
int xr_process_reap(pid_t pid, uint64_t ms, int *out_status);
/* Writes "was killed by signal 9 (Killed)" or "exited with status 1". Returns 1
 * if the process ended by itself, with status 0. */
int xr_process_describe(int status, char *out, size_t size);

#endif
