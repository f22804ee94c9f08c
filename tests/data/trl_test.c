/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves rows of TRL's forms: which columns are taken where [data] names none,
 * and the tokens that SFT learns from prompts with completions.
 */
#include "core/data/data.h"
#include "tests/scratch.h"

/* ChatML written with a small vocabulary; </s> is the tokenizer's EOS. */
#define PLAIN                                                      \
    "{%- for m in messages -%}[{{ m.role }}]{{ m.content }}"       \
    "{%- if m.role == 'assistant' -%}{{ eos_token }}{%- endif -%}" \
    "{{ '\\n' }}{%- endfor -%}"                                    \
    "{%- if add_generation_prompt -%}[assistant]{%- endif -%}"
#define MARKED                                                        \
    "{%- for m in messages -%}[{{ m.role }}]"                         \
    "{%- if m.role == 'assistant' -%}{% generation %}{{ m.content }}" \
    "{{ eos_token }}{% endgeneration %}{%- else -%}{{ m.content }}"   \
    "{%- endif -%}{{ '\\n' }}{%- endfor -%}"                          \
    "{%- if add_generation_prompt -%}[assistant]{%- endif -%}"
#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define ANSWER(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"

#define TALK                                                  \
    "{\"messages\":[" USER("one") "," ANSWER("two") "," USER( \
        "three") "," ANSWER("four") "]}"

static xm_tokenizer *tokenizer;
static xm_chat *chat;        /* of the case in hand, or NULL */
static xr_data_section data; /* of the case in hand */

static int begin_case(void **state)
{
    (void)state;
    data = (xr_data_section){ .prompt_key = "prompt",
                              .answer_key = "answer",
                              .response_key = "",
                              .reward_fn_key = "data_source",
                              .template = "{prompt}",
                              .response_template = "{answer}",
                              .max_prompt_length = 200,
                              .max_response_length = 100,
                              .train_max_samples = -1,
                              .val_max_samples = -1,
                              .special_tokens = 1,
                              .add_generation_prompt = 1,
                              .chat_template = "",
                              .chat_template_kwargs = "",
                              .chat_date = "2024-07-26",
                              .system_prompt = "",
                              .messages_key = "messages",
                              .tools_key = "tools" };
    return 0;
}

static int open_tokenizer(void **state)
{
    char path[512];
    xr_err err = { "" };
    (void)test_data("models/stories260K/hf", path, sizeof path);
    return xm_tokenizer_open(path, &err, &tokenizer) == XRAY_OK
               ? scratch_make(state)
               : -1;
}

static int close_tokenizer(void **state)
{
    xm_tokenizer_close(tokenizer);
    return scratch_drop(state);
}

static xray_status open_rows(const char *text, int kind, xr_err *err,
                             xr_dataset **out)
{
    static char path[256];
    static const char *items[1];
    (void)snprintf(path, sizeof path, "%s", scratch_write("a.jsonl", text));
    items[0] = path;
    data.train_files = (xray_list){ items, 1 };
    const xr_data_want want = { .part = XR_DATA_TRAIN,
                                .kind = kind,
                                .tokenizer = tokenizer,
                                .chat = chat };
    *err = (xr_err){ "" };
    *out = NULL;
    return xr_dataset_open(&data, &want, err, out);
}

static xr_dataset *read_text_rows(const char *text, int kind)
{
    xr_err err;
    xr_dataset *set;
    if (open_rows(text, kind, &err, &set) != XRAY_OK)
        fail_msg("%s", err.text);
    return set;
}

/* Compares the message behind the folder of the file. */
static void expect_refused_text(const char *text, int kind, const char *want)
{
    xr_err err;
    xr_dataset *set;
    assert_int_equal(open_rows(text, kind, &err, &set), XRAY_E_CONFIG);
    assert_null(set);
    const char *at = strstr(err.text, "a.jsonl");
    assert_non_null(at);
    assert_string_equal(at, want);
}

