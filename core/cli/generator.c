/* SPDX-License-Identifier: Apache-2.0
 *
 * Has the engine generate samples, watches the text of those that are streamed,
 * and ends a sample at its stop text.
 */
#include <stdlib.h>
#include <string.h>

#include "core/cli/generator.h"
#include "core/roles/engine.h"
#include "core/roles/plugin_results.h"

/* Sequences in parallel; further ones wait in the engine. */
static const uint64_t MAX_SEQUENCES = 32;

uint64_t cli_generator_row(const cli_generator *g, const cli_item *item)
{
    const cli_prompt *p = item->own;
    uint64_t most = g->tool.run->actor.model.max_positions;
    uint64_t row = (uint64_t)item->count + (uint64_t)p->how.max_tokens;
    if (p->after != CLI_NO_ANSWER)
        row += g->answers.list[p->after].most;
    return row < most ? row : most;
}

/* Returns the XRAY_INFER_* that stop texts need beyond the request. */
static uint64_t needs_of_stops(const cli_args *how)
{
    return how->stops.count ? XRAY_INFER_ABORT_SAMPLE : 0;
}

xray_status cli_generator_watches(const cli_generator *g, const char *what,
                                  const cli_args *how, xr_err *err)
{
    const xray_request request = { .stream = 1 };
    if (!g->tool.tokenizer)
        return xr_fail(err, XRAY_E_CONFIG, "%s needs a tokenizer: %s", what,
                       g->tool.tokenizer_err.text);
    if (xr_engine_serves(g->tool.run, &request, needs_of_stops(how), err) ==
        XRAY_OK)
        return XRAY_OK;
    return xr_fail_in(err, XRAY_E_CONFIG, "%s", what);
}

/* Puts the row that a line goes on from before the line's own ids. */
static xray_status join_answer(const cli_generator *g, cli_item *item,
                               xr_err *err)
{
    cli_prompt *p = item->own;
    size_t most = g->tool.run->actor.model.max_positions - 1;
    xray_status status = cli_answers_need(&g->answers, p->after, err);
    if (status != XRAY_OK)
        return status;
    const cli_answer *answer = &g->answers.list[p->after];
    size_t count = answer->count + item->count;
    if (count > most)
        return xr_fail(err, XRAY_E_ARG,
                       "%zu tokens after the answer that it goes on from, at "
                       "most %zu are possible with this model",
                       count, most);
    int32_t *ids = xr_calloc(count, sizeof *ids);
    if (!ids)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    memcpy(ids, answer->ids, answer->count * sizeof *ids);
    if (item->count)
        memcpy(ids + answer->count, item->ids, item->count * sizeof *ids);
    free(item->ids);
    item->ids = ids;
    item->count = count;
    p->after = CLI_NO_ANSWER;
    return XRAY_OK;
}

/* Makes a line's row complete, and room for what is said about it. */
static xray_status complete_row(const cli_generator *g, cli_item *item,
                                xr_err *err)
{
    cli_prompt *p = item->own;
    xray_status status =
        p->after == CLI_NO_ANSWER ? XRAY_OK : join_answer(g, item, err);
    if (status != XRAY_OK || !p->wishes.prompt_logp)
        return status;
    p->prompt_logp = xr_calloc(item->count, sizeof *p->prompt_logp);
    return p->prompt_logp ? XRAY_OK
                          : xr_fail(err, XRAY_E_NOMEM, "out of memory");
}

static xray_status submit_row(const cli_generator *g, const cli_item *item,
                              uint64_t id, xr_err *err)
{
    const cli_prompt *p = item->own;
    const xr_roles *roles = g->tool.roles;
    xray_request request = {
        .header = XRAY_HEADER(xray_request),
        .id = id,
        .ids = item->ids,
        .id_count = (uint32_t)item->count,
        .count = (uint32_t)p->how.n,
        .max_tokens = (uint32_t)(cli_generator_row(g, item) - item->count),
        .seed = (uint64_t)p->how.seed,
        .prompt_id = item->number,
        .temperature = (float)p->how.temperature,
        .top_p = (float)p->how.top_p,
        .min_p = (float)p->how.min_p,
        .top_k = (int32_t)p->how.top_k,
        .repetition_penalty = (float)p->how.repetition_penalty,
        .frequency_penalty = (float)p->how.frequency_penalty,
        .presence_penalty = (float)p->how.presence_penalty,
        .min_tokens = (uint32_t)p->how.min_tokens,
        .repeat_size = (uint32_t)p->how.repeat_size,
        .repeat_count = (uint32_t)p->how.repeat_count,
        .stream = (uint32_t)p->watched,
    };
    cli_wishes_fill(&p->wishes, &request);
    xray_status status = xr_engine_serves(g->tool.run, &request, 0, err);
    if (status != XRAY_OK)
        return status;
    status =
        XR_CALL(roles->engine.part, "submit",
                xr_infer(roles->run)->submit(roles->engine.self, &request));
    return status == XRAY_OK
               ? XRAY_OK
               : xr_host_error(roles->engine.part->host, status, "submit", err);
}

