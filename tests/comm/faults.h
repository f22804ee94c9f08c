/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults that every comm plugin reports alike: scenarios for the ranks of a
 * test, and the errors that the surviving ranks must get.
 */
#ifndef TEST_COMM_FAULTS_H
#define TEST_COMM_FAULTS_H

#include "tests/comm/ranks.h"

#define AT_ONCE 3000 /* ms, far below the timeout; a loaded machine is slow */

/* The call failed as a matter of the ranks, soon, with these words. */
void faults_told(ranks_env *e, xray_status status, uint64_t start,
                 const char *words);
/* The same with more words, and the next call says so without waiting. */
void faults_ended(ranks_env *e, xray_status status, uint64_t start,
                  const char *words, const char *more);

/* Rank 0 comes when the others have given up; the timeout is 300 ms. */
void faults_late(ranks_env *e);
/* What the core sees of a rank that waits. */
void faults_traces(ranks_env *e);
/* Rank 1 dies before its call `turn` over `count` numbers. */
void faults_killed(ranks_env *e, uint64_t count, int turn);
void faults_stopped(ranks_env *e);
/* Rank 1 is told to stop while rank 2 is elsewhere. */
void faults_aborted(ranks_env *e);
/* Arguments that are wrong here end this call only. */
void faults_arguments(ranks_env *e);

/* Runs late, traces, stopped and aborted, by these names. */
void faults_run_late(void);

#endif
