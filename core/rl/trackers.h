/* SPDX-License-Identifier: Apache-2.0
 *
 * The trackers of a run: plugins that are given the metrics, histograms and
 * texts of each step. They are told and never waited for, and whatever they
 * answer, the run goes on.
 */
#ifndef XR_TRACKERS_H
#define XR_TRACKERS_H

#include "core/monitor/monitor.h"
#include "core/monitor/sample_texts.h"
#include "core/roles/samples.h"

typedef struct xr_tracker {
    const xr_part *part;
    void *self;      /* NULL: it was not created, or is not called any more */
    uint64_t losses; /* steps that it did not take */
    int told;        /* 1: a failure was reported */
} xr_tracker;

typedef struct xr_trackers {
    const xr_run *run;
    xr_monitor *monitor; /* for messages */
    xr_tracker all[XR_MAX_TRACKERS];
    size_t count;
    size_t live;               /* of them, those that are called */
    uint64_t steps;            /* that were submitted */
    xr_sample_texts texts;     /* of the step */
    xray_named_value *scalars; /* [scalar_cap] of the step */
    size_t scalar_cap;
} xr_trackers;

/* Trackers are told this about the run. */
typedef struct xr_tracked_run {
    const char *kind; /* "train" or "sft" */
    const char *run;  /* its id, or "" */
    uint64_t step;    /* of the checkpoint that it resumes from */
    int resumed;
} xr_tracked_run;

/* Creates the run's trackers. One that fails is reported and left out. */
void xr_trackers_open(xr_trackers *trackers, const xr_run *run,
                      const xr_tracked_run *about, xr_monitor *monitor);
/* Reports steps that were lost. Accepts zeros. */
void xr_trackers_close(xr_trackers *trackers);

/* Gives each tracker the step's metrics, their histograms and the texts. */
void xr_trackers_submit(xr_trackers *trackers, uint64_t step,
                        const xr_metrics *metrics);
/* Has the trackers keep what they were given, as a checkpoint follows. */
void xr_trackers_flush(xr_trackers *trackers);
/* Adds a few scored samples of a rollout to the texts. */
void xr_trackers_show(xr_trackers *trackers, const xr_samples *samples,
                      const xr_row *const *rows);

/* Asks the trackers whether they could be created; for xray check. */
void xr_trackers_probe(const xr_run *run, const xr_tracked_run *about,
                       xr_errors *errors);

#endif
