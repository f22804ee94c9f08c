/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads one data row: prompt, response, ground truth, and their tokens.
 */
#include "core/data/row.h"

#include <stdlib.h>
#include <string.h>

/* ---- open --------------------------------------------------------------- */

/* Returns the days from 1970-01-01 to a date of the Gregorian calendar since
 * year 1 (Hinnant, "chrono-compatible low-level date algorithms"). */
static int64_t count_days(int year, int month, int day)
{
    int64_t y = year - (month <= 2);
    int64_t era = y / 400;
    int64_t yoe = y - era * 400;
    int64_t doy = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    int64_t doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    return era * 146097 + doe - 719468;
}

static int64_t count_month_days(int year, int month)
{
    return month == 12
               ? 31
               : count_days(year, month + 1, 1) - count_days(year, month, 1);
}

/* Reads `count` digits as a number; -1 if other characters are among them. */
static int read_digits(const char *text, int count)
{
    int value = 0;
    for (int i = 0; i < count; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        value = value * 10 + (text[i] - '0');
    }
    return value;
}

xray_status xr_data_now(const char *chat_date, xr_err *err, int64_t *out)
{
    const char *text = chat_date;
    int has_form = strlen(text) == 10 && text[4] == '-' && text[7] == '-';
    int year = has_form ? read_digits(text, 4) : -1;
    int month = has_form ? read_digits(text + 5, 2) : -1;
    int day = has_form ? read_digits(text + 8, 2) : -1;
    if (year < 1 || month < 1 || month > 12 || day < 1 ||
        day > count_month_days(year, month))
        return xr_fail_key(err, XRAY_E_CONFIG, "data", "chat_date",
                           ": '%s' is not a date; expected YYYY-MM-DD", text);
    *out = count_days(year, month, day) * 86400;
    return XRAY_OK;
}

xray_status xr_data_kwargs(const char *text, xr_err *err, cJSON **out)
{
    if (!*text)
        return XRAY_OK;
    xr_err why = { "" }; /* ": " and the fault */
    xray_status status = xr_json_parse(text, strlen(text), "", &why, out);
    if (status == XRAY_OK && !cJSON_IsObject(*out))
        status = xr_fail(&why, XRAY_E_CONFIG, " must be a JSON object");
    if (status != XRAY_OK)
        return xr_fail_key(err, status, "data", "chat_template_kwargs", "%s",
                           why.text);
    return XRAY_OK;
}

xray_status xr_reader_open(xr_reader *r)
{
    const xr_data_section *data = r->data;
    xray_status status = xr_template_parse(data->template, "template", r->err,
                                           &r->prompt_template);
    if (status == XRAY_OK && r->want->chat)
        status = xr_data_now(data->chat_date, r->err, &r->today);
    if (status == XRAY_OK && r->want->chat)
        status = xr_data_kwargs(data->chat_template_kwargs, r->err, &r->kwargs);
    if (status != XRAY_OK || r->want->kind != XR_DATA_SFT)
        return status;
    if (xm_tokenizer_eos(r->want->tokenizer) < 0)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "the tokenizer has no EOS token to end SFT rows with");
    return xr_template_parse(data->response_template, "response_template",
                             r->err, &r->response_template);
}

void xr_reader_close(xr_reader *r)
{
    xr_template_free(&r->prompt_template);
    xr_template_free(&r->response_template);
    cJSON_Delete(r->kwargs);
    xr_str_free(&r->text);
    xm_chat_text_free(&r->chat);
    xm_ids_free(&r->ids);
    xm_token_spans_free(&r->spans);
    free(r->mask);
}

/* ---- members ------------------------------------------------------------ */

static xray_status keep_text(xr_reader *r, const xr_str *text, const char **out)
{
    if (text->failed)
        return xr_reader_no_memory(r);
    *out = xr_arena_text(r->arena, xr_str_text(text), text->size);
    return *out ? XRAY_OK : xr_reader_no_memory(r);
}

xray_status xr_reader_value(xr_reader *r, const cJSON *value, const char *key,
                            const char **out)
{
    xr_str_clear(&r->text);
    xray_status status = xr_value_text(value, key, r->where, r->err, &r->text);
    return status == XRAY_OK ? keep_text(r, &r->text, out) : status;
}

static xray_status keep_truth(xr_reader *r, const cJSON *value, const char *key,
                              const char **out)
{
    xr_str_clear(&r->text);
    xray_status status = xr_truth_text(value, key, r->where, r->err, &r->text);
    return status == XRAY_OK ? keep_text(r, &r->text, out) : status;
}

/* ---- columns ------------------------------------------------------------ */

/* Returns the one column among TRL's that can be a ground truth; NULL if there
 * are none or several. */
static const char *find_truth_column(const cJSON *json)
{
    static const char *const names[] = { "solution", "ground_truth",
                                         "completion" };
    const char *found = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const cJSON *value = xr_json_get(json, names[i]);
        if (!value || (i == 2 && !cJSON_IsString(value)))
            continue;
        if (found)
            return NULL;
        found = names[i];
    }
    return found;
}

static int has_nested_truth(const cJSON *json)
{
    const cJSON *model = xr_json_get(json, "reward_model");
    return cJSON_IsObject(model) && xr_json_get(model, "ground_truth");
}

