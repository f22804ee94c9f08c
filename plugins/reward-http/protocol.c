/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes requests and reads answers in the three forms: our own, that of
 * OpenRLHF's remote reward models, and OpenAI's chat completions.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "plugins/reward-http/http.h"

struct http_protocol {
    const http_config *config;
    http_judge *judge; /* chat only */
};

static xray_status check_chat_keys(const http_config *config, xr_err *err)
{
    const struct {
        const char *key;
        const char *value;
        int needed;
    } keys[] = { { "model", config->model, 1 },
                 { "template_file", config->template_file, 1 },
                 { "pattern", config->pattern, 0 },
                 { "score_path", config->score_path, 0 } };
    int chat = config->protocol == HTTP_CHAT;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (chat && keys[i].needed && !*keys[i].value)
            return xr_fail_key(err, XRAY_E_CONFIG, NULL, keys[i].key,
                               ": expected a value, because protocol = chat");
        if (!chat && *keys[i].value)
            return xr_fail_key(err, XRAY_E_CONFIG, NULL, keys[i].key,
                               " is used with protocol = chat only");
    }
    return XRAY_OK;
}

xray_status http_protocol_open(const http_config *config, xr_err *err,
                               http_protocol **out)
{
    xray_status status = check_chat_keys(config, err);
    if (status != XRAY_OK)
        return status;
    http_protocol *protocol = xr_calloc(1, sizeof(*protocol));
    if (!protocol)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    protocol->config = config;
    if (config->protocol == HTTP_CHAT)
        status = http_judge_open(config, err, &protocol->judge);
    if (status != XRAY_OK) {
        free(protocol);
        return status;
    }
    *out = protocol;
    return XRAY_OK;
}

void http_protocol_close(http_protocol *protocol)
{
    if (!protocol)
        return;
    http_judge_close(protocol->judge);
    free(protocol);
}

size_t http_protocol_batch(const http_protocol *protocol)
{
    return protocol->judge ? 1 : (size_t)protocol->config->batch;
}

/* ---- requests ----------------------------------------------------------- */

void http_sample_free(http_sample *sample)
{
    if (!sample)
        return;
    for (size_t i = 0; i < HTTP_PARTS; i++)
        xr_str_free(&sample->parts[i]);
    free(sample);
}

/* OpenRLHF's query is the whole text: the prompt with the response. */
static void put_query(const xray_sample_in *in, http_sample *out)
{
    xr_str query = { 0 };
    xr_str_append(&query, in->prompt, (size_t)in->prompt_size);
    xr_str_append(&query, in->response, (size_t)in->response_size);
    out->parts[0].failed = query.failed;
    xr_str_json(&out->parts[0], xr_str_text(&query), query.size);
    xr_str_free(&query);
    xr_str_json(&out->parts[1], in->prompt, (size_t)in->prompt_size);
    xr_str_json(&out->parts[2], in->ground_truth, strlen(in->ground_truth));
}

static xray_status put_question(const http_judge *judge,
                                const xray_sample_in *in, xr_err *err,
                                http_sample *out)
{
    xr_str line = { 0 };
    xr_str question = { 0 };
    xr_scores_sample(in, 0, &line);
    cJSON *sample =
        line.failed ? NULL : cJSON_ParseWithLength(line.data, line.size);
    xray_status status =
        sample ? http_judge_ask(judge, sample, err, &question)
               : xr_fail(err, XRAY_E_IO, "it cannot be written as JSON");
    if (status == XRAY_OK) {
        xr_str_json(&out->parts[0], xr_str_text(&question), question.size);
        out->parts[0].failed = out->parts[0].failed || question.failed;
    }
    cJSON_Delete(sample);
    xr_str_free(&line);
    xr_str_free(&question);
    return status;
}

xray_status http_protocol_sample(const http_protocol *protocol,
                                 const xray_sample_in *in, xr_err *err,
                                 http_sample *out)
{
    xray_status status = XRAY_OK;
    out->id = in->id;
    if (protocol->config->protocol == HTTP_ROWS)
        xr_scores_sample(in, 1, &out->parts[0]);
    else if (protocol->config->protocol == HTTP_OPENRLHF)
        put_query(in, out);
    else
        status = put_question(protocol->judge, in, err, out);
    if (status != XRAY_OK)
        return status;
    for (size_t i = 0; i < HTTP_PARTS; i++)
        if (out->parts[i].failed)
            return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    return XRAY_OK;
}

