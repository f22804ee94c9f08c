/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that JSON lines become rows: prompts, ground truths, tokens, lengths
 * and refusals.
 */
#include "core/data/data.h"

#include "core/data/template.h"
#include "tests/scratch.h"

static xm_tokenizer *tokenizer;

/* The [data] section of these tests unless a case changes it. */
static xr_data_section default_section(void)
{
    return (xr_data_section){
        .prompt_key = "prompt",
        .answer_key = "answer",
        .response_key = "",
        .reward_fn_key = "data_source",
        .template = "{prompt}",
        .response_template = "{answer}",
        .max_prompt_length = 200,
        .max_response_length = 100,
        .special_tokens = 1,
        .add_generation_prompt = 1,
        .val_split = 0,
        .chat_template = "",
        .chat_template_kwargs = "",
        .chat_date = "2024-07-26",
        .system_prompt = "",
        .messages_key = "messages",
        .tools_key = "tools",
    };
}

static int open_tokenizer(void **state)
{
    char path[512];
    xr_err err = { "" };
    (void)test_data("models/stories260K/hf", path, sizeof path);
    if (xm_tokenizer_open(path, &err, &tokenizer) != XRAY_OK)
        return -1;
    return scratch_make(state);
}

static int close_tokenizer(void **state)
{
    xm_tokenizer_close(tokenizer);
    return scratch_drop(state);
}

static xray_status open_path(const xr_data_section *data, const char *path,
                             int kind, xr_err *err, xr_dataset **out)
{
    const char *const files[] = { path };
    xr_data_section with = *data;
    with.train_files = (xray_list){ files, 1 };
    if (!with.train_max_samples)
        with.train_max_samples = -1;
    xr_data_want want = { .part = XR_DATA_TRAIN,
                          .kind = kind,
                          .tokenizer = tokenizer };
    return xr_dataset_open(&with, &want, err, out);
}

static xr_dataset *open_text(const xr_data_section *data, const char *text,
                             int kind)
{
    xr_dataset *set = NULL;
    xr_err err = { "" };
    if (open_path(data, scratch_write("rows.jsonl", text), kind, &err, &set) !=
        XRAY_OK)
        fail_msg("%s", err.text);
    return set;
}

/* Returns the error of opening `text`. */
static const char *read_refusal(const xr_data_section *data, const char *text,
                                int kind)
{
    static xr_err err;
    xr_dataset *set = NULL;
    err = (xr_err){ "" };
    xray_status status =
        open_path(data, scratch_write("bad.jsonl", text), kind, &err, &set);
    assert_true(status < 0);
    assert_null(set);
    return err.text;
}

static void assert_ids(const int32_t *ids, size_t count, const char *text,
                       int special)
{
    xm_ids want = { 0 };
    assert_int_equal(xm_tokenizer_encode(tokenizer, text, strlen(text), special,
                                         &want, NULL),
                     XRAY_OK);
    assert_int_equal(count, want.count);
    assert_memory_equal(ids, want.data, count * sizeof *ids);
    xm_ids_free(&want);
}

static void plain_rows_are_read(void **state)
{
    (void)state;
    xr_data_section data = default_section();
    data.prompt_key = "question";
    data.template = "Q{{{n}}}: {prompt}\nA: ";
    xr_dataset *set = open_text(
        &data,
        "{\"question\":\"one\",\"answer\":\"1\",\"n\":1}\r\n"
        "\n"
        "  {\"question\":\"two\",\"answer\":2.5,\"n\":true,"
        "\"data_source\":\"gsm8k\"}\n"
        "{\"question\":\"three\",\"answer\":1000000000000,\"n\":\"x\"}",
        XR_DATA_PROMPTS);
    assert_int_equal(xr_dataset_count(set), 3);
    const xr_row *row = xr_dataset_row(set, 0);
    assert_int_equal(row->id, 0);
    assert_string_equal(row->prompt, "Q{1}: one\nA: ");
    assert_string_equal(row->ground_truth, "1");
    assert_string_equal(row->data_source, "");
    assert_string_equal(row->fields_json,
                        "{\"question\":\"one\",\"answer\":\"1\",\"n\":1}");
    assert_int_equal(row->prompt_count, row->id_count);
    assert_ids(row->ids, row->id_count, row->prompt, 1);
    row = xr_dataset_row(set, 1);
    assert_int_equal(row->id, 1);
    assert_string_equal(row->prompt, "Q{true}: two\nA: ");
    assert_string_equal(row->ground_truth, "2.5");
    assert_string_equal(row->data_source, "gsm8k");
    assert_string_equal(xr_dataset_row(set, 2)->ground_truth, "1000000000000");
    assert_null(xr_dataset_row(set, 3));
    xr_dataset_close(set);
}

