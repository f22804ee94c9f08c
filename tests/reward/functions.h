/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares the functions of the shared object of tests/reward/functions.c.
 */
#ifndef XR_REWARD_FUNCTIONS_H
#define XR_REWARD_FUNCTIONS_H

#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))

EXPORTED extern const char has_truth_sig[];
EXPORTED extern const char obey_sig[];
EXPORTED extern const char broken_sig[];

EXPORTED double has_truth(const char *response, const char *truth);
EXPORTED int weigh(int32_t finish, uint64_t id, int64_t level,
                   const char *text);
EXPORTED float add_lists(const int32_t *ids, uint64_t id_count,
                         const double *weights, uint64_t weight_count);
EXPORTED double obey(const char *response);
EXPORTED double broken(const char *response);

#endif
