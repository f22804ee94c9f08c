/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes samples as JSON, and hands answers from the thread that receives them
 * to the one that polls.
 */
#include "core/base/scores.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/err.h"
#include "core/base/json.h"

#define WARNINGS 10u /* failures that are told one by one */

struct xr_score_answer {
    xr_score_answer *next;
    uint64_t id;
    cJSON *object; /* NULL: the sample failed */
    char reason[512];
};

/* ---- samples ------------------------------------------------------------ */

static void put_text(xr_str *out, const char *key, const char *text,
                     size_t size)
{
    xr_str_printf(out, ",\"%s\":", key);
    xr_str_json(out, text, size);
}

static void put_ids(xr_str *out, const char *key, const int32_t *ids,
                    uint32_t count)
{
    xr_str_printf(out, ",\"%s\":[", key);
    for (uint32_t i = 0; ids && i < count; i++)
        xr_str_printf(out, i ? ",%d" : "%d", ids[i]);
    xr_str_puts(out, "]");
}

void xr_scores_sample(const xray_sample_in *sample, int ids, xr_str *out)
{
    xr_str_printf(out, "{\"id\":%" PRIu64, sample->id);
    put_text(out, "prompt", sample->prompt, (size_t)sample->prompt_size);
    put_text(out, "response", sample->response, (size_t)sample->response_size);
    put_text(out, "ground_truth", sample->ground_truth,
             strlen(sample->ground_truth));
    put_text(out, "data_source", sample->data_source,
             strlen(sample->data_source));
    xr_str_printf(out, ",\"finish\":%u", sample->finish);
    if (ids) {
        put_ids(out, "ids", sample->ids, sample->id_count);
        put_ids(out, "prompt_ids", sample->prompt_ids, sample->prompt_id_count);
    }
    xr_str_puts(out, ",\"fields\":");
    size_t from = out->size;
    xr_str_puts(out, sample->fields_json);
    /* Line ends in JSON are only white space, but would end the line. */
    for (size_t i = from; i < out->size; i++)
        if (out->data[i] == '\n' || out->data[i] == '\r')
            out->data[i] = ' ';
    xr_str_puts(out, "}");
}

const cJSON *xr_scores_part(const cJSON *sample, const char *name)
{
    static const char *const own[] = { "id",     "prompt",      "response",
                                       "ids",    "prompt_ids",  "ground_truth",
                                       "finish", "data_source", "fields" };
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (strcmp(name, own[i]) == 0)
            return xr_json_get(sample, name);
    return xr_json_path(xr_json_get(sample, "fields"), name);
}

/* ---- answers ------------------------------------------------------------ */

int xr_scores_open(xr_scores *scores, const xray_host *host, int stops,
                   double error_score)
{
    pthread_condattr_t monotonic;
    *scores =
        (xr_scores){ .host = host, .stops = stops, .error_score = error_score };
    if (pthread_condattr_init(&monotonic))
        return -1;
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    int bad = pthread_cond_init(&scores->arrived, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    if (!bad && pthread_mutex_init(&scores->lock, NULL)) {
        (void)pthread_cond_destroy(&scores->arrived);
        bad = 1;
    }
    return bad ? -1 : 0;
}

static void free_answers(xr_score_answer *answer)
{
    while (answer) {
        xr_score_answer *next = answer->next;
        cJSON_Delete(answer->object);
        free(answer);
        answer = next;
    }
}

void xr_scores_close(xr_scores *scores)
{
    free_answers(scores->unused);
    free_answers(scores->first);
    free_answers(scores->polled);
    free(scores->values);
    (void)pthread_mutex_destroy(&scores->lock);
    (void)pthread_cond_destroy(&scores->arrived);
}

int xr_scores_expect(xr_scores *scores, uint64_t count)
{
    xr_score_answer *list = NULL;
    for (uint64_t i = 0; i < count; i++) {
        xr_score_answer *one = xr_calloc(1, sizeof(*one));
        if (!one) {
            free_answers(list);
            return -1;
        }
        one->next = list;
        list = one;
    }
    (void)pthread_mutex_lock(&scores->lock);
    while (list) {
        xr_score_answer *one = list;
        list = one->next;
        one->next = scores->unused;
        scores->unused = one;
    }
    scores->outstanding += count;
    (void)pthread_mutex_unlock(&scores->lock);
    return 0;
}

static void put_answer(xr_scores *scores, uint64_t id, cJSON *object,
                       const char *reason)
{
    (void)pthread_mutex_lock(&scores->lock);
    xr_score_answer *answer = scores->unused;
    scores->unused = answer->next;
    answer->next = NULL;
    answer->id = id;
    answer->object = object;
    (void)snprintf(answer->reason, sizeof(answer->reason), "%s", reason);
    xr_one_line(answer->reason);
    if (scores->last)
        scores->last->next = answer;
    else
        scores->first = answer;
    scores->last = answer;
    (void)pthread_cond_signal(&scores->arrived);
    (void)pthread_mutex_unlock(&scores->lock);
}

void xr_scores_fail(xr_scores *scores, uint64_t id, const char *fmt, ...)
{
    char reason[sizeof(((xr_score_answer *)0)->reason)];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(reason, sizeof(reason), fmt, args);
    va_end(args);
    put_answer(scores, id, NULL, reason);
}

static const cJSON *find_score(const cJSON *answer)
{
    return cJSON_IsObject(answer)
               ? cJSON_GetObjectItemCaseSensitive(answer, "score")
               : answer;
}

void xr_scores_put(xr_scores *scores, uint64_t id, cJSON *answer)
{
    const cJSON *score = find_score(answer);
    const char *reason = NULL;
    if (!answer)
        reason = "out of memory";
    else if (!cJSON_IsNumber(score))
        reason = "the answer has no number as its score";
    else if (!isfinite(score->valuedouble))
        reason = "the score is not a finite number";
    if (reason) {
        cJSON_Delete(answer);
        answer = NULL;
    }
    put_answer(scores, id, answer, reason ? reason : "");
}

/* Waits until an answer arrives; returns it, or NULL. */
static xr_score_answer *take_answer(xr_scores *scores, uint64_t wait_ns,
                                    int *out_more)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    wait_ns += (uint64_t)until.tv_nsec;
    until.tv_sec += (time_t)(wait_ns / 1000000000u);
    until.tv_nsec = (long)(wait_ns % 1000000000u);
    (void)pthread_mutex_lock(&scores->lock);
    while (scores->outstanding && !scores->first &&
           !pthread_cond_timedwait(&scores->arrived, &scores->lock, &until))
        ;
    xr_score_answer *found = scores->first;
    if (found) {
        scores->first = found->next;
        scores->last = scores->first ? scores->last : NULL;
        found->next = NULL;
        scores->outstanding--;
    }
    *out_more = scores->outstanding > 0;
    (void)pthread_mutex_unlock(&scores->lock);
    return found;
}