static void put_list(const char *key, const http_sample *samples, size_t part,
                     xr_str *out)
{
    xr_str_printf(out, "\"%s\":[", key);
    for (const http_sample *s = samples; s; s = s->next) {
        if (s != samples)
            xr_str_puts(out, ",");
        xr_str_append(out, xr_str_text(&s->parts[part]), s->parts[part].size);
    }
    xr_str_puts(out, "]");
}

static void put_chat(const http_config *config, const http_sample *sample,
                     xr_str *out)
{
    xr_str_puts(out, "\"model\":");
    xr_str_json(out, config->model, strlen(config->model));
    if (config->temperature >= 0) {
        xr_str_puts(out, ",\"temperature\":");
        xr_str_number(out, config->temperature);
    }
    if (config->max_tokens)
        xr_str_printf(out, ",\"max_tokens\":%" PRId64, config->max_tokens);
    xr_str_puts(out, ",\"messages\":[{\"role\":\"user\",\"content\":");
    xr_str_append(out, xr_str_text(&sample->parts[0]), sample->parts[0].size);
    xr_str_puts(out, "}]");
}

void http_protocol_body(const http_protocol *protocol,
                        const http_sample *samples, xr_str *out)
{
    xr_str_puts(out, "{");
    if (protocol->config->protocol == HTTP_ROWS) {
        put_list("samples", samples, 0, out);
    } else if (protocol->config->protocol == HTTP_OPENRLHF) {
        put_list("query", samples, 0, out);
        xr_str_puts(out, ",");
        put_list("prompts", samples, 1, out);
        xr_str_puts(out, ",");
        put_list("labels", samples, 2, out);
    } else {
        put_chat(protocol->config, samples, out);
    }
    xr_str_puts(out, "}");
}

/* ---- answers ------------------------------------------------------------ */

static void fail_samples(const http_sample *samples, xr_scores *scores,
                         const char *reason)
{
    for (const http_sample *s = samples; s; s = s->next)
        xr_scores_fail(scores, s->id, "%s", reason);
}

static size_t count_samples(const http_sample *samples)
{
    size_t count = 0;
    for (; samples; samples = samples->next)
        count++;
    return count;
}

/* A sample of the request, and the element of the answer that is its. */
typedef struct pair {
    const http_sample *sample;
    cJSON *row; /* NULL: there is none */
} pair;

/* Returns the index of the sample with this id, or `count`. The search begins
 * at `from`, as most servers answer in order. */
static size_t find_sample(const pair *pairs, size_t count, size_t from,
                          double id)
{
    for (size_t k = 0; k < count; k++) {
        size_t i = (from + k) % count;
        if ((double)pairs[i].sample->id == id)
            return i;
    }
    return count;
}

/* Finds the element of each sample. Returns 0, or -1 and the fault of the whole
 * answer. */
static int match_rows(cJSON *list, pair *pairs, size_t count, xr_err *err)
{
    size_t at = 0;
    for (cJSON *one = list->child; one; one = one->next) {
        const cJSON *id = xr_json_get(one, "id");
        if (!cJSON_IsNumber(id)) {
            (void)xr_fail(err, XRAY_E_IO,
                          "the answer has a score without the id of a sample");
            return -1;
        }
        at = find_sample(pairs, count, at, id->valuedouble);
        if (at == count || pairs[at].row) {
            (void)xr_fail(err, XRAY_E_IO,
                          at == count ? "the answer has a score of sample "
                                        "%.17g, which the request has not"
                                      : "the answer has two scores of sample "
                                        "%.17g",
                          id->valuedouble);
            return -1;
        }
        pairs[at].row = one;
    }
    return 0;
}

static void give_rows(cJSON *list, const pair *pairs, size_t count,
                      xr_scores *scores)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t id = pairs[i].sample->id;
        if (!pairs[i].row) {
            xr_scores_fail(scores, id, "the answer has no score of it");
            continue;
        }
        cJSON *one = cJSON_DetachItemViaPointer(list, pairs[i].row);
        const cJSON *reason = xr_json_get(one, "error");
        if (cJSON_IsString(reason)) {
            xr_scores_fail(scores, id, "the server says: %s",
                           reason->valuestring);
            cJSON_Delete(one);
        } else {
            cJSON_DeleteItemFromObjectCaseSensitive(one, "id");
            xr_scores_put(scores, id, one);
        }
    }
}