/* A number becomes the text that a person would write for it. */
static void numbers_become_plain_text(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        const char *text;
    } cases[] = {
        { "7", "7" },      { "-3", "-3" },     { "0", "0" },
        { "-0", "0" },     { "-0.0", "0" },    { "2.50", "2.5" },
        { "1e3", "1000" }, { "0.1", "0.1" },   { "-1e-3", "-0.001" },
        { "1.0", "1" },    { "true", "true" }, { "\"-0\"", "-0" },
    };
    xr_data_section data = default_section();
    data.prompt_key = "question";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[64];
        (void)snprintf(line, sizeof line, "{\"question\":%s,\"answer\":%s}",
                       cases[i].json, cases[i].json);
        xr_dataset *set = open_text(&data, line, XR_DATA_PROMPTS);
        const xr_row *row = xr_dataset_row(set, 0);
        assert_string_equal(row->prompt, cases[i].text);
        assert_string_equal(row->ground_truth, cases[i].text);
        xr_dataset_close(set);
    }
}

static void rows_of_verl_are_read(void **state)
{
    (void)state;
    xr_data_section data = default_section();
    data.special_tokens = 0;
    xr_dataset *set = open_text(
        &data,
        "{\"data_source\":\"openai/gsm8k\",\"prompt\":[{\"role\":\"system\","
        "\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"2+2?\"}],"
        "\"reward_model\":{\"style\":\"rule\",\"ground_truth\":\"4\"},"
        "\"extra_info\":{\"index\":7}}\n"
        "{\"prompt\":\"3+4?\",\"reward_model\":{\"ground_truth\":7},"
        "\"answer\":\"not this\"}\n",
        XR_DATA_PROMPTS);
    const xr_row *row = xr_dataset_row(set, 0);
    assert_string_equal(row->prompt, "Be brief.\n2+2?");
    assert_string_equal(row->ground_truth, "4");
    assert_string_equal(row->data_source, "openai/gsm8k");
    assert_ids(row->ids, row->id_count, row->prompt, 0);
    assert_string_equal(xr_dataset_row(set, 1)->ground_truth, "7");
    xr_dataset_close(set);
}

static void sft_rows_end_with_eos(void **state)
{
    (void)state;
    xr_data_section data = default_section();
    data.response_template = " {answer}.";
    xr_dataset *set =
        open_text(&data, "{\"prompt\":\"Once upon\",\"answer\":\"a time\"}\n",
                  XR_DATA_SFT);
    const xr_row *row = xr_dataset_row(set, 0);
    assert_ids(row->ids, row->prompt_count, "Once upon", 1);
    assert_ids(row->ids + row->prompt_count,
               row->id_count - row->prompt_count - 1, " a time.", 0);
    assert_int_equal(row->ids[row->id_count - 1], xm_tokenizer_eos(tokenizer));
    xr_dataset_close(set);
    data.response_key = "completion";
    set = open_text(&data,
                    "{\"prompt\":\"Once\",\"answer\":3,\"completion\":\"b\"}\n",
                    XR_DATA_SFT);
    row = xr_dataset_row(set, 0);
    assert_ids(row->ids + row->prompt_count,
               row->id_count - row->prompt_count - 1, " b.", 0);
    xr_dataset_close(set);
    data.response_key = ""; /* that of the answer */
    data.answer_key = "solution";
    set = open_text(&data,
                    "{\"prompt\":\"Once\",\"answer\":3,\"solution\":\"c\"}\n",
                    XR_DATA_SFT);
    row = xr_dataset_row(set, 0);
    assert_ids(row->ids + row->prompt_count,
               row->id_count - row->prompt_count - 1, " c.", 0);
    xr_dataset_close(set);
}

#define SHORT "{\"prompt\":\"hi\",\"answer\":\"1\"}\n"
#define LONG                                                               \
    "{\"prompt\":\"Once upon a time there was a little dragon who sang\"," \
    "\"answer\":\"2\"}\n"

