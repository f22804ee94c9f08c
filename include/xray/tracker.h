/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/tracker.h - interface "xray.tracker/0": a tracker, which shows or keeps
 * what the steps of a run gave: metrics, histograms and texts.
 *
 * A tracker is told and never asked. The run submits the record of a step, does
 * not wait, and goes on whatever the tracker answers:
 *
 *     create(host, config, &setup, &self);
 *     submit(self, &step);                         after every step
 *     flush(self);                                 before every checkpoint
 *     destroy(self);
 *
 * A tracker that fails is reported once, and at the end of the run with the
 * number of steps that it lost. Only the process that drives the run has one.
 */
#ifndef XRAY_TRACKER_H
#define XRAY_TRACKER_H

#include <xray/abi.h>
#include <xray/host.h>
#include <xray/reward.h>

#define XRAY_IFACE_TRACKER "xray.tracker/0"

/* A text under a name, both UTF-8 that ends with a NUL. */
typedef struct xray_named_text {
    const char *name;
    const char *text;
    uint64_t size; /* bytes of the text without its NUL */
} xray_named_text;

/* How many values lie in each of `count` buckets. Bucket i goes from edges[i]
 * to edges[i + 1]; a value on an edge belongs to the bucket that begins with
 * it, or to the last one. */
typedef struct xray_histogram {
    const char *name;
    const double *edges;  /* [count + 1], rising and finite */
    const double *counts; /* [count], whole numbers */
    uint64_t count;       /* at least 1 */
} xray_histogram;

/* The run, as `create` and `probe` are told. All strings are UTF-8. */
typedef struct xray_track_setup {
    xray_header header;
    const char *job;     /* "train" or "sft" */
    const char *run;     /* 16 hex digits, the same after a resume; "": unknown
                          * yet */
    const char *folder;  /* of the run's checkpoints; of this run alone, since
                          * it holds a lock on it */
    const char *project; /* [trainer] project_name */
    const char *experiment; /* [trainer] experiment_name */
    /* The keys that the run's configuration sets, "actor.optim.lr", with their
     * values as text. Secrets are left out. */
    const xray_named_text *settings;
    uint64_t setting_count;
    uint64_t setting_stride; /* sizeof(xray_named_text) */
    /* Resumed: the run goes on after the checkpoint of `step`. What the tracker
     * has of later steps is of a process that was lost, and comes again, so the
     * tracker drops it. Not resumed: the run begins, and what an older run left
     * in the same place is not part of it. */
    uint64_t step;
    uint32_t resumed; /* 1 or 0 */
    uint32_t reserved;
} xray_track_setup;

/* The record of a step. Everything is borrowed for the call. */
typedef struct xray_track_step {
    xray_header header;
    uint64_t step;
    double time; /* seconds since 1970 */
    /* The metrics in the order of the line of metrics.jsonl. A value may be a
     * NaN or an infinity. */
    const xray_named_value *scalars;
    uint64_t scalar_count;
    uint64_t scalar_stride; /* sizeof(xray_named_value) */
    const xray_histogram *histograms;
    uint64_t histogram_count;
    uint64_t histogram_stride; /* sizeof(xray_histogram) */
    /* Samples, in Markdown. */
    const xray_named_text *texts;
    uint64_t text_count;
    uint64_t text_stride; /* sizeof(xray_named_text) */
} xray_track_step;

typedef struct xray_tracker_ops {
    xray_header header;

    /* Creates an instance. `config` is the filled struct of options, valid as
     * long as the instance; `setup` only during the call. If the run resumes,
     * either everything after setup->step is dropped, or nothing is and the
     * call fails. On failure *out_self is not written, and the run goes on
     * without the tracker. [control] [may-block] */
    xray_status (*create)(const xray_host *host, const void *config,
                          const xray_track_setup *setup, void **out_self);
    /* Frees the instance. Accepts NULL. [control] */
    void (*destroy)(void *self);

    /* Takes the record of a step: copies what it needs, and waits for no
     * server, process or thread. A tracker that sends its records has a thread
     * of its own and a bounded queue before it; while that is full it returns
     * XRAY_AGAIN, and the step is lost. After another failure of the hundreds
     * digit 1 the step is lost, too, and the next one is submitted; after any
     * other the instance is only destroyed. A call that takes long has the same
     * effect: a hundredth of [run] plugin_timeout is too long. [control] */
    xray_status (*submit)(void *self, const xray_track_step *step);

    /* Brings what was submitted to where a kill of this process or machine does
     * not reach it, as far as that takes no longer than a write to a disk: a
     * checkpoint follows, after which these steps do not come again. [control]
     * [may-block] */
    xray_status (*flush)(void *self);

    /* Members from here on are optional: test them with XRAY_HAS. */

    /* Finds out whether `create` would work, and changes nothing; for `xray
     * check`. setup->folder need not exist yet. [control] [may-block] */
    xray_status (*probe)(const xray_host *host, const void *config,
                         const xray_track_setup *setup);

    /* Finds an extension by its id; NULL if there is none. [any] */
    const void *(*extension)(void *self, const char *id);
} xray_tracker_ops;

#endif