static void take_rows(cJSON *answer, const http_sample *samples,
                      xr_scores *scores)
{
    xr_err err = { "" };
    const http_sample *first = samples;
    cJSON *list = cJSON_IsArray(answer)
                      ? answer
                      : cJSON_GetObjectItemCaseSensitive(answer, "scores");
    if (!cJSON_IsArray(list)) {
        fail_samples(samples, scores, "the answer has no list \"scores\"");
        return;
    }
    size_t count = count_samples(samples);
    pair *pairs = xr_calloc(count, sizeof(*pairs));
    for (size_t i = 0; pairs && i < count; i++, first = first->next)
        pairs[i].sample = first;
    if (!pairs)
        fail_samples(samples, scores, "out of memory");
    else if (match_rows(list, pairs, count, &err))
        fail_samples(samples, scores, err.text);
    else
        give_rows(list, pairs, count, scores);
    free(pairs);
}

/* Appends what the server logs of sample i: lists with a number for each, or a
 * number for all. */
static void put_logs(const cJSON *logs, size_t i, size_t count, cJSON *out)
{
    const cJSON *log;
    cJSON_ArrayForEach(log, logs)
    {
        const cJSON *value = log;
        if (cJSON_IsArray(log))
            value = (size_t)cJSON_GetArraySize(log) == count
                        ? cJSON_GetArrayItem(log, (int)i)
                        : NULL;
        if (cJSON_IsNumber(value) && strcmp(log->string, "score") != 0)
            (void)cJSON_AddNumberToObject(out, log->string, value->valuedouble);
    }
}

static void take_rewards(const cJSON *answer, const http_sample *samples,
                         xr_scores *scores)
{
    char reason[128];
    size_t count = count_samples(samples);
    const cJSON *list = xr_json_get(answer, "rewards");
    const cJSON *logs = xr_json_get(answer, "extra_logs");
    size_t size = cJSON_IsArray(list) ? (size_t)cJSON_GetArraySize(list) : 0;
    if (!cJSON_IsArray(list)) {
        fail_samples(samples, scores, "the answer has no list \"rewards\"");
        return;
    }
    if (size != count) {
        (void)snprintf(reason, sizeof(reason),
                       "the answer has %zu rewards for %zu samples", size,
                       count);
        fail_samples(samples, scores, reason);
        return;
    }
    const cJSON *reward = list->child;
    for (size_t i = 0; i < count; i++, samples = samples->next) {
        const cJSON *number =
            cJSON_IsArray(reward) && reward->child && !reward->child->next
                ? reward->child
                : reward;
        cJSON *one = cJSON_CreateObject();
        if (one && cJSON_IsNumber(number))
            (void)cJSON_AddNumberToObject(one, "score", number->valuedouble);
        if (one)
            put_logs(cJSON_IsObject(logs) ? logs : NULL, i, count, one);
        xr_scores_put(scores, samples->id, one);
        reward = reward->next;
    }
}

static void take_words(const http_judge *judge, const cJSON *answer,
                       const http_sample *sample, xr_scores *scores)
{
    xr_err err = { "" };
    double score = 0;
    const cJSON *choice = cJSON_GetArrayItem(xr_json_get(answer, "choices"), 0);
    const cJSON *words = xr_json_get(xr_json_get(choice, "message"), "content");
    if (!cJSON_IsString(words))
        xr_scores_fail(scores, sample->id,
                       "the answer has no choices[0].message.content");
    else if (http_judge_score(judge, words->valuestring, &err, &score) !=
             XRAY_OK)
        xr_scores_fail(scores, sample->id, "%s", err.text);
    else
        xr_scores_put(scores, sample->id, cJSON_CreateNumber(score));
}

void http_protocol_answer(const http_protocol *protocol,
                          const http_sample *samples, const char *text,
                          size_t size, xr_scores *scores)
{
    xr_err err = { "" };
    cJSON *answer = NULL;
    if (xr_json_parse(text, size, "the answer", &err, &answer) != XRAY_OK)
        fail_samples(samples, scores, err.text);
    else if (protocol->config->protocol == HTTP_ROWS)
        take_rows(answer, samples, scores);
    else if (protocol->config->protocol == HTTP_OPENRLHF)
        take_rewards(answer, samples, scores);
    else
        take_words(protocol->judge, answer, samples, scores);
    cJSON_Delete(answer);
}
