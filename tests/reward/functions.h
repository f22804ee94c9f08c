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

EXPORTED extern const char keep_d_sig[];

EXPORTED double keep_d(double x);
EXPORTED int32_t keep_i(int32_t x);
EXPORTED int64_t keep_I(int64_t x);
EXPORTED uint32_t keep_u(uint32_t x);
EXPORTED uint64_t keep_U(uint64_t x);
EXPORTED double last_d(const double *x, uint64_t count);
EXPORTED int32_t last_i(const int32_t *x, uint64_t count);
EXPORTED int64_t last_I(const int64_t *x, uint64_t count);
EXPORTED uint32_t last_u(const uint32_t *x, uint64_t count);
EXPORTED uint64_t last_U(const uint64_t *x, uint64_t count);
EXPORTED double measure(const char *text);
EXPORTED double print(const char *text);
EXPORTED double complain(const char *text);

#endif
