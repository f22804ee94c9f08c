/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples as texts in Markdown, which trackers get.
 */
#ifndef XR_SAMPLE_TEXTS_H
#define XR_SAMPLE_TEXTS_H

#include <xray/tracker.h>

#include "core/monitor/samples_table.h"

/* The texts of a step. Initialise it with zeros. Memory of an earlier step is
 * used again. */
typedef struct xr_sample_texts {
    struct xr_sample_text *items; /* [cap] */
    xray_named_text *list;        /* [cap]; the first `count` are in use */
    size_t count;
    size_t cap;
    int failed; /* 1: memory ran out, so that texts are missing */
} xr_sample_texts;

void xr_sample_texts_free(xr_sample_texts *texts);
void xr_sample_texts_clear(xr_sample_texts *texts);

/* Adds a sample as samples/KIND/NUMBER. Of prompt, answer and ground truth
 * 8 KiB are kept each, of a prompt those at its end. */
void xr_sample_texts_add(xr_sample_texts *texts, const char *kind,
                         size_t number, const xr_shown_sample *sample);

#endif