xray_status xr_reader_columns(xr_reader *r, const cJSON *json,
                              const char **out_note)
{
    const char *answer = r->data->answer_key;
    const char *other = NULL;
    int sft = r->want->kind == XR_DATA_SFT;
    *out_note = NULL;
    r->truth_key = answer;
    r->response_key = r->data->response_key[0] ? r->data->response_key : answer;
    if (sft && !r->data->response_key[0] &&
        !xr_json_get(json, r->data->messages_key) &&
        xr_json_get(json, "completion"))
        other = "completion";
    else if (!sft && !has_nested_truth(json))
        other = find_truth_column(json);
    if (!other || !answer[0] || xr_json_get(json, answer))
        return XRAY_OK;
    *(sft ? &r->response_key : &r->truth_key) = other;
    xr_str_clear(&r->text);
    xr_str_printf(&r->text, "%s: no '%s', so %s are taken from '%s'", r->where,
                  answer, sft ? "responses" : "ground truths", other);
    return keep_text(r, &r->text, out_note);
}

xray_status xr_reader_truth(xr_reader *r, const cJSON *json, xr_row *row)
{
    const cJSON *model = xr_json_get(json, "reward_model");
    const cJSON *truth =
        cJSON_IsObject(model) ? xr_json_get(model, "ground_truth") : NULL;
    if (truth)
        return keep_truth(r, truth, "reward_model.ground_truth",
                          &row->ground_truth);
    const char *key = r->truth_key;
    row->ground_truth = "";
    if (!key[0])
        return XRAY_OK;
    truth = xr_json_get(json, key);
    if (!truth)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: the row has neither reward_model.ground_truth nor "
                       "the key '%s' of [data] answer_key (set answer_key to "
                       "\"\" for rows without an answer)",
                       r->where, key);
    return keep_truth(r, truth, key, &row->ground_truth);
}

/* ---- tokens ------------------------------------------------------------- */

static xray_status append_tokens(xr_reader *r, const xr_str *text, int special)
{
    xr_err err = { "" };
    xray_status status =
        xm_tokenizer_encode(r->want->tokenizer, xr_str_text(text), text->size,
                            special, &r->ids, &err);
    if (status != XRAY_OK)
        return xr_fail(r->err, status, "%s: %s", r->where, err.text);
    return XRAY_OK;
}

static xray_status read_plain_prompt(xr_reader *r, const cJSON *json,
                                     xr_row *row)
{
    xr_alias prompt = { "prompt", r->data->prompt_key };
    xr_str_clear(&r->text);
    xray_status status = xr_template_fill(&r->prompt_template, prompt, json,
                                          r->where, r->err, &r->text);
    if (status == XRAY_OK)
        status = keep_text(r, &r->text, &row->prompt);
    return status == XRAY_OK
               ? append_tokens(r, &r->text, r->data->special_tokens != 0)
               : status;
}

/* A chat template writes BOS and similar tokens itself. */
static xray_status read_chat_prompt(xr_reader *r, const cJSON *json,
                                    const cJSON *messages, xr_row *row)
{
    xray_status status = xr_reader_render(r, json, messages,
                                          r->data->add_generation_prompt != 0);
    if (status == XRAY_OK)
        status = keep_text(r, &r->chat.text, &row->prompt);
    return status == XRAY_OK ? append_tokens(r, &r->chat.text, 0) : status;
}

static xray_status read_prompt(xr_reader *r, const cJSON *json, xr_row *row)
{
    cJSON *messages = NULL;
    xray_status status = xr_reader_messages(r, json, &messages);
    if (status == XRAY_OK)
        status = messages ? read_chat_prompt(r, json, messages, row)
                          : read_plain_prompt(r, json, row);
    cJSON_Delete(messages);
    if (status == XRAY_OK && !r->ids.count)
        status = xr_fail(r->err, XRAY_E_CONFIG, "%s: the prompt has no tokens",
                         r->where);
    row->prompt_count = (uint32_t)r->ids.count;
    return status;
}

static xray_status read_response(xr_reader *r, const cJSON *json)
{
    xr_alias answer = { "answer", r->response_key };
    xr_str_clear(&r->text);
    xray_status status = xr_template_fill(&r->response_template, answer, json,
                                          r->where, r->err, &r->text);
    if (status == XRAY_OK)
        status = append_tokens(r, &r->text, 0);
    if (status != XRAY_OK)
        return status;
    if (r->ids.count == r->ids.cap) {
        int32_t *more = realloc(r->ids.data, (r->ids.cap + 64) * sizeof *more);
        if (!more)
            return xr_reader_no_memory(r);
        r->ids.data = more;
        r->ids.cap += 64;
    }
    r->ids.data[r->ids.count++] = xm_tokenizer_eos(r->want->tokenizer);
    return XRAY_OK;
}

xray_status xr_reader_tokens(xr_reader *r, const cJSON *json, xr_row *row)
{
    int sft = r->want->kind == XR_DATA_SFT;
    const cJSON *messages =
        sft ? xr_json_get(json, r->data->messages_key) : NULL;
    const cJSON *completion = sft ? xr_json_get(json, r->response_key) : NULL;
    r->ids.count = 0;
    r->masked = 0;
    xray_status status;
    if (messages) {
        status = xr_reader_conversation(r, json, messages, row);
    } else if (r->want->chat && cJSON_IsArray(completion) &&
               cJSON_IsArray(xr_json_get(json, r->data->prompt_key))) {
        status = xr_reader_completion(r, json, completion, row);
    } else {
        status = read_prompt(r, json, row);
        if (status == XRAY_OK && sft)
            status = read_response(r, json);
    }
    if (status == XRAY_OK && r->ids.count > UINT32_MAX)
        status = xr_fail(r->err, XRAY_E_RANGE, "%s: too many tokens", r->where);
    return status;
}
