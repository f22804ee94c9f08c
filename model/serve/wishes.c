/* SPDX-License-Identifier: Apache-2.0
 *
 * Carries out what requests wish of the logits: masks, biases and penalties for
 * the next draws, and log-probs beside those of the drawn tokens. All of it
 * follows from the ids of a row and is made anew for every draw, so that
 * nothing has to be kept for samples that wait or are extended.
 */
#include <string.h>

#include "model/serve/sched_internal.h"

/* ---- a copy of the wishes ----------------------------------------------- */

/* Copies an array to the offset *end of a block (NULL: only counts it). */
static void *copy_array(unsigned char *block, size_t *end, const void *from,
                        size_t bytes)
{
    size_t at = *end;
    *end = (at + bytes + 7) & ~(size_t)7;
    if (!block || !bytes)
        return NULL;
    return memcpy(block + at, from, bytes);
}

static xray_bias *copy_biases(const xray_request *from, unsigned char *block,
                              size_t *end)
{
    const unsigned char *at = (const unsigned char *)from->biases;
    xray_bias *first = NULL;
    for (uint32_t i = 0; i < from->bias_count; i++) {
        void *copy = copy_array(block, end, at + (size_t)i * from->bias_stride,
                                sizeof(xray_bias));
        first = first ? first : copy;
    }
    return first;
}

static xray_id_list *copy_banned(const xray_request *from, unsigned char *block,
                                 size_t *end)
{
    xray_id_list *lists = block ? (void *)(block + *end) : NULL;
    *end += from->banned_list_count * sizeof(*lists);
    for (uint32_t i = 0; i < from->banned_list_count; i++) {
        const xray_id_list *list =
            xm_list_at(from->banned_lists, from->banned_list_stride, i);
        const int32_t *ids =
            copy_array(block, end, list->ids, list->count * sizeof(*ids));
        if (lists)
            lists[i] = (xray_id_list){ .ids = ids, .count = list->count };
    }
    return lists;
}

static uint32_t count_words(const xm_limits *limits)
{
    return (limits->vocab + 31) / 32;
}

static void mark_id(uint32_t *set, int32_t id)
{
    set[id / 32] |= UINT32_C(1) << id % 32;
}

static void unmark_id(uint32_t *set, int32_t id)
{
    set[id / 32] &= ~(UINT32_C(1) << id % 32);
}

static uint32_t *copy_allowed(const xray_request *from, const xm_limits *limits,
                              unsigned char *block, size_t *end)
{
    if (!from->allowed_count)
        return NULL;
    uint32_t *set = block ? (void *)(block + *end) : NULL;
    size_t bytes = count_words(limits) * sizeof(*set);
    *end += (bytes + 7) & ~(size_t)7;
    if (!set)
        return NULL;
    memset(set, 0, bytes);
    for (uint32_t i = 0; i < from->allowed_count; i++)
        mark_id(set, from->allowed_ids[i]);
    return set;
}

/* Each bias is 8 bytes, so that the copies of them lie side by side. */
size_t xm_wishes_copy(const xray_request *from, const xm_limits *limits,
                      unsigned char *block, size_t end, xm_wishes *out)
{
    const size_t id = sizeof(int32_t);
    const xm_wishes own = {
        .biases = copy_biases(from, block, &end),
        .banned = copy_banned(from, block, &end),
        .allowed = copy_allowed(from, limits, block, &end),
        .forced =
            copy_array(block, &end, from->forced_ids, from->forced_count * id),
        .logp_ids =
            copy_array(block, &end, from->logp_ids, from->logp_id_count * id),
        .bias_count = from->bias_count,
        .banned_count = from->banned_list_count,
        .forced_count = from->forced_count,
        .logp_id_count = from->logp_id_count,
        .top_count = from->top_count,
        .min_tokens = from->min_tokens,
        .repetition = xray_is_set(from->repetition_penalty, 1)
                          ? from->repetition_penalty
                          : 0,
        .frequency = from->frequency_penalty,
        .presence = from->presence_penalty,
    };
    if (out)
        *out = own;
    return end;
}

/* ---- the logits of a draw ----------------------------------------------- */

static int is_forced(const xm_sample *sample)
{
    return sample->token_count < sample->request->wishes.forced_count;
}

static int is_too_short_to_stop(const xm_sample *sample)
{
    return sample->request->stop_count &&
           sample->token_count - sample->round_start <
               sample->request->wishes.min_tokens;
}

