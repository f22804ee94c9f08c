/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes folders of runs that were never run.
 */
#ifndef XR_TEST_MADE_UP_H
#define XR_TEST_MADE_UP_H

#include "core/base/str.h"
#include "tests/scratch.h"

typedef struct made_up {
    const char *dir; /* in the scratch folder */
    int seed;
    const char *lr;
    unsigned steps;
    double score; /* the last validation's; it begins at 0.1 */
    int samples;  /* 1: kept */
} made_up;

static inline void made_up_file(const char *dir, const char *name,
                                const xr_str *text)
{
    char path[160];
    (void)snprintf(path, sizeof path, "%.100s/%.50s", dir, name);
    (void)scratch_write(path, xr_str_text(text));
}

static inline void made_up_samples(const made_up *run, unsigned step)
{
    xr_str text = { 0 };
    char name[64];
    for (unsigned p = 0; p < 2; p++)
        for (unsigned k = 0; k < 2; k++)
            xr_str_printf(&text,
                          "{\"step\":%u,\"prompt\":\"<b>%u & %d\","
                          "\"response\":\"%s %u\",\"ground_truth\":\"%u\","
                          "\"score\":%u}\n",
                          step, p, run->seed, step > 1 ? run->lr : "same", k, p,
                          k);
    (void)snprintf(name, sizeof name, "rollout/%u.jsonl", step);
    made_up_file(run->dir, name, &text);
    xr_str_free(&text);
}

/* Writes the folder: metrics of `steps` steps, a resolved INI, samples. */
static inline void made_up_run(const made_up *run)
{
    xr_str text = { 0 };
    char path[160];
    (void)snprintf(path, sizeof path, "%.100s/rollout", run->dir);
    assert_int_equal(xr_dir_make(scratch_path(path), NULL), XRAY_OK);
    xr_str_printf(&text, "{\"step\":0,\"val-core/x/reward/mean@1\":0.1,"
                         "\"timing_s/testing\":0.5}\n");
    for (unsigned s = 1; s <= run->steps; s++) {
        double part = (double)s / run->steps;
        xr_str_printf(&text,
                      "{\"step\":%u,\"timing_s/gen\":0.25,"
                      "\"timing_s/update_actor\":0.5,\"actor/lr\":%s,"
                      "\"critic/score/mean\":%.6g,\"perf/total_num_tokens\":"
                      "100,\"perf/throughput\":80,\"timing_s/step\":1.25",
                      s, run->lr, part * run->score);
        if (s == run->steps)
            xr_str_printf(&text, ",\"val-core/x/reward/mean@1\":%.6g",
                          run->score);
        xr_str_puts(&text, "}\n");
        if (run->samples)
            made_up_samples(run, s);
    }
    made_up_file(run->dir, "metrics.jsonl", &text);
    xr_str_clear(&text);
    xr_str_printf(&text,
                  "[run]\nseed = %d\n\n[data]\ntrain_files = /rows\n\n"
                  "[actor.optim]\nlr = %s\n\n[trainer]\n"
                  "default_local_dir = /somewhere/%s\n",
                  run->seed, run->lr, run->dir);
    made_up_file(run->dir, "run.ini", &text);
    xr_str_free(&text);
}

#endif
