/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells the trace what the scheduler decides: what each step computes, the
 * course of each prompt and sample, and counts of what is in use.
 */
#include <inttypes.h>
#include <stdio.h>

#include "model/serve/sched_internal.h"

/* ---- steps --------------------------------------------------------------- */

void xm_note_step(xm_sched *sched, const xm_sched_step *step, uint32_t decode)
{
    const xm_trace *trace = sched->limits.trace;
    if (!trace)
        return;
    sched->noted = (xm_noted_step){
        .begin = xm_trace_now(trace),
        .tokens = sched->followed ? step->rows : step->tokens,
        .decode = decode,
        .rows = step->rows,
        .copies = step->copy_count,
        .ahead = sched->followed,
    };
}

static void add_counts(const xm_sched *sched, double at)
{
    const xm_sched_limits *limits = &sched->limits;
    uint32_t free = sched->unused_count;
    xm_trace_add(limits->trace, 'C', at, "requests",
                 ",\"args\":{\"running\":%" PRIu32 ",\"waiting\":%" PRIu32 "}",
                 sched->live - sched->waiting.count, sched->waiting.count);
    xm_trace_add(limits->trace, 'C', at, "slots",
                 ",\"args\":{\"used\":%" PRIu32 ",\"free\":%" PRIu32 "}",
                 limits->slots - free, free);
    if (!sched->paging.blocks)
        return;
    const xm_blocks_stats *blocks = xm_blocks_stats_of(sched->paging.blocks);
    xm_trace_add(limits->trace, 'C', at, "blocks",
                 ",\"args\":{\"used\":%" PRIu32 ",\"cached\":%" PRIu32
                 ",\"free\":%" PRIu32 "}",
                 limits->paging.blocks.blocks - blocks->free, blocks->cached,
                 blocks->free - blocks->cached);
}

void xm_note_end(const xm_sched *sched)
{
    xm_trace *trace = sched->limits.trace;
    const xm_noted_step *n = &sched->noted;
    if (!trace)
        return;
    double now = xm_trace_now(trace);
    xm_trace_add(trace, 'X', n->begin, "step",
                 ",\"dur\":%" PRIu64 ",\"args\":{\"tokens\":%" PRIu32
                 ",\"decode\":%" PRIu32 ",\"prefill\":%" PRIu32
                 ",\"budget\":%" PRIu32 ",\"draws\":%" PRIu32
                 ",\"copies\":%" PRIu32 ",\"ahead\":%" PRIu32 "}",
                 (uint64_t)now - (uint64_t)n->begin, n->tokens, n->decode,
                 n->tokens - n->decode, sched->limits.step_tokens, n->rows,
                 n->copies, n->ahead);
    add_counts(sched, now);
}

void xm_note_version(const xm_sched *sched)
{
    xm_trace *trace = sched->limits.trace;
    if (trace)
        xm_trace_add(trace, 'i', xm_trace_now(trace), "version",
                     ",\"s\":\"p\",\"args\":{\"version\":%" PRIu64 "}",
                     sched->version);
}

/* ---- sequences ----------------------------------------------------------- */

/* The course of a sequence is an event "b" and one "e" of the same name and
 * identity; what happens between is an event "n". */
static void add_event(const xm_sched *sched, char phase, const char *what,
                      const xm_request *r, const xm_sample *sample,
                      uint32_t tokens, const char *why)
{
    char id[48];
    char name[64];
    if (sample)
        (void)snprintf(id, sizeof(id), "%" PRIu64 ".%" PRIu32, r->id,
                       sample->number);
    else
        (void)snprintf(id, sizeof(id), "%" PRIu64, r->id);
    (void)snprintf(name, sizeof(name), "%s %s", sample ? "sample" : "prompt",
                   id);
    xm_trace_add(sched->limits.trace, phase, xm_trace_now(sched->limits.trace),
                 phase == 'n' ? what : name,
                 ",\"cat\":\"sequence\",\"id\":\"%s\",\"args\":{\"event\":"
                 "\"%s\",\"tokens\":%" PRIu32 "%s%s%s}",
                 id, what, tokens, why ? ",\"why\":\"" : "", why ? why : "",
                 why ? "\"" : "");
}

void xm_note(const xm_sched *sched, const char *what, const xm_request *r,
             const xm_sample *sample, uint32_t tokens)
{
    if (sched->limits.trace)
        add_event(sched, 'n', what, r, sample, tokens, NULL);
}

void xm_note_start(const xm_sched *sched, xm_request *r, xm_sample *sample,
                   uint32_t tokens)
{
    uint32_t *begun = sample ? &sample->noted : &r->noted;
    if (!sched->limits.trace)
        return;
    if (*begun)
        add_event(sched, 'n', "resume", r, sample, tokens, NULL);
    else
        add_event(sched, 'b', "start", r, sample, tokens, NULL);
    *begun = 1;
}

static const char *name_finish(uint32_t finish)
{
    static const char *const names[] = {
        [XRAY_FINISH_NONE] = "drawn",    [XRAY_FINISH_STOP] = "stop",
        [XRAY_FINISH_LENGTH] = "length", [XRAY_FINISH_ABORT] = "abort",
        [XRAY_FINISH_REPEAT] = "repeat",
    };
    return names[finish];
}

void xm_note_finish(const xm_sched *sched, xm_request *r, xm_sample *sample,
                    uint32_t finish)
{
    uint32_t tokens =
        sample ? sample->token_count - sample->round_start : r->computed;
    if (!sched->limits.trace)
        return;
    if (sample && !sample->noted)
        xm_note_start(sched, r, sample, 0);
    if (sample ? sample->noted : r->noted)
        add_event(sched, 'e', "finish", r, sample, tokens, name_finish(finish));
    if (sample)
        sample->noted = 0;
    else
        r->noted = 0;
}
