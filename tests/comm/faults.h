/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults that every comm plugin reports alike: scenarios for the ranks of a
 * test, and the errors that the surviving ranks must get.
 */
#ifndef TEST_COMM_FAULTS_H
#define TEST_COMM_FAULTS_H

#include "tests/comm/ranks.h"

#define AT_ONCE \
    3000 /* ms, far below the timeout, since a loaded machine is slow */

/* Checks that the call failed with XRAY_E_PEER, soon, and with these words. */
void faults_told(ranks_env *e, xray_status status, uint64_t start,
                 const char *words);
/* The same with further words, and the next call must fail alike without
 * waiting. */
void faults_ended(ranks_env *e, xray_status status, uint64_t start,
                  const char *words, const char *more);

/* Rank 0 arrives when the others have given up; the timeout is 300 ms. */
void faults_late(ranks_env *e);
/* Checks what the core sees of a rank that waits. */
void faults_traces(ranks_env *e);
/* Rank 0 never comes to the exchange, or to the all_to_all, of the others; the
 * timeout is 300 ms. */
void faults_lonely_exchange(ranks_env *e);
void faults_lonely_all_to_all(ranks_env *e);
/* Rank 1 dies before its call number `turn`, which is over `count` numbers. */
void faults_killed(ranks_env *e, uint64_t count, int turn);
void faults_stopped(ranks_env *e);
/* Rank 1 is told to stop while rank 2 is in no call. */
void faults_aborted(ranks_env *e);
/* The host of rank 1 stops its call while rank 0 is in none: all ranks that
 * wait return the same status, and rank 0 hears it when it arrives. */
void faults_canceled(ranks_env *e);
/* Invalid arguments of this rank fail only this call. */
void faults_arguments(ranks_env *e);

/* Makes an exchange over 100 bytes to a rank and 60 from another. */
xray_status faults_exchange(ranks_env *e, uint32_t to, uint32_t from);

/* Runs the scenarios late, lonely_exchange, lonely_all_to_all, traces, stopped
 * and aborted by these names. */
void faults_run_late(void);

#endif