static void overlong_prompts_are_handled(void **state)
{
    (void)state;
    xr_data_section data = default_section();
    data.max_prompt_length = 6;
    const char *why = read_refusal(&data, SHORT LONG, XR_DATA_PROMPTS);
    assert_non_null(strstr(why, "bad.jsonl:2: "));
    assert_non_null(strstr(why, "at most 6"));
    assert_non_null(strstr(why, "max_prompt_length"));

    data.filter_overlong_prompts = 1;
    xr_dataset *set = open_text(&data, LONG SHORT, XR_DATA_PROMPTS);
    assert_int_equal(xr_dataset_count(set), 1);
    assert_int_equal(xr_dataset_filtered(set), 1);
    assert_int_equal(xr_dataset_truncated(set), 0);
    assert_int_equal(xr_dataset_row(set, 0)->id, 1); /* the row keeps its
                                                      * index */
    xr_dataset_close(set);
    why = read_refusal(&data, LONG LONG, XR_DATA_PROMPTS);
    assert_non_null(strstr(why, "all 2 rows are longer than 6 tokens"));

    data.filter_overlong_prompts = 0;
    data.max_prompt_length = 200;
    set = open_text(&data, LONG, XR_DATA_PROMPTS);
    size_t full_count = xr_dataset_row(set, 0)->id_count;
    int32_t all[200];
    memcpy(all, xr_dataset_row(set, 0)->ids, full_count * sizeof *all);
    xr_dataset_close(set);
    data.max_prompt_length = 6;
    for (int way = XR_TRUNCATE_LEFT; way <= XR_TRUNCATE_RIGHT; way++) {
        data.truncation = way;
        set = open_text(&data, LONG SHORT, XR_DATA_PROMPTS);
        assert_int_equal(xr_dataset_count(set), 2);
        assert_int_equal(xr_dataset_truncated(set), 1);
        const xr_row *row = xr_dataset_row(set, 0);
        assert_int_equal(row->id_count, 6);
        assert_int_equal(row->prompt_count, 6);
        assert_memory_equal(
            row->ids, way == XR_TRUNCATE_LEFT ? all + full_count - 6 : all,
            6 * sizeof *all);
        xr_dataset_close(set);
    }
}

static void overlong_sft_rows_are_handled(void **state)
{
    (void)state;
    static const char text[] =
        "{\"prompt\":\"Once upon a time\",\"answer\":\"there was a cat\"}\n";
    xr_data_section data = default_section();
    xr_dataset *set = open_text(&data, text, XR_DATA_SFT);
    uint32_t prompt = xr_dataset_row(set, 0)->prompt_count;
    uint32_t full_count = xr_dataset_row(set, 0)->id_count;
    xr_dataset_close(set);
    /* The bound is on prompt and response together. */
    data.max_prompt_length = 1;
    data.max_response_length = full_count - 1;
    xr_dataset_close(open_text(&data, text, XR_DATA_SFT));
    data.max_response_length = full_count - 2;
    assert_non_null(strstr(read_refusal(&data, text, XR_DATA_SFT),
                           "max_prompt_length + max_response_length"));
    data.truncation = XR_TRUNCATE_LEFT;
    set = open_text(&data, text, XR_DATA_SFT);
    assert_int_equal(xr_dataset_row(set, 0)->id_count, full_count - 1);
    assert_int_equal(xr_dataset_row(set, 0)->prompt_count, prompt - 1);
    xr_dataset_close(set);
    /* Cut down to the prompt, nothing is left to learn. */
    data.truncation = XR_TRUNCATE_RIGHT;
    data.max_response_length = prompt - 1;
    assert_non_null(
        strstr(read_refusal(&data, text, XR_DATA_SFT), "all 1 rows"));
}

static void bad_rows_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *says;
    } cases[] = {
        { SHORT "{\"prompt\":\n", "bad.jsonl:2" },
        { SHORT "\n[1]\n", "bad.jsonl:3: this line begins a JSON array" },
        { SHORT SHORT "{\"prompt\":\"x\"}",
          "bad.jsonl:3: the row has neither" },
        { "{\"question\":\"x\",\"answer\":1}", "bad.jsonl:1: no key 'prompt'" },
        { "{\"prompt\":{},\"answer\":1}", "'prompt' is an object" },
        { "{\"prompt\":[{\"role\":\"user\"}],\"answer\":1}", "'content'" },
        { "{\"prompt\":\"x\",\"answer\":12345678901234567890}", "53 bits" },
        { "{\"prompt\":\"x\",\"answer\":null}", "answer_key" },
        { "\n \n", "there are no rows" },
    };
    xr_data_section data = default_section();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *why = read_refusal(&data, cases[i].text, XR_DATA_PROMPTS);
        if (!strstr(why, cases[i].says))
            fail_msg("case %zu: %s", i, why);
    }
    data.special_tokens = 0;
    assert_non_null(strstr(
        read_refusal(&data, "{\"prompt\":\"\",\"answer\":1}", XR_DATA_PROMPTS),
        "no tokens"));
}

static void bad_templates_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = { "{", "}", "{}", "a{b", "{a{b}}", "x}y" };
    xr_data_section data = default_section();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        data.template = bad[i];
        assert_non_null(strstr(read_refusal(&data, SHORT, XR_DATA_PROMPTS),
                               "[data] template: "));
    }
    data.template = "{{}}{nothing}";
    assert_non_null(strstr(read_refusal(&data, SHORT, XR_DATA_PROMPTS),
                           "bad.jsonl:1: no key 'nothing'"));
}

/* The forms that pandas writes for verl's search data, and others that may
 * occur. */
