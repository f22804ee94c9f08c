/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts processes by mpirun, where there is one.
 */
#ifndef TEST_MPI_COMM_LAUNCH_H
#define TEST_MPI_COMM_LAUNCH_H

#include "tests/comm/ranks.h"

/* Runs a scenario in processes of their own, none of which initializes MPI
 * before its comm is created. All must end well. */
void launch_late(const char *name, uint32_t size);

/* Starts `size` processes of a command, whose last argument is NULL, and
 * returns mpirun's process, the leader of a group. Ends the suite with 77 where
 * there is no mpirun. */
pid_t launch_mpirun(uint32_t size, char *const *command);

#endif
