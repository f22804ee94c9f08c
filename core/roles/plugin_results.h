/* SPDX-License-Identifier: Apache-2.0
 *
 * What plugins hand back, checked before it is used: sizes, counts, tables. A
 * plugin that is wrong about them would make the core read past their ends.
 */
#ifndef XR_PLUGIN_RESULTS_H
#define XR_PLUGIN_RESULTS_H

#include "core/roles/roles.h"

/* Most bytes of a context and of an algorithm's state. */
#define XR_BLOB_MOST (UINT64_C(1) << 30)
/* Most names that an algorithm or a reward may have. */
#define XR_NAMES_MOST 1024u

/* `size` bytes are asked for: not more than XR_BLOB_MOST. */
xray_status xr_check_wanted_size(const xr_part *part, const char *call,
                                 uint64_t size, xr_err *err);
/* `size` bytes are said to be written where `cap` fit. */
xray_status xr_check_written_size(const xr_part *part, const char *call,
                                  uint64_t size, uint64_t cap, xr_err *err);
/* Counts the names of a list that ends with NULL. */
xray_status xr_check_metric_names(const xr_part *part, const char *const *names,
                                  xr_err *err, uint64_t *out_count);
/* What an algorithm needs: bits that are known, and what goes with them. */
xray_status xr_check_needs(const xr_part *part, uint32_t flags, xr_err *err);
/* A table of weights whose memory may be read. */
xray_status xr_check_weights_table(const xr_part *part,
                                   const xray_weights *table, xr_err *err);
/* A finished sample of at most `most` tokens, number `at`: ids that are tokens,
 * `logp` (one of the sample's arrays) finite, spans there, an end that is one.
 */
xray_status xr_check_sample(xr_roles *roles, const xray_sample_out *sample,
                            const float *logp, uint64_t at, uint32_t most,
                            xr_err *err);

#endif
