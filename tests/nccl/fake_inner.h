/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two halves of the false library share.
 */
#ifndef TEST_NCCL_FAKE_INNER_H
#define TEST_NCCL_FAKE_INNER_H

#include <stdatomic.h>
#include <stdint.h>

#include "tests/nccl/fake.h"

#define FAKE_API __attribute__((visibility("default")))

int fake_code(int kind);
void fake_pause(void);

#endif
