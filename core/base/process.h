/* SPDX-License-Identifier: Apache-2.0
 *
 * What the system says of a process.
 */
#ifndef XR_PROCESS_H
#define XR_PROCESS_H

#include <stdint.h>

/* Seconds since the system started this process, too many by at most one of its
 * ticks (10 ms); NAN where it does not tell. */
double xr_process_age(void);
/* The letter of /proc/PID/stat ('T': stopped, 'Z': dead and not waited for); 0:
 * no such process. */
char xr_process_state(uint32_t pid);
/* A file that tells when another process has ended, whoever has its number
 * then; -1: this process, or the system has none. The caller closes it. */
int xr_process_open(uint32_t pid);
/* 1 if the process is dead; `file` is of xr_process_open, or -1. */
int xr_process_is_dead(uint32_t pid, int file);

#endif
