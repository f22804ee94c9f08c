/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of comm-nccl for tests: a device named cuda whose memory and operators
 * are the cpu device's and whose streams are those of the false CUDA driver.
 */
#ifndef TEST_NCCL_PARTS_H
#define TEST_NCCL_PARTS_H

#include "plugins/comm-nccl/instance.h"
#include "tests/comm/ranks.h"
#include "tests/nccl/fake.h"

/* The options of every rank of the program; its file says which. */
extern nccl_config parts_config;

#endif