static int is_waiting(const cli_generator *g, const cli_item *item)
{
    const cli_prompt *p = item->own;
    return p->after != CLI_NO_ANSWER &&
           g->answers.list[p->after].state == CLI_ANSWER_COMING;
}

/* Submits the lines that wait for no answer any more, in their order; *left
 * loses the samples of those that are refused. Returns their number. */
static size_t submit_lines(cli_generator *g, cli_item *items, size_t count,
                           uint64_t *left)
{
    size_t submitted = 0;
    for (size_t i = 0; i < count; i++) {
        cli_prompt *p = items[i].own;
        xr_err err = { "" };
        if (items[i].error || p->submitted || is_waiting(g, &items[i]))
            continue;
        p->submitted = 1;
        submitted++;
        xray_status status = complete_row(g, &items[i], &err);
        if (status == XRAY_OK)
            status = submit_row(g, &items[i], i, &err);
        if (status == XRAY_OK)
            continue;
        cli_item_refused(&g->tool, &items[i], &err);
        *left -= (uint64_t)p->how.n;
        if (p->own != CLI_NO_ANSWER)
            g->answers.list[p->own].state = CLI_ANSWER_NONE;
    }
    return submitted;
}

static int report_engine_failure(const xr_roles *roles, xray_status status,
                                 const char *call)
{
    xr_err err = { "" };
    (void)xr_host_error(roles->engine.part->host, status, call, &err);
    (void)cli_fail(status, &err);
    return CLI_FAILED;
}

/* ---- samples ------------------------------------------------------------ */

/* Gives an array room for so many numbers of 4 bytes. */
static void *grow_array(void *array, size_t count, int *failed)
{
    void *more = count ? realloc(array, count * sizeof(float)) : NULL;
    *failed |= count && !more;
    return more ? more : array;
}

static int reserve_tokens(const cli_prompt *p, cli_sample *s, size_t more)
{
    size_t top = p->wishes.top_count;
    size_t need = s->count + more;
    size_t cap = s->cap < 16 ? 16 : s->cap;
    int failed = 0;
    while (cap < need)
        cap *= 2;
    if (need <= s->cap)
        return CLI_OK;
    s->ids = grow_array(s->ids, cap, &failed);
    s->logp = grow_array(s->logp, cap, &failed);
    s->top_ids = grow_array(s->top_ids, cap * top, &failed);
    s->top_logp = grow_array(s->top_logp, cap * top, &failed);
    s->picked = grow_array(s->picked, cap * p->wishes.picked.count, &failed);
    if (failed) {
        cli_say("out of memory");
        return CLI_FAILED;
    }
    s->cap = cap;
    return CLI_OK;
}

/* Stores the log-probs that token i of a part has beside its own. */
static void take_wishes(const cli_prompt *p, const xray_sample_out *out,
                        uint32_t i, cli_sample *s)
{
    size_t top = p->wishes.top_count;
    size_t picked = p->wishes.picked.count;
    if (top) {
        memcpy(s->top_ids + s->count * top, out->top_ids + i * top,
               top * sizeof *s->top_ids);
        memcpy(s->top_logp + s->count * top, out->top_logp + i * top,
               top * sizeof *s->top_logp);
    }
    if (picked)
        memcpy(s->picked + s->count * picked, out->logp_of_ids + i * picked,
               picked * sizeof *s->picked);
}

/* Whether a part has the log-probs that were asked for. */
static int has_wishes(const cli_wishes *w, size_t id_count,
                      const xray_sample_out *out)
{
    int tops = !w->top_count || (out->top_count == w->top_count &&
                                 out->top_ids && out->top_logp);
    int picked = !w->picked.count || out->logp_of_ids;
    int prompt = !w->prompt_logp || !out->prompt_count ||
                 (out->prompt_logp && out->prompt_count <= id_count);
    return prompt && (!out->token_count || (tops && picked));
}

