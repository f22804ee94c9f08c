/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells the age of this process, and the state and the end of another one.
 */
#ifndef XR_PROCESS_H
#define XR_PROCESS_H

#include <stdint.h>

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

#endif