/* ---- texts -------------------------------------------------------------- */

/* The columns of TRL's data sets stand in for those that [data] names where the
 * first row lacks these. */
static void columns_of_trl_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *row;
        const char *truth;  /* NULL: the row is refused */
        const char *column; /* NULL: the one that [data] names */
    } cases[] = {
        { "{\"prompt\":\"a\",\"solution\":\"4\"}", "4", "solution" },
        { "{\"prompt\":\"a\",\"ground_truth\":5}", "5", "ground_truth" },
        { "{\"prompt\":\"a\",\"completion\":\"6\"}", "6", "completion" },
        { "{\"prompt\":\"a\",\"completion\":[{\"role\":\"assistant\"}],"
          "\"solution\":\"7\"}",
          "7", "solution" },
        { "{\"prompt\":\"a\",\"solution\":\"4\",\"answer\":\"8\"}", "8", NULL },
        { "{\"prompt\":\"a\",\"solution\":\"4\","
          "\"reward_model\":{\"ground_truth\":\"9\"}}",
          "9", NULL },
        { "{\"prompt\":\"a\",\"solution\":\"4\",\"ground_truth\":\"4\"}", NULL,
          NULL },
        { "{\"prompt\":\"a\",\"completion\":[{\"role\":\"assistant\"}]}", NULL,
          NULL },
    };
    static const char refusal[] =
        "a.jsonl:%d: the row has neither reward_model.ground_truth nor the key "
        "'%s' of [data] answer_key (set answer_key to \"\" for rows without an "
        "answer)";
    char text[256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!cases[i].truth) {
            (void)snprintf(text, sizeof text, refusal, 1, "answer");
            expect_refused_text(cases[i].row, XR_DATA_PROMPTS, text);
            continue;
        }
        xr_dataset *set = read_text_rows(cases[i].row, XR_DATA_PROMPTS);
        const char *note = xr_dataset_note(set);
        assert_string_equal(xr_dataset_row(set, 0)->ground_truth,
                            cases[i].truth);
        (void)snprintf(text, sizeof text,
                       "a.jsonl:1: no 'answer', so ground truths are taken "
                       "from '%s'",
                       cases[i].column ? cases[i].column : "");
        assert_true(cases[i].column ? note && strstr(note, text) : !note);
        xr_dataset_close(set);
    }
    /* The first row decides for all of them. */
    (void)snprintf(text, sizeof text, refusal, 2, "solution");
    expect_refused_text("{\"prompt\":\"a\",\"solution\":\"4\"}\n"
                        "{\"prompt\":\"b\",\"ground_truth\":\"4\"}",
                        XR_DATA_PROMPTS, text);
    /* A run without answers looks for none. */
    data.answer_key = "";
    xr_dataset *set = read_text_rows(cases[0].row, XR_DATA_PROMPTS);
    assert_string_equal(xr_dataset_row(set, 0)->ground_truth, "");
    assert_null(xr_dataset_note(set));
    xr_dataset_close(set);
}

static void completions_are_responses(void **state)
{
    (void)state;
    static const char plain[] = "{\"prompt\":\"a\",\"answer\":\"b c\"}";
    static const char trl[] = "{\"prompt\":\"a\",\"completion\":\"b c\"}";
    xr_dataset *want = read_text_rows(plain, XR_DATA_SFT);
    xr_dataset *set = read_text_rows(trl, XR_DATA_SFT);
    const xr_row *row = xr_dataset_row(set, 0);
    assert_int_equal(row->id_count, xr_dataset_row(want, 0)->id_count);
    assert_int_equal(row->prompt_count, xr_dataset_row(want, 0)->prompt_count);
    assert_memory_equal(row->ids, xr_dataset_row(want, 0)->ids,
                        row->id_count * sizeof *row->ids);
    assert_non_null(xr_dataset_note(set));
    xr_dataset_close(set);
    xr_dataset_close(want);
    expect_refused_text("{\"prompt\":\"a\"}", XR_DATA_SFT,
                        "a.jsonl:1: no key 'answer'");
    data.response_key = "answer";
    expect_refused_text(trl, XR_DATA_SFT, "a.jsonl:1: no key 'answer'");
}

