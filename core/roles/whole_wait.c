/* SPDX-License-Identifier: Apache-2.0
 *
 * Waits for the ranks of a WholeModel and completes their errors.
 */
#include <inttypes.h>
#include <time.h>

#include "core/base/collective.h"
#include "core/base/str.h"
#include "core/plugin/cancel.h"
#include "core/roles/whole_inner.h"

#define LOOK_MS 100      /* interval at which a wait checks the actors */
#define LOSS_NS 20000000 /* the same for an actor that may be lost */
#define LOSS_LOOKS 60

/* Appends the last collective of every rank: "rank 0 waits in all_gather of
 * 4096 bytes". */
static void append_collective_traces(const xr_whole *w, xr_err *err)
{
    xr_str text = { 0 };
    if (w->size < 2)
        return;
    for (uint32_t r = 0; r < w->size; r++) {
        const xray_comm_trace *t = xr_actor_extra_of(w->horse[r].actor);
        xr_str_printf(&text, "%srank %u ", r ? ", " : "", r);
        if (!t->calls)
            xr_str_puts(&text, "was in no collective yet");
        else if (t->state == 1 || t->state == 2)
            xr_str_printf(&text, "waits in %s of %" PRIu64 " bytes",
                          xr_collective_name(t->call), t->bytes);
        else
            xr_str_printf(&text, "%s %s of %" PRIu64 " bytes",
                          (t->state & 0xff) == 3 ? "gave up in" : "left",
                          xr_collective_name(t->call), t->bytes);
    }
    xr_err first = *err;
    (void)xr_fail(err, XRAY_E_PEER, "%s (%s)", first.text, xr_str_text(&text));
    xr_str_free(&text);
}

xray_status xr_whole_check_fit(const xr_whole *w, xr_err *err)
{
    return w->broken ? xr_fail(err, XRAY_E_PEER,
                               "the ranks are out of step after an error")
                     : XRAY_OK;
}

void xr_whole_drop_calls(xr_whole *w)
{
    for (uint32_t r = 0; r < w->size; r++) {
        xr_future_drop(w->horse[r].future);
        w->horse[r].future = NULL;
    }
}

/* Takes one answer, or returns XRAY_AGAIN. */
static xray_status take_next_answer(xr_whole *w, const xr_ranks *ranks,
                                    xr_err *err)
{
    xr_future *futures[XR_MAX_RANKS];
    size_t at = 0;
    for (uint32_t i = 0; i < ranks->count; i++)
        futures[i] = w->horse[ranks->rank[i]].future;
    xray_status status =
        xr_future_wait_any(futures, ranks->count, LOOK_MS, err, &at);
    if (status != XRAY_OK)
        return status;
    w->horse[ranks->rank[at]].future = NULL;
    return xr_future_wait(futures[at], -1, err);
}

static uint32_t count_waiting(const xr_whole *w, const xr_ranks *ranks)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < ranks->count; i++)
        count += w->horse[ranks->rank[i]].future != NULL;
    return count;
}

/* Which errors of one rank let the others finish. */
enum {
    WAIT_NO_MORE,    /* none: the others may wait for this rank */
    WAIT_IF_NUMERIC, /* that of a value, which ends no work with other ranks */
    WAIT_FOR_ALL     /* all: no rank waits for another */
};

/* `answered` says that a rank answered; otherwise the wait itself failed. The
 * ranks of a canceled run end by themselves, and in order, so that what they
 * were writing is taken away; the wait fails when they take too long, but not
 * because one of them is lost. */
static int ends_wait(xray_status status, int patience, int answered)
{
    if (status == XRAY_OK)
        return 0;
    if (xr_canceled() && answered)
        return 0;
    return status == XRAY_E_PEER || patience == WAIT_NO_MORE || xr_canceled() ||
           (patience == WAIT_IF_NUMERIC && status != XRAY_E_NUMERIC);
}

static xray_status wait_for_ranks(xr_whole *w, const xr_ranks *ranks,
                                  int patience, xr_err *err)
{
    xray_status first = XRAY_OK;
    uint32_t left = count_waiting(w, ranks);
    while (left) {
        xr_err text = { "" };
        uint32_t before = left;
        xray_status status = take_next_answer(w, ranks, &text);
        if (status == XRAY_AGAIN)
            status =
                xr_canceled() ? XRAY_OK : xr_actors_check(w->actors, &text);
        if (status != XRAY_OK && first == XRAY_OK) {
            first = status;
            *err = text;
        }
        left = count_waiting(w, ranks);
        if (ends_wait(status, patience, left < before))
            return status;
        if (first == XRAY_OK && w->beside)
            status = w->beside(w->beside_ctx, err);
        if (first == XRAY_OK && status != XRAY_OK)
            return status;
    }
    return first;
}

/* That a rank lost another one says less than what became of the process of
 * that one. Both notice a host that is silent at about the same time. */
static void prefer_lost_actor(const xr_whole *w, xr_err *err)
{
    const struct timespec pause = { .tv_nsec = LOSS_NS };
    uint32_t looks = w->run->placement.elsewhere ? LOSS_LOOKS : 1;
    xr_err lost = { "" };
    while (xr_actors_check(w->actors, &lost) != XRAY_E_PEER) {
        if (--looks == 0 || xr_canceled())
            return;
        (void)nanosleep(&pause, NULL);
    }
    *err = lost;
}

static xray_status mark_broken(xr_whole *w, xray_status status, xr_err *err)
{
    w->broken = 1;
    if (status == XRAY_E_PEER)
        prefer_lost_actor(w, err);
    xr_whole_drop_calls(w);
    if (status == XRAY_E_PEER)
        append_collective_traces(w, err);
    return status;
}

/* A call that could not be sent to a lost rank leaves the ranks out of step,
 * since others may have received theirs. */
static xray_status mark_unsent(xr_whole *w, xray_status status, xr_err *err)
{
    return w->broken ? status : mark_broken(w, status, err);
}

xray_status xr_whole_wait(xr_whole *w, const xr_ranks *ranks, xray_status sent,
                          xr_err *err)
{
    if (sent != XRAY_OK)
        return mark_unsent(w, sent, err);
    xray_status status = wait_for_ranks(w, ranks, WAIT_NO_MORE, err);
    return status == XRAY_OK ? status : mark_broken(w, status, err);
}

xray_status xr_whole_wait_each(xr_whole *w, const xr_replicas *replicas,
                               xray_status sent, xr_err *err)
{
    const xr_ranks *ranks = replicas->ranks;
    int patience = replicas->width > 1 ? WAIT_IF_NUMERIC : WAIT_FOR_ALL;
    if (sent != XRAY_OK)
        return mark_unsent(w, sent, err);
    xray_status status = wait_for_ranks(w, ranks, patience, err);
    return count_waiting(w, ranks) || status == XRAY_E_PEER || xr_canceled()
               ? mark_broken(w, status, err)
               : status;
}

void xr_whole_put_regions(xr_whole *w)
{
    for (uint32_t r = 0; r < w->size; r++) {
        xr_region_put(w->actors, w->horse[r].region);
        w->horse[r].region = NULL;
    }
}