/* Every sample brings the log-probs of the prompt; all are the same. */
static int take_prompt(cli_prompt *p, size_t id_count,
                       const xray_sample_out *out)
{
    if (!has_wishes(&p->wishes, id_count, out)) {
        cli_say("the engine returned a sample without the log-probs that were "
                "asked for");
        return CLI_FAILED;
    }
    if (p->wishes.prompt_logp && out->prompt_count)
        memcpy(p->prompt_logp, out->prompt_logp,
               out->prompt_count * sizeof *p->prompt_logp);
    return CLI_OK;
}

/* Has the engine end a sample that stopped before its end. */
static int abort_sample(const xr_roles *roles, const xray_sample_out *out)
{
    xray_status status = XR_CALL(
        roles->engine.part, "abort",
        xr_infer(roles->run)->abort(roles->engine.self, out->id, out->sample));
    return status == XRAY_OK ? CLI_OK
                             : report_engine_failure(roles, status, "abort");
}

/* Adds the tokens of a part up to the one at which the text stops. */
static int take_tokens(const cli_generator *g, const cli_prompt *p,
                       const xray_sample_out *out, cli_sample *s)
{
    xr_err err = { "" };
    xray_status status = XRAY_OK;
    if (reserve_tokens(p, s, out->token_count) != CLI_OK)
        return CLI_FAILED;
    s->text.stops = p->how.stops.items;
    s->text.stop_count = p->how.stops.count;
    for (uint32_t i = 0; i < out->token_count && status == XRAY_OK; i++) {
        take_wishes(p, out, i, s);
        s->ids[s->count] = out->tokens[i];
        s->logp[s->count++] = out->raw_logp[i];
        if (p->watched)
            status = xm_until_push(&s->text, g->tool.tokenizer, out->tokens[i],
                                   &err);
        if (s->text.stopped)
            break;
    }
    if (status == XRAY_OK && out->finish != XRAY_FINISH_NONE)
        status = xm_until_end(&s->text, &err);
    return status == XRAY_OK ? CLI_OK : cli_fail(status, &err);
}

/* Has what has ended continued by the lines that wait for it. */
static int give_answer(cli_generator *g, const cli_item *item,
                       const cli_sample *s)
{
    const cli_prompt *p = item->own;
    xr_err err = { "" };
    if (!s->ended || p->own == CLI_NO_ANSWER || p->how.n != 1)
        return CLI_OK;
    xray_status status = cli_answers_give(&g->answers, p->own, item->ids,
                                          item->count, s->ids, s->count, &err);
    return status == XRAY_OK ? CLI_OK : cli_fail(status, &err);
}

/* Stores a sample or a part of it; *left counts the samples that have not
 * ended. What the engine had generated beyond a stop is left out. */
static int store_part(cli_generator *g, cli_item *items, size_t count,
                      const xray_sample_out *out, uint64_t *left)
{
    xr_err err = { "" };
    xr_roles *roles = g->tool.roles;
    cli_prompt *p = out->id < count ? items[out->id].own : NULL;
    if (!p || items[out->id].error || out->sample >= (uint64_t)p->how.n) {
        cli_say("the engine returned a sample that was not requested");
        return CLI_FAILED;
    }
    cli_sample *s = &p->samples[out->sample];
    if (s->ended) {
        cli_say("the engine returned a sample twice");
        return CLI_FAILED;
    }
    const cli_item *item = &items[out->id];
    uint64_t number = out->id * (uint64_t)p->how.n + out->sample;
    uint32_t most = (uint32_t)(cli_generator_row(g, item) - item->count);
    xray_status status =
        p->watched
            ? xr_check_sample_part(roles, out, out->raw_logp, number, s->given,
                                   most, &err)
            : xr_check_sample(roles, out, out->raw_logp, number, most, &err);
    if (status != XRAY_OK)
        return cli_fail(status, &err);
    if (take_prompt(p, item->count, out) != CLI_OK)
        return CLI_FAILED;
    s->given += out->token_count;
    s->ended = out->finish != XRAY_FINISH_NONE;
    *left -= (uint64_t)s->ended;
    if (s->text.stopped)
        return give_answer(g, item, s);
    if (take_tokens(g, p, out, s) != CLI_OK)
        return CLI_FAILED;
    s->finish = s->text.stopped ? XRAY_FINISH_STOP : out->finish;
    if (s->text.stopped && !s->ended)
        return abort_sample(roles, out);
    return give_answer(g, item, s);
}

/* ---- --stream ----------------------------------------------------------- */

