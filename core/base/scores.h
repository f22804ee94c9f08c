/* SPDX-License-Identifier: Apache-2.0
 *
 * Serves rewards whose work is done elsewhere: writes the JSON object of a
 * sample, and keeps answers that arrive on another thread until poll takes
 * them.
 */
#ifndef XR_SCORES_H
#define XR_SCORES_H

#include <cjson/cJSON.h>
#include <pthread.h>

#include <xray/reward.h>

#include "core/base/str.h"

/* Appends a sample as one line of JSON without its end: {"id", "prompt",
 * "response", "ground_truth", "data_source", "finish", "fields"}, where finish
 * is a number and fields is the data row, and with `ids` also "ids" and
 * "prompt_ids". */
void xr_scores_sample(const xray_sample_in *sample, int ids, xr_str *out);
/* Returns a part of such an object by its name, any other name being a field of
 * the data row, where a point leads into an object; NULL if there is none. */
const cJSON *xr_scores_part(const cJSON *sample, const char *name);

typedef struct xr_score_answer xr_score_answer;

/* The scores of one instance. A sample that could not be scored ends poll with
 * its sentence if `stops`; otherwise it gets `error_score`. Every answer has
 * the named value "failed", 0 or 1. */
typedef struct xr_scores {
    const xray_host *host;
    double error_score;
    int stops;
    unsigned warned;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t arrived;
    xr_score_answer *unused;
    xr_score_answer *first; /* arrived, not polled; last is the newest */
    xr_score_answer *last;
    uint64_t outstanding;
    xr_score_answer *polled; /* whose values the last poll gave */
    xray_named_value *values;
    size_t value_cap;
} xr_scores;

/* Returns 0, or -1 when out of memory; then there is nothing to close. */
int xr_scores_open(xr_scores *scores, const xray_host *host, int stops,
                   double error_score);
void xr_scores_close(xr_scores *scores);
/* Says that `count` answers will come, and takes the memory for them. Returns
 * 0, or -1 when out of memory. */
int xr_scores_expect(xr_scores *scores, uint64_t count);
/* Gives the answer of a sample, which xr_scores_expect announced: a number, or
 * an object with a number "score", whose other numbers are named values. Takes
 * the ownership of `answer`; NULL is out of memory. Every other answer, and a
 * score that is not finite, is a failure of the sample. May be called on any
 * thread. */
void xr_scores_put(xr_scores *scores, uint64_t id, cJSON *answer);
/* Gives the reason why the sample has no score. May be called on any thread. */
XRAY_PRINTF(3, 4)
void xr_scores_fail(xr_scores *scores, uint64_t id, const char *fmt, ...);
/* The callback `poll` of xray/reward.h. */
xray_status xr_scores_poll(xr_scores *scores, uint64_t wait_ns,
                           xray_score *out);

#endif