static void ground_truths_become_text(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "\"18\"", "18" },
        { "18.0", "18" },
        { "{\"target\": [\"a\", \"b\"]}", "{\"target\":[\"a\",\"b\"]}" },
        { "[\"a\", \"b\"]", "[\"a\",\"b\"]" },
        { "[1, 2.5]", "[1,2.5]" },
        { "[{\"role\": \"assistant\", \"content\": \"18\"}]", "18" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cJSON *json = NULL;
        xr_str text = { 0 };
        xr_err err = { "" };
        assert_int_equal(
            xr_json_parse(cases[i][0], strlen(cases[i][0]), "t", &err, &json),
            XRAY_OK);
        assert_int_equal(xr_truth_text(json, "answer", "t", &err, &text),
                         XRAY_OK);
        assert_string_equal(xr_str_text(&text), cases[i][1]);
        xr_str_free(&text);
        cJSON_Delete(json);
    }
}

static void answers_may_be_unwanted(void **state)
{
    (void)state;
    xr_data_section data = default_section();
    data.answer_key = "";
    xr_dataset *set =
        open_text(&data, "{\"prompt\":\"Once\"}\n", XR_DATA_PROMPTS);
    assert_string_equal(xr_dataset_row(set, 0)->ground_truth, "");
    xr_dataset_close(set);
}

static void files_are_read_in_order(void **state)
{
    (void)state;
    char first[256];
    xr_data_section data = default_section();
    (void)snprintf(first, sizeof first, "%s",
                   scratch_write("a.jsonl", SHORT SHORT));
    const char *const files[] = { first,
                                  scratch_write("b.jsonl", SHORT SHORT SHORT) };
    data.train_files = (xray_list){ files, 2 };
    const xr_data_want rows = { .part = XR_DATA_TRAIN, .tokenizer = tokenizer };
    xr_dataset *set;
    xr_err err = { "" };
    for (int64_t most = -1; most <= 6; most++) {
        if (most == 0)
            continue;
        data.train_max_samples = most;
        assert_int_equal(xr_dataset_open(&data, &rows, &err, &set), XRAY_OK);
        size_t want = most < 0 || most > 5 ? 5 : (size_t)most;
        assert_int_equal(xr_dataset_count(set), want);
        for (size_t i = 0; i < want; i++)
            assert_int_equal(xr_dataset_row(set, i)->id, i);
        xr_dataset_close(set);
    }
    data.train_files.count = 0;
    assert_true(xr_dataset_open(&data, &rows, &err, &set) < 0);
    assert_true(open_path(&data, scratch_path("none.jsonl"), XR_DATA_PROMPTS,
                          &err, &set) < 0);
    assert_non_null(strstr(err.text, "none.jsonl"));
}

static size_t count_rows(const char *path)
{
    char *text = NULL;
    size_t size = 0;
    size_t rows = 0;
    assert_int_equal(xr_file_read(path, 1u << 24, NULL, &text, &size), XRAY_OK);
    for (size_t i = 0; i < size; i++)
        rows += text[i] == '\n';
    free(text);
    return rows;
}

static void gsm8k_is_read_completely(void **state)
{
    (void)state;
    char path[512];
    xr_err err = { "" };
    xr_dataset *set;
    xr_data_section data = default_section();
    data.prompt_key = "question";
    data.template = "{question}\nAnswer:";
    data.max_prompt_length = 2000;
    if (open_path(&data, test_data("gsm8k/test.jsonl", path, sizeof path),
                  XR_DATA_PROMPTS, &err, &set) != XRAY_OK)
        fail_msg("%s", err.text);
    size_t rows = count_rows(path);
    assert_true(rows > 100);
    assert_int_equal(xr_dataset_count(set), rows);
    const xr_row *row = xr_dataset_row(set, rows - 1);
    assert_int_equal(row->id, rows - 1);
    assert_non_null(strstr(row->ground_truth, "#### "));
    assert_ids(row->ids, row->id_count, row->prompt, 1);
    xr_dataset_close(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_rows_are_read),
        cmocka_unit_test(numbers_become_plain_text),
        cmocka_unit_test(rows_of_verl_are_read),
        cmocka_unit_test(sft_rows_end_with_eos),
        cmocka_unit_test(overlong_prompts_are_handled),
        cmocka_unit_test(overlong_sft_rows_are_handled),
        cmocka_unit_test(bad_rows_are_refused),
        cmocka_unit_test(bad_templates_are_refused),
        cmocka_unit_test(ground_truths_become_text),
        cmocka_unit_test(answers_may_be_unwanted),
        cmocka_unit_test(files_are_read_in_order),
        cmocka_unit_test(gsm8k_is_read_completely),
    };
    return cmocka_run_group_tests_name("data", tests, open_tokenizer,
                                       close_tokenizer);
}
