/* SPDX-License-Identifier: Apache-2.0
 *
 * A configuration with sums in rank order and in small pieces. Calls are
 * complete when they return, since the tests of comm-shm check results at once.
 */
#include "tests/nccl/parts.h"

nccl_config parts_config = {
    .scratch = 400000, .wait = 1, .library = FAKE_NCCL, .driver = FAKE_NCCL
};
