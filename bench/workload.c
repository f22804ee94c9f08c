/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the prompts, turns and lines that engines are measured with.
 */
#include "bench/workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xray/numerics.h>

#include "core/base/json.h"
#include "core/base/str.h"

static uint32_t draw_between(const int64_t range[2], uint32_t what, uint32_t i)
{
    uint64_t span = (uint64_t)(range[1] - range[0]) + 1;
    return (uint32_t)range[0] +
           (uint32_t)(xray_philox(7, what, i, 0, 0).w[0] % span);
}

void workload_prompt(workload *w, const sample *s)
{
    if (s->ids)
        memcpy(w->ids, s->ids, s->prompt_tokens * sizeof(*w->ids));
    for (uint32_t t = 0; !s->ids && t < s->prompt_tokens; t++)
        w->ids[t] =
            (int32_t)(xray_philox(7, t, s->prompt, 1, 0).w[0] % w->vocab);
}

/* Writes what the environment says after a turn. */
void workload_observe(const workload *w, uint32_t i, uint32_t turn,
                      int32_t *out)
{
    for (uint32_t t = 0; t < OBSERVED; t++)
        out[t] = (int32_t)(xray_philox(7, t, i, 2, turn).w[0] % w->vocab);
}

/* Reads the prompt and the forced tokens of a line. */
static int read_bench_line(const char *line, const char *where, sample *out,
                           xr_err *err)
{
    cJSON *object = NULL;
    size_t counts[2] = { 0, 0 };
    xray_status status = xr_json_line(line, strlen(line), where, err, &object);
    if (status == XRAY_OK)
        status = xr_json_ids(xr_json_get(object, "ids"), where, err, &out->ids,
                             &counts[0]);
    if (status == XRAY_OK)
        status = xr_json_ids(xr_json_get(object, "forced"), where, err,
                             &out->forced, &counts[1]);
    cJSON_Delete(object);
    out->prompt_tokens = (uint32_t)counts[0];
    out->max_tokens = (uint32_t)counts[1];
    return status == XRAY_OK && counts[0] && counts[1] ? 0 : -1;
}

/* Makes samples of the lines of a file, at most as many as requests. */
static int read_bench_lines(workload *w, xr_err *err)
{
    FILE *file = fopen(w->how.lines, "r");
    char *line = NULL;
    size_t cap = 0;
    int bad = !file;
    w->samples = xr_calloc((size_t)w->how.requests, sizeof(*w->samples));
    while (!bad && w->samples && w->count < (uint64_t)w->how.requests &&
           getline(&line, &cap, file) > 0) {
        sample *s = &w->samples[w->count];
        s->prompt = w->count++;
        bad = read_bench_line(line, w->how.lines, s, err);
        bad |= s->prompt_tokens > w->how.prompts[1] ||
               s->max_tokens > w->how.outputs[1];
    }
    free(line);
    if (file)
        (void)fclose(file);
    return bad || !w->samples;
}

/* Tokens that a sample's row has at most. */
uint64_t workload_longest_row(const options *how)
{
    return (uint64_t)(how->prompts[1] + how->turns * how->outputs[1]) +
           (uint64_t)(how->turns - 1) * OBSERVED;
}

/* Tokens of all turns of a sample, at most. */
size_t workload_longest_sample(const options *how)
{
    return (size_t)how->turns * (size_t)how->outputs[1];
}

int workload_make(workload *w, xr_err *err)
{
    const options *how = &w->how;
    uint32_t samples = (uint32_t)how->samples;
    uint32_t same = samples * (uint32_t)how->copies;
    int read = *how->lines != '\0';
    if (read && read_bench_lines(w, err))
        return -1;
    if (!read) {
        w->count = (uint32_t)how->requests / same * same;
        w->samples = xr_calloc(w->count, sizeof(*w->samples));
    }
    w->ids = xr_calloc((size_t)workload_longest_row(how), sizeof(*w->ids));
    w->tokens = xr_calloc((size_t)w->count * workload_longest_sample(how),
                          sizeof(int32_t));
    if (!w->count || !w->samples || !w->ids || !w->tokens)
        return -1;
    for (uint32_t i = 0; i < w->count && !read; i++)
        w->samples[i] = (sample){
            .prompt = i / same,
            .prompt_tokens = draw_between(how->prompts, 2, i / same),
            .max_tokens = draw_between(how->outputs, 3, i / samples) *
                          (uint32_t)how->turns,
        };
    return 0;
}

/* Tokens of one turn of a sample. */
uint32_t workload_turn_tokens(const workload *w, const sample *s)
{
    return s->max_tokens / (uint32_t)w->how.turns;
}

/* Writes the row of sample i up to its present turn; returns its tokens. */
uint32_t workload_row(workload *w, uint32_t i)
{
    const sample *s = &w->samples[i];
    uint32_t each = workload_turn_tokens(w, s);
    uint32_t count = s->prompt_tokens;
    workload_prompt(w, s);
    for (uint32_t t = 0; t < s->turn; t++) {
        memcpy(w->ids + count,
               w->tokens + i * workload_longest_sample(&w->how) + t * each,
               each * sizeof(*w->ids));
        workload_observe(w, i, t, w->ids + count + each);
        count += each + OBSERVED;
    }
    return count;
}

void workload_free(workload *w)
{
    for (uint32_t i = 0; i < w->count && w->samples; i++) {
        free(w->samples[i].ids);
        free(w->samples[i].forced);
    }
    free(w->samples);
    free(w->ids);
    free(w->tokens);
    *w = (workload){ .count = 0 };
}