/* ---- lists of messages -------------------------------------------------- */

static void open_chat(const char *source)
{
    char path[512];
    xr_err err = { "" };
    (void)test_data("models/stories260K/hf", path, sizeof path);
    data.chat_template = scratch_write("chat.jinja", source);
    if (xr_data_chat(&data, path, &err, &chat) != XRAY_OK)
        fail_msg("%s", err.text);
}

/* Compares the text of the tokens to learn. */
static void expect_masked_text(const xr_row *row, const char *want)
{
    xr_str text = { 0 };
    int32_t *ids = calloc(row->id_count, sizeof *ids);
    size_t count = 0;
    assert_non_null(ids);
    assert_non_null(row->mask);
    for (uint32_t i = 0; i < row->id_count; i++)
        if (row->mask[i])
            ids[count++] = row->ids[i];
    assert_int_equal(xm_tokenizer_decode(tokenizer, ids, count, 0, &text, NULL),
                     XRAY_OK);
    assert_string_equal(xr_str_text(&text), want);
    assert_true(row->mask[row->prompt_count]);
    for (uint32_t i = 0; i < row->prompt_count; i++)
        assert_false(row->mask[i]);
    xr_str_free(&text);
    free(ids);
}

/* Rows of TRL: the tokens are those of the complete conversation, and those of
 * the prompt's own answers are not learned. */
static void completions_alone_are_learned(void **state)
{
    (void)state;
    static const char *const templates[] = { MARKED, PLAIN };
    for (size_t i = 0; i < 2; i++) {
        open_chat(templates[i]);
        data.system_prompt = "Count.";
        xr_dataset *whole = read_text_rows(TALK, XR_DATA_SFT);
        xr_dataset *set = read_text_rows(
            "{\"prompt\":[" USER("one") "," ANSWER("two") "," USER(
                "three") "],"
                         "\"completion\":[" ANSWER(
                             "four") "]}\n"
                                     "{\"prompt\":[" USER(
                                         "one") "],"
                                                "\"completion"
                                                "\":[" ANSWER("two") "," USER(
                                                    "three") "," ANSWER("four") "]}",
            XR_DATA_SFT);
        const xr_row *want = xr_dataset_row(whole, 0);
        for (size_t k = 0; k < 2; k++) {
            const xr_row *row = xr_dataset_row(set, k);
            assert_int_equal(row->id_count, want->id_count);
            assert_memory_equal(row->ids, want->ids,
                                want->id_count * sizeof *want->ids);
            expect_masked_text(row, k ? "two</s>four</s>" : "four</s>");
        }
        assert_string_equal(xr_dataset_row(set, 0)->prompt,
                            "[system]Count.\n[user]one\n[assistant]two</s>\n"
                            "[user]three\n[assistant]");
        assert_non_null(
            strstr(xr_dataset_note(set),
                   "a.jsonl:1: no 'answer', so responses are taken from "
                   "'completion'"));
        assert_null(xr_dataset_note(whole));
        xr_dataset_close(set);
        xr_dataset_close(whole);
        expect_refused_text(
            "{\"prompt\":[" USER("one") "],\"completion\":[{}]}", XR_DATA_SFT,
            "a.jsonl:1: 'completion' must be a list of messages, each an "
            "object with a 'role'");
        xm_chat_close(chat);
        chat = NULL;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(columns_of_trl_are_found, begin_case),
        cmocka_unit_test_setup(completions_are_responses, begin_case),
        cmocka_unit_test_setup(completions_alone_are_learned, begin_case),
    };
    return cmocka_run_group_tests_name("data.trl", tests, open_tokenizer,
                                       close_tokenizer);
}