static int has_penalties(const xm_wishes *w)
{
    return xray_is_set(w->repetition, 0) || xray_is_set(w->frequency, 0) ||
           xray_is_set(w->presence, 0);
}

int xm_sample_needs_logits(const xm_sample *sample)
{
    const xm_wishes *w = &sample->request->wishes;
    return w->allowed || w->bias_count || w->banned_count || w->top_count ||
           w->logp_id_count || has_penalties(w) || is_forced(sample) ||
           is_too_short_to_stop(sample);
}

/* Unmarks the last ids of lists whose other ids the sample ends with. */
static void ban_ends_of_lists(const xm_sample *sample, uint32_t *set)
{
    const xm_wishes *w = &sample->request->wishes;
    const int32_t *tokens = sample->tokens + sample->round_start;
    uint32_t count = sample->token_count - sample->round_start;
    for (uint32_t i = 0; i < w->banned_count; i++) {
        uint32_t before = w->banned[i].count - 1;
        if (before <= count && memcmp(tokens + count - before, w->banned[i].ids,
                                      before * sizeof(*tokens)) == 0)
            unmark_id(set, w->banned[i].ids[before]);
    }
}

/* Makes the set of ids that the sample's next token may be. Returns 0 if that
 * is every id. */
static int fill_set(const xm_limits *limits, const xm_sample *sample,
                    uint32_t *set)
{
    const xm_request *r = sample->request;
    const xm_wishes *w = &r->wishes;
    size_t bytes = count_words(limits) * sizeof(*set);
    if (is_forced(sample)) {
        memset(set, 0, bytes);
        mark_id(set, w->forced[sample->token_count]);
        return 1;
    }
    int is_short = is_too_short_to_stop(sample);
    if (!w->allowed && !w->banned_count && !is_short)
        return 0;
    memset(set, 0xff, bytes);
    if (w->allowed)
        memcpy(set, w->allowed, bytes);
    ban_ends_of_lists(sample, set);
    for (uint32_t i = 0; i < r->stop_count && is_short; i++)
        if (r->stop_ids[i] >= 0 && (uint32_t)r->stop_ids[i] < limits->vocab)
            unmark_id(set, r->stop_ids[i]);
    return 1;
}

/* Adds an edit for each id that has none yet, and to `seen` what one of its
 * occurrences counts. The memory of `seen` is 1 + the count of an id with an
 * edit, and 0 otherwise. */
static uint32_t note_ids(uint32_t *seen, const int32_t *ids, uint32_t count,
                         uint32_t each, xray_logit_edit *edits, uint32_t n)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!seen[ids[i]]) {
            seen[ids[i]] = 1;
            edits[n++].id = ids[i];
        }
        seen[ids[i]] += each;
    }
    return n;
}

static uint32_t add_penalties(uint32_t *seen, const xm_sample *sample,
                              xray_logit_edit *edits)
{
    const xm_request *r = sample->request;
    const xm_wishes *w = &r->wishes;
    uint32_t n = 0;
    if (!has_penalties(w))
        return 0;
    if (xray_is_set(w->repetition, 0)) {
        n = note_ids(seen, r->ids, r->id_count, 0, edits, n);
        n = note_ids(seen, sample->row,
                     sample->row ? sample->row_count - r->id_count : 0, 0,
                     edits, n);
    }
    n = note_ids(seen, sample->tokens, sample->token_count, 1, edits, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t times = seen[edits[i].id] - 1;
        double less = (double)w->frequency * times;
        edits[i].penalty = w->repetition;
        edits[i].add = -(float)(less + (times ? (double)w->presence : 0));
        seen[edits[i].id] = 0;
    }
    return n;
}

static uint32_t add_edits(uint32_t *seen, const xm_sample *sample,
                          xray_logit_edit *edits)
{
    const xm_wishes *w = &sample->request->wishes;
    if (is_forced(sample))
        return 0;
    for (uint32_t i = 0; i < w->bias_count; i++)
        edits[i] = (xray_logit_edit){ .id = w->biases[i].id,
                                      .add = w->biases[i].bias };
    return w->bias_count + add_penalties(seen, sample, edits + w->bias_count);
}