/* Prints what is final of the texts, in the order of lines and samples; a text
 * that is not complete keeps all further ones waiting. */
static int print_texts(cli_generator *g, const cli_item *items, size_t count)
{
    while (g->next_item < count) {
        const cli_prompt *p = items[g->next_item].own;
        if (items[g->next_item].error || g->next_sample == p->how.n) {
            g->next_item++;
            g->next_sample = 0;
            continue;
        }
        const cli_sample *s = &p->samples[g->next_sample];
        xr_str_append(&g->out, xr_str_text(&s->text.text) + g->printed,
                      s->text.ready - g->printed);
        g->printed = s->text.ready;
        if (s->finish == XRAY_FINISH_NONE)
            break;
        xr_str_puts(&g->out, "\n");
        g->printed = 0;
        g->next_sample++;
    }
    return cli_lines_write(&g->out);
}

/* ---- rounds ------------------------------------------------------------- */

/* Stores what the engine has ready. */
static int poll_samples(cli_generator *g, cli_item *items, size_t count,
                        uint64_t *left)
{
    xr_roles *roles = g->tool.roles;
    for (;;) {
        xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
        xray_status status =
            XR_CALL(roles->engine.part, "poll",
                    xr_infer(roles->run)->poll(roles->engine.self, &out));
        if (status == XRAY_END || status == XRAY_AGAIN)
            return CLI_OK;
        if (status != XRAY_OK)
            return report_engine_failure(roles, status, "poll");
        int code = store_part(g, items, count, &out, left);
        if (code != CLI_OK)
            return code;
    }
}

/* Ends the samples that are left, once a signal has asked for it. */
static int abort_if_stopped(const cli_generator *g, const cli_item *items,
                            size_t count, int *stopped)
{
    const xr_roles *roles = g->tool.roles;
    if (*stopped || !g->stop || !*g->stop)
        return CLI_OK;
    *stopped = 1;
    for (size_t i = 0; i < count; i++) {
        const cli_prompt *p = items[i].own;
        if (items[i].error || !p->submitted)
            continue;
        xray_status status =
            XR_CALL(roles->engine.part, "abort",
                    xr_infer(roles->run)
                        ->abort(roles->engine.self, i, XRAY_ALL_SAMPLES));
        if (status != XRAY_OK)
            return report_engine_failure(roles, status, "abort");
    }
    return CLI_OK;
}

static int step_engine_until_done(cli_generator *g, cli_item *items,
                                  size_t count, uint64_t left)
{
    xr_roles *roles = g->tool.roles;
    xr_engine_watch progress = { 0 };
    xray_status status = XRAY_OK;
    xr_err err = { "" };
    int stopped = 0;
    size_t submitted = submit_lines(g, items, count, &left);
    while (left && (status == XRAY_OK || submitted)) {
        status = XR_CALL(roles->engine.part, "step",
                         xr_infer(roles->run)->step(roles->engine.self));
        if (status < 0)
            return report_engine_failure(roles, status, "step");
        int code = abort_if_stopped(g, items, count, &stopped);
        if (code == CLI_OK)
            code = poll_samples(g, items, count, &left);
        submitted = code == CLI_OK ? submit_lines(g, items, count, &left) : 0;
        if (code == CLI_OK && g->tool.args->stream)
            code = print_texts(g, items, count);
        if (code != CLI_OK)
            return code;
        if (left && xr_engine_progress(roles, &progress, left, &err) < 0)
            return cli_fail(XRAY_E_BUG, &err);
    }
    if (left) {
        cli_say("%s is idle, but %llu samples are missing",
                roles->engine.part->instance, (unsigned long long)left);
        return CLI_FAILED;
    }
    return CLI_OK;
}

int cli_generator_run(void *ctx, cli_item *items, size_t count)
{
    cli_generator *g = ctx;
    uint64_t longest = 0;
    uint64_t samples = 0;
    for (size_t i = 0; i < count; i++) {
        if (items[i].error)
            continue;
        uint64_t row = cli_generator_row(g, &items[i]);
        longest = row > longest ? row : longest;
        samples += (uint64_t)((const cli_prompt *)items[i].own)->how.n;
    }
    if (!samples)
        return CLI_OK;
    int code = cli_tool_ready(
        &g->tool, longest, samples < MAX_SEQUENCES ? samples : MAX_SEQUENCES);
    if (code != CLI_OK)
        return code;
    g->next_item = 0;
    g->next_sample = 0;
    g->printed = 0;
    return step_engine_until_done(g, items, count, samples);
}
