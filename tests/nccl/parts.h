/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of comm-nccl for tests: a device named cuda that has the memory and
 * operators of the cpu device and the streams of the fake CUDA driver.
 */
#ifndef TEST_NCCL_PARTS_H
#define TEST_NCCL_PARTS_H

#include "plugins/comm-nccl/instance.h"
#include "tests/comm/ranks.h"
#include "tests/nccl/fake.h"

/* The options of all ranks of the program, defined in its own file. */
extern nccl_config parts_config;

#endif
