/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions that the two halves of the fake library share.
 */
#ifndef TEST_NCCL_FAKE_INTERNAL_H
#define TEST_NCCL_FAKE_INTERNAL_H

#include <stdatomic.h>
#include <stdint.h>

#include "tests/nccl/fake.h"

#define FAKE_API __attribute__((visibility("default")))

int fake_code(int kind);
void fake_pause(void);

#endif