uint64_t xm_sched_edits(const xm_limits *limits)
{
    uint32_t ids =
        limits->row_bound < limits->vocab ? limits->row_bound : limits->vocab;
    return (uint64_t)XM_LOGIT_DRAWS * (ids + XM_MAX_BIASES);
}

int xm_sched_changes(xm_sched *sched, xm_changes *out)
{
    const xm_limits *limits = &sched->limits.request;
    uint32_t at = sched->answer_at;
    uint32_t number = sched->answer_sample;
    uint32_t edits = 0;
    out->set_count = out->top_count = out->logp_id_count = 0;
    if (!sched->issued_logits)
        return 0;
    for (uint32_t i = 0; i < sched->issued; i++) {
        xm_sample then;
        const xm_sample *sample = &then;
        (void)xm_sched_next_draw(sched, &at, &number, &then);
        const xm_wishes *w = &sample->request->wishes;
        uint32_t *set =
            out->allowed + (size_t)out->set_count * count_words(limits);
        int has_set = fill_set(limits, sample, set);
        out->allowed_set[i] = has_set ? (int32_t)out->set_count++ : -1;
        out->edit_start[i] = (int32_t)edits;
        edits += add_edits(sched->seen, sample, out->edits + edits);
        if (w->top_count > out->top_count)
            out->top_count = w->top_count;
        if (w->logp_id_count > out->logp_id_count)
            out->logp_id_count = w->logp_id_count;
    }
    out->edit_start[sched->issued] = (int32_t)edits;
    return 1;
}

void xm_sched_logp_ids(const xm_sched *sched, uint32_t stride, int32_t *ids)
{
    uint32_t at = sched->answer_at;
    uint32_t number = sched->answer_sample;
    for (uint32_t i = 0; i < sched->issued; i++) {
        xm_sample then;
        (void)xm_sched_next_draw(sched, &at, &number, &then);
        const xm_wishes *w = &then.request->wishes;
        for (uint32_t k = 0; k < stride; k++)
            *ids++ = k < w->logp_id_count ? w->logp_ids[k] : -1;
    }
}

/* ---- further log-probs -------------------------------------------------- */

void xm_sched_take_top(xm_sched *sched, uint32_t stride, const int32_t *ids,
                       const float *logp)
{
    uint32_t at = sched->answer_at;
    uint32_t number = sched->answer_sample;
    for (uint32_t i = 0; i < sched->issued; i++) {
        xm_sample then;
        const xm_sample *sample = &then;
        (void)xm_sched_next_draw(sched, &at, &number, &then);
        size_t count = sample->request->wishes.top_count;
        size_t to = sample->token_count * count;
        memcpy(sample->top_ids + to, ids + (size_t)i * stride,
               count * sizeof(*ids));
        memcpy(sample->top_logp + to, logp + (size_t)i * stride,
               count * sizeof(*logp));
    }
}

void xm_sched_take_logp(xm_sched *sched, uint32_t stride, const float *logp)
{
    uint32_t at = sched->answer_at;
    uint32_t number = sched->answer_sample;
    for (uint32_t i = 0; i < sched->issued; i++) {
        xm_sample then;
        const xm_sample *sample = &then;
        (void)xm_sched_next_draw(sched, &at, &number, &then);
        size_t count = sample->request->wishes.logp_id_count;
        memcpy(sample->logp_of_ids + sample->token_count * count,
               logp + (size_t)i * stride, count * sizeof(*logp));
    }
}

/* ---- log-probs of prompts ----------------------------------------------- */

uint32_t xm_sched_scores(xm_sched *sched, int32_t *index, int32_t *ids,
                         int *out_run)
{
    uint32_t n = 0;
    int run = 1;
    for (uint32_t at = sched->score_at;
         at < sched->score_count && n < XM_LOGIT_DRAWS; at++, n++) {
        const xm_score *score = &sched->scores[at];
        index[n] = (int32_t)score->entry;
        ids[n] = score->request->ids[score->position];
        run = run && index[n] == index[0] + (int32_t)n;
    }
    sched->issued = n;
    *out_run = run;
    return n;
}

void xm_sched_take_scores(xm_sched *sched, const float *logp)
{
    for (uint32_t i = 0; i < sched->issued; i++) {
        const xm_score *score = &sched->scores[sched->score_at++];
        score->request->prompt_logp[score->position] = logp[i];
        score->request->scored = score->position + 1;
    }
    sched->issued = 0;
}
