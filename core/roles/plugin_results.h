/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks what plugins return before it is used: sizes, counts and tables. A
 * wrong one would make the core read out of bounds.
 */
#ifndef XR_PLUGIN_RESULTS_H
#define XR_PLUGIN_RESULTS_H

#include "core/roles/roles.h"

/* The most bytes of a loss's context and of an algorithm's state. */
#define XR_BLOB_MOST (UINT64_C(1) << 30)
/* The most metric names that an algorithm or a reward may have. */
#define XR_NAMES_MOST 1024u

/* Checks that a plugin asks for at most XR_BLOB_MOST bytes. */
xray_status xr_check_wanted_size(const xr_part *part, const char *call,
                                 uint64_t size, xr_err *err);
/* Checks that a plugin wrote at most `cap` bytes. */
xray_status xr_check_written_size(const xr_part *part, const char *call,
                                  uint64_t size, uint64_t cap, xr_err *err);
/* Counts the metric names in a list that ends with NULL. */
xray_status xr_check_metric_names(const xr_part *part, const char *const *names,
                                  xr_err *err, uint64_t *out_count);
/* Checks that the needs of an algorithm are known, and that it has the
 * callbacks that go with them. */
xray_status xr_check_needs(const xr_part *part, uint32_t flags, xr_err *err);
/* Checks a table of weights, so that its memory may be read. */
xray_status xr_check_weights_table(const xr_part *part,
                                   const xray_weights *table, xr_err *err);
/* Checks finished sample number `at`, of at most `most` tokens: the ids are in
 * the vocabulary, `logp` (one of the sample's arrays) is finite, spans exist,
 * and the reason for its end is known. */
xray_status xr_check_sample(xr_roles *roles, const xray_sample_out *sample,
                            const float *logp, uint64_t at, uint32_t most,
                            xr_err *err);
/* Checks the same of a part of a streamed sample, after parts with `given`
 * tokens: it begins where they end, and only the last part may be empty. */
xray_status xr_check_sample_part(xr_roles *roles, const xray_sample_out *part,
                                 const float *logp, uint64_t at, uint32_t given,
                                 uint32_t most, xr_err *err);

#endif