static void warn_failure(xr_scores *scores, const xr_score_answer *answer)
{
    char line[700];
    if (scores->warned >= WARNINGS)
        return;
    int last = ++scores->warned == WARNINGS;
    (void)snprintf(line, sizeof(line),
                   "sample %" PRIu64 " gets error_score %g: %s%s", answer->id,
                   scores->error_score, answer->reason,
                   last ? " (more failures are only counted)" : "");
    scores->host->log(scores->host, XRAY_LOG_WARN, line);
}

/* Collects the named values of an answer; returns -1 when out of memory. */
static int read_values(xr_scores *scores, const xr_score_answer *answer,
                       uint32_t *out_count)
{
    const cJSON *object =
        cJSON_IsObject(answer->object) ? answer->object : NULL;
    size_t most = 1 + (size_t)cJSON_GetArraySize(object);
    uint32_t count = 0;
    if (most > scores->value_cap) {
        xray_named_value *more =
            realloc(scores->values, most * sizeof(*scores->values));
        if (!more)
            return -1;
        scores->values = more;
        scores->value_cap = most;
    }
    scores->values[count++] =
        (xray_named_value){ "failed", answer->object ? 0 : 1 };
    const cJSON *item;
    cJSON_ArrayForEach(item, object)
    {
        int known = strcmp(item->string, "score") == 0 ||
                    strcmp(item->string, "failed") == 0;
        if (!known && cJSON_IsNumber(item) && isfinite(item->valuedouble))
            scores->values[count++] =
                (xray_named_value){ item->string, item->valuedouble };
    }
    *out_count = count;
    return 0;
}

xray_status xr_scores_poll(xr_scores *scores, uint64_t wait_ns, xray_score *out)
{
    int more = 0;
    uint32_t count = 0;
    xr_score_answer *answer = take_answer(scores, wait_ns, &more);
    if (!answer)
        return more ? XRAY_AGAIN : XRAY_END;
    free_answers(scores->polled);
    scores->polled = answer;
    if (!answer->object && scores->stops)
        return xr_host_fail(scores->host, XRAY_E_IO, "poll",
                            "sample %" PRIu64 ": %s", answer->id,
                            answer->reason);
    if (!answer->object)
        warn_failure(scores, answer);
    if (read_values(scores, answer, &count))
        return xr_host_fail(scores->host, XRAY_E_NOMEM, "poll",
                            "out of memory");
    const cJSON *score = find_score(answer->object);
    const xray_score own = { .header = XRAY_HEADER(xray_score),
                             .id = answer->id,
                             .score = score ? score->valuedouble
                                            : scores->error_score,
                             .values = scores->values,
                             .value_count = count,
                             .value_stride = sizeof(*scores->values) };
    xray_fill(out, &own);
    return XRAY_OK;
}
