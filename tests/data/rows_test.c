/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves the fate of a file's rows: which ones are used, cut, held out or
 * refused, and their contents.
 */
#include <zlib.h>

#include "core/data/data.h"
#include "tests/scratch.h"

static xm_tokenizer *tokenizer;
static xr_data_section data; /* of the case in hand */

/* The [data] section unless a case changes it. */
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

/* The files a.jsonl, b.jsonl, ... contain `texts`, which end with NULL. */
typedef struct files {
    char paths[3][256];
    const char *items[3];
    xray_list list;
} files;

static void write_files(files *f, const char *first, const char *second)
{
    const char *const texts[] = { first, second };
    f->list = (xray_list){ f->items, 0 };
    for (size_t i = 0; i < 2 && texts[i]; i++) {
        (void)snprintf(f->paths[i], sizeof f->paths[i], "%s",
                       scratch_write(i ? "b.jsonl" : "a.jsonl", texts[i]));
        f->items[i] = f->paths[i];
        f->list.count++;
    }
}

static xray_status open_part(int part, int kind, xr_err *err, xr_dataset **out)
{
    const xr_data_want want = { .part = part,
                                .kind = kind,
                                .tokenizer = tokenizer };
    *err = (xr_err){ "" };
    *out = NULL;
    return xr_dataset_open(&data, &want, err, out);
}

static xr_dataset *read_part(int part, int kind)
{
    xr_err err;
    xr_dataset *set;
    if (open_part(part, kind, &err, &set) != XRAY_OK)
        fail_msg("%s", err.text);
    return set;
}

/* Of one text, for training. */
static xr_dataset *read_text_rows(const char *text, int kind)
{
    static files f;
    write_files(&f, text, NULL);
    data.train_files = f.list;
    return read_part(XR_DATA_TRAIN, kind);
}

/* Compares the complete message without the folder of the files. */
static void expect_refusal(int part, int kind, const char *want)
{
    xr_err err;
    xr_dataset *set;
    const char *dir = scratch_dir();
    assert_int_equal(open_part(part, kind, &err, &set), XRAY_E_CONFIG);
    assert_null(set);
    char *at = strstr(err.text, dir);
    if (at)
        memmove(at, at + strlen(dir) + 1, strlen(at + strlen(dir)));
    assert_string_equal(err.text, want);
}

static void expect_refused_text(const char *text, int kind, const char *want)
{
    static files f;
    write_files(&f, text, NULL);
    data.train_files = f.list;
    expect_refusal(XR_DATA_TRAIN, kind, want);
}

/* Compares the ids of all rows, as "0,2". */
static void expect_ids(const xr_dataset *set, const char *want)
{
    char got[512] = "";
    size_t size = 0;
    for (size_t i = 0; i < xr_dataset_count(set); i++)
        size += (size_t)snprintf(
            got + size, sizeof got - size, "%s%llu", i ? "," : "",
            (unsigned long long)xr_dataset_row(set, i)->id);
    assert_string_equal(got, want);
}

static void expect_counts(const xr_dataset *set, size_t filtered,
                          size_t truncated, size_t unwanted)
{
    assert_int_equal(xr_dataset_filtered(set), filtered);
    assert_int_equal(xr_dataset_truncated(set), truncated);
    assert_int_equal(xr_dataset_unwanted(set), unwanted);
}

static size_t count_tokens(const char *text, int special)
{
    xm_ids ids = { 0 };
    assert_int_equal(
        xm_tokenizer_encode(tokenizer, text, strlen(text), special, &ids, NULL),
        XRAY_OK);
    size_t count = ids.count;
    xm_ids_free(&ids);
    return count;
}

#define ROW(prompt, more) \
    "{\"prompt\":\"" prompt "\",\"answer\":\"1\"" more "}\n"

/* ---- contents of a row -------------------------------------------------- */

static void sources_are_kept(void **state)
{
    (void)state;
    static const char text[] = ROW("a", ",\"data_source\":\"x\",\"of\":\"p\"")
        ROW("b", ",\"data_source\":\"x\",\"of\":\"q\"")
            ROW("c", ",\"data_source\":\"y\"") ROW("d", ",\"of\":\"p\"")
                ROW("e", ",\"data_source\":7,\"of\":true")
                    ROW("f", ",\"data_source\":\"7\",\"of\":\"p\"");
    static const char *const want[2][6] = {
        { "x", "x", "y", "", "7", "7" }, { "p", "q", "", "p", "true", "p" }
    };
    for (size_t key = 0; key < 2; key++) {
        data.reward_fn_key = key ? "of" : "data_source";
        xr_dataset *set = read_text_rows(text, XR_DATA_PROMPTS);
        assert_int_equal(xr_dataset_count(set), 6);
        for (size_t i = 0; i < 6; i++)
            assert_string_equal(xr_dataset_row(set, i)->data_source,
                                want[key][i]);
        xr_dataset_close(set);
    }
    expect_refused_text(ROW("a", ",\"of\":{}"), XR_DATA_PROMPTS,
                        "a.jsonl:1: 'of' is an object; expected text, a number "
                        "or a list of messages");
}

/* More rows than the initial capacity, each with its own contents. */
static void many_rows_are_kept(void **state)
{
    (void)state;
    xr_str text = { 0 };
    for (int i = 0; i < 600; i++)
        xr_str_printf(&text, "{\"prompt\":\"n %d\",\"answer\":%d}\n", i, 2 * i);
    xr_dataset *set = read_text_rows(xr_str_text(&text), XR_DATA_PROMPTS);
    assert_int_equal(xr_dataset_count(set), 600);
    for (int i = 0; i < 600; i++) {
        const xr_row *row = xr_dataset_row(set, (size_t)i);
        char want[2][16];
        (void)snprintf(want[0], sizeof want[0], "n %d", i);
        (void)snprintf(want[1], sizeof want[1], "%d", 2 * i);
        assert_int_equal(row->id, i);
        assert_string_equal(row->prompt, want[0]);
        assert_string_equal(row->ground_truth, want[1]);
        assert_null(row->mask);
        assert_int_equal(row->prompt_count, count_tokens(want[0], 1));
    }
    xr_str_free(&text);
    xr_dataset_close(set);
}

/* Blanks around a line are ignored; empty lines are not rows, but count as
 * lines. */
static void blank_lines_are_skipped(void **state)
{
    (void)state;
    xr_dataset *set = read_text_rows(
        "\xef\xbb\xbf" ROW("a",
                           "") "\r\n \t \n"
                               " \t{\"prompt\":\"b\",\"answer\":\"\"}\t \r\n"
                               "{\"prompt\":\"c\",\"answer\":\"\"}",
        XR_DATA_PROMPTS);
    expect_ids(set, "0,1,2");
    assert_string_equal(xr_dataset_row(set, 0)->fields_json,
                        "{\"prompt\":\"a\",\"answer\":\"1\"}");
    assert_string_equal(xr_dataset_row(set, 1)->fields_json,
                        "{\"prompt\":\"b\",\"answer\":\"\"}");
    assert_string_equal(xr_dataset_row(set, 2)->fields_json,
                        "{\"prompt\":\"c\",\"answer\":\"\"}");
    xr_dataset_close(set);
    expect_refused_text(ROW("a", "") "\n\r\n{\"q\":1}\n", XR_DATA_PROMPTS,
                        "a.jsonl:4: no key 'prompt'");
    expect_refused_text(
        "{\"prompt\":\"a\"}", XR_DATA_PROMPTS,
        "a.jsonl:1: the row has neither reward_model.ground_truth nor the key "
        "'answer' of [data] answer_key (set answer_key to \"\" for rows "
        "without an answer)");
    expect_refused_text("{\"prompt\":\"a\",\"reward_model\":{\"ground_truth\":"
                        "[]},\"answer\":1}",
                        XR_DATA_PROMPTS,
                        "a.jsonl:1: 'reward_model.ground_truth' is an empty "
                        "list");
    expect_refused_text("\n\n", XR_DATA_PROMPTS, "a.jsonl: there are no rows");
    data.special_tokens = 0;
    expect_refused_text(ROW("", ""), XR_DATA_PROMPTS,
                        "a.jsonl:1: the prompt has no tokens");
}

/* ---- lengths ------------------------------------------------------------ */

#define WORDS "Once upon a time there was a little dog"

static void longest_prompt_is_bounded(void **state)
{
    (void)state;
    static const char text[] = ROW(WORDS, "") ROW("a", "");
    char why[256];
    int64_t most = (int64_t)count_tokens(WORDS, 1);
    data.max_prompt_length = most;
    xr_dataset *set = read_text_rows(text, XR_DATA_PROMPTS);
    expect_ids(set, "0,1");
    expect_counts(set, 0, 0, 0);
    assert_int_equal(xr_dataset_row(set, 0)->id_count, most);
    xr_dataset_close(set);
    data.max_prompt_length = most - 1;
    (void)snprintf(why, sizeof why,
                   "a.jsonl:1: %lld tokens, but at most %lld are allowed "
                   "(max_prompt_length; [data] filter_overlong_prompts or "
                   "truncation would leave out or cut such rows)",
                   (long long)most, (long long)most - 1);
    expect_refused_text(text, XR_DATA_PROMPTS, why);
    /* With both settings, the row is left out instead of cut. */
    for (int way = XR_TRUNCATE_ERROR; way <= XR_TRUNCATE_RIGHT; way++) {
        data.filter_overlong_prompts = 1;
        data.truncation = way;
        set = read_text_rows(text, XR_DATA_PROMPTS);
        expect_ids(set, "1");
        expect_counts(set, 1, 0, 0);
        xr_dataset_close(set);
    }
    data.truncation = XR_TRUNCATE_ERROR;
    (void)snprintf(why, sizeof why,
                   "a.jsonl: all 2 rows are longer than %lld tokens",
                   (long long)most - 1);
    expect_refused_text(ROW(WORDS, "") ROW(WORDS, ""), XR_DATA_PROMPTS, why);
}

static void longest_response_is_bounded(void **state)
{
    (void)state;
    static const char text[] =
        "{\"prompt\":\"" WORDS "\",\"answer\":\"" WORDS "\"}\n";
    char why[256];
    size_t prompt = count_tokens(WORDS, 1);
    size_t full_count = prompt + count_tokens(WORDS, 0) + 1;
    data.max_response_length = 3;
    data.max_prompt_length = (int64_t)full_count - 3;
    xr_dataset *set = read_text_rows(text, XR_DATA_SFT);
    assert_int_equal(xr_dataset_row(set, 0)->id_count, full_count);
    assert_int_equal(xr_dataset_row(set, 0)->prompt_count, prompt);
    assert_string_equal(xr_dataset_row(set, 0)->ground_truth, "");
    xr_dataset_close(set);
    data.max_response_length = 2;
    (void)snprintf(why, sizeof why,
                   "a.jsonl:1: %zu tokens, but at most %zu are allowed "
                   "(max_prompt_length + max_response_length; [data] "
                   "filter_overlong_prompts or truncation would leave out or "
                   "cut such rows)",
                   full_count, full_count - 1);
    expect_refused_text(text, XR_DATA_SFT, why);
    /* A cut from the left removes more than the prompt; one from the right
     * leaves one token of the response, or none. */
    data.max_response_length = 0;
    data.truncation = XR_TRUNCATE_LEFT;
    data.max_prompt_length = (int64_t)(full_count - prompt) - 2;
    set = read_text_rows(text, XR_DATA_SFT);
    assert_int_equal(xr_dataset_row(set, 0)->prompt_count, 0);
    assert_int_equal(xr_dataset_row(set, 0)->ids[full_count - prompt - 3],
                     xm_tokenizer_eos(tokenizer));
    expect_counts(set, 0, 1, 0);
    xr_dataset_close(set);
    data.truncation = XR_TRUNCATE_RIGHT;
    data.max_prompt_length = (int64_t)prompt + 1;
    set = read_text_rows(text, XR_DATA_SFT);
    assert_int_equal(xr_dataset_row(set, 0)->id_count, prompt + 1);
    assert_int_equal(xr_dataset_row(set, 0)->prompt_count, prompt);
    xr_dataset_close(set);
    data.max_prompt_length = (int64_t)prompt;
    set = read_text_rows(ROW("a", "") "{\"prompt\":\"" WORDS
                                      "\",\"answer\":\"x\"}",
                         XR_DATA_SFT);
    expect_ids(set, "0");
    expect_counts(set, 1, 0, 0);
    xr_dataset_close(set);
}

/* ---- which rows --------------------------------------------------------- */

static void filters_leave_rows_out(void **state)
{
    (void)state;
    static const char text[] = ROW("a", ",\"n\":1") ROW("b", ",\"n\":2")
        ROW("c", ",\"n\":3") ROW("d", ",\"n\":4,\"x\":1");
    static const char *const both[] = { "n >= 2", "x != 1" };
    static const char *const none[] = { "n > 4" };
    static const char *const wrong[] = { "n" };
    data.filters = (xray_list){ both, 2 };
    xr_dataset *set = read_text_rows(text, XR_DATA_PROMPTS);
    expect_ids(set, "1,2"); /* rows keep their numbers */
    expect_counts(set, 0, 0, 2);
    xr_dataset_close(set);
    /* The row limit counts rows before the filters. */
    data.train_max_samples = 2;
    set = read_text_rows(text, XR_DATA_PROMPTS);
    expect_ids(set, "1");
    expect_counts(set, 0, 0, 1);
    xr_dataset_close(set);
    data.train_max_samples = 0;
    expect_refused_text(text, XR_DATA_PROMPTS, "a.jsonl: there are no rows");
    data.train_max_samples = -1;
    data.filters = (xray_list){ none, 1 };
    expect_refused_text(text, XR_DATA_PROMPTS,
                        "a.jsonl: none of 4 rows meets [data] filters");
    data.filters = (xray_list){ wrong, 1 };
    expect_refused_text(text, XR_DATA_PROMPTS,
                        "[data] filters: 'n' is not a condition; expected 'key "
                        "op value' with =, !=, <, <=, >, >= or ~");
}

static void train_and_validation_files_differ(void **state)
{
    (void)state;
    files train;
    files val;
    write_files(&train, ROW("a", "") ROW("b", ""), ROW("c", "") ROW("d", ""));
    data.train_files = train.list;
    assert_int_equal(xr_data_has_val(&data), 0);
    expect_refusal(XR_DATA_VAL, XR_DATA_PROMPTS, "[data] val_files is not set");
    val.list = (xray_list){ val.items, 1 };
    (void)snprintf(
        val.paths[0], sizeof val.paths[0], "%s",
        scratch_write("v.jsonl", ROW("v", "") ROW("w", "") ROW("x", "")));
    val.items[0] = val.paths[0];
    data.val_files = val.list;
    data.train_max_samples = 3;
    data.val_max_samples = 2;
    assert_int_equal(xr_data_has_val(&data), 1);
    xr_dataset *set = read_part(XR_DATA_TRAIN, XR_DATA_PROMPTS);
    expect_ids(set, "0,1,2");
    assert_string_equal(xr_dataset_row(set, 2)->prompt, "c");
    xr_dataset_close(set);
    set = read_part(XR_DATA_VAL, XR_DATA_PROMPTS);
    expect_ids(set, "0,1");
    assert_string_equal(xr_dataset_row(set, 1)->prompt, "w");
    xr_dataset_close(set);
    data.val_split = 0.25;
    expect_refusal(XR_DATA_TRAIN, XR_DATA_PROMPTS,
                   "[data] val_split: val_files already names the validation "
                   "rows; set only one of the two");
    data.train_files.count = 0;
    data.val_split = 0;
    expect_refusal(XR_DATA_TRAIN, XR_DATA_PROMPTS, "no data file is named");
}

/* Pins the held-out prompts, computed by a second implementation of the
 * hash. */
static void split_holds_rows_out(void **state)
{
    (void)state;
    static const struct {
        double share;
        const char *held;
        const char *rest;
        int64_t most[2]; /* rows of the files, whichever side they are on */
    } cases[] = {
        { 0.25, "5,6,7,9", "0,1,2,3,4", { 10, 6 } },
        { 0.25,
          "5,6,7,9,10,11,15,20,21,22",
          "0,1,2,3,4,8,12,13,14,16,17,18,19,23",
          { -1, -1 } },
        { 0.5,
          "2,3,4,5,6,7,9,10,11,12,15,17,20,21,22,23",
          "0,1,8,13,14,16,18,19",
          { -1, -1 } },
    };
    files f;
    xr_str text = { 0 };
    for (int i = 0; i < 24; i++)
        xr_str_printf(&text, "{\"prompt\":\"n %d\",\"answer\":\"\"}\n", i);
    write_files(&f, xr_str_text(&text), NULL);
    data.train_files = f.list;
    for (size_t i = 0; i < 3; i++) {
        data.val_split = cases[i].share;
        data.val_max_samples = cases[i].most[0];
        data.train_max_samples = cases[i].most[1];
        assert_int_equal(xr_data_has_val(&data), 1);
        xr_dataset *set = read_part(XR_DATA_VAL, XR_DATA_PROMPTS);
        expect_ids(set, cases[i].held);
        xr_dataset_close(set);
        set = read_part(XR_DATA_TRAIN, XR_DATA_PROMPTS);
        expect_ids(set, cases[i].rest);
        xr_dataset_close(set);
    }
    xr_str_free(&text);
    data.val_split = 0.25;
    expect_refused_text("{\"prompt\":\"n 5\",\"answer\":\"\"}", XR_DATA_PROMPTS,
                        "a.jsonl: [data] val_split = 0.25 leaves no rows for "
                        "training");
    write_files(&f, "{\"prompt\":\"n 0\",\"answer\":\"\"}", NULL);
    data.train_files = f.list;
    expect_refusal(XR_DATA_VAL, XR_DATA_PROMPTS,
                   "a.jsonl: [data] val_split = 0.25 leaves no rows for "
                   "validation");
}

static void weights_become_shares(void **state)
{
    (void)state;
    static const struct {
        const char *weights[3];
        const char *why; /* NULL: taken */
    } cases[] = {
        { { "3", "0.5" }, NULL },
        { { "999999999999", "1e-9" }, NULL },
        { { "1", NULL }, "[data] train_weights: 1 weights for 2 files" },
        { { "1", "2", "3" }, "[data] train_weights: 3 weights for 2 files" },
        { { "1", "0" },
          "[data] train_weights: '0' is not a weight; expected a number above "
          "0" },
        { { "-1", "1" },
          "[data] train_weights: '-1' is not a weight; expected a number above "
          "0" },
        { { "1", "1e12" },
          "[data] train_weights: '1e12' is not a weight; expected a number "
          "above 0" },
        { { "much", "1" },
          "[data] train_weights: 'much' is not a weight; expected a number "
          "above 0" },
    };
    static const char *const marked[] = { "keep = 1" };
    files f;
    size_t count = 0;
    write_files(&f, ROW("a", ",\"keep\":1") ROW("b", ",\"keep\":1"),
                ROW("c", ",\"keep\":1") ROW("d", "") ROW("e", ",\"keep\":1")
                    ROW("f", ",\"keep\":1"));
    data.train_files = f.list;
    data.filters = (xray_list){ marked, 1 };
    xr_dataset *set = read_part(XR_DATA_TRAIN, XR_DATA_PROMPTS);
    const xr_share *parts = xr_dataset_shares(set, &count);
    assert_int_equal(count, 1);
    assert_true(parts->first == 0 && parts->count == 5 && parts->weight == 5);
    xr_dataset_close(set);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t given = 0;
        while (given < 3 && cases[i].weights[given])
            given++;
        data.train_weights = (xray_list){ cases[i].weights, given };
        if (cases[i].why) {
            expect_refusal(XR_DATA_TRAIN, XR_DATA_PROMPTS, cases[i].why);
            continue;
        }
        set = read_part(XR_DATA_TRAIN, XR_DATA_PROMPTS);
        parts = xr_dataset_shares(set, &count);
        assert_int_equal(count, 2);
        assert_true(parts[0].first == 0 && parts[0].count == 2);
        assert_true(parts[1].first == 2 && parts[1].count == 3);
        for (size_t k = 0; k < 2; k++)
            assert_true(parts[k].weight == strtod(cases[i].weights[k], NULL));
        xr_dataset_close(set);
    }
    /* Weights apply to the training files only. */
    data.val_split = 0.5;
    data.train_weights.count = 1;
    set = read_part(XR_DATA_VAL, XR_DATA_PROMPTS);
    (void)xr_dataset_shares(set, &count);
    assert_int_equal(count, 1);
    xr_dataset_close(set);
    data.val_split = 0;
    write_files(&f, ROW("a", ",\"keep\":1"), ROW("b", ""));
    data.train_weights = (xray_list){ cases[0].weights, 2 };
    expect_refusal(XR_DATA_TRAIN, XR_DATA_PROMPTS,
                   "b.jsonl: the file has no usable rows, but [data] "
                   "train_weights gives it a share");
}

/* A caller that asks for all malformed rows gets the others, and the sentences
 * of as many as it can show. */
static void malformed_rows_are_counted(void **state)
{
    (void)state;
    enum { BAD = XR_DATA_ERRORS + 3 };
    files f;
    xr_str text = { 0 };
    xr_errors errors = { 0 };
    xr_err err = { "" };
    xr_dataset *set = NULL;
    const xr_data_want want = { .part = XR_DATA_TRAIN,
                                .kind = XR_DATA_PROMPTS,
                                .tokenizer = tokenizer,
                                .errors = &errors };
    for (size_t i = 0; i < BAD; i++)
        xr_str_puts(&text, i == 1 ? ROW("a", "") "{\n" : "{\"q\":1}\n");
    write_files(&f, xr_str_text(&text), ROW("b", ""));
    data.train_files = f.list;
    assert_int_equal(xr_dataset_open(&data, &want, &err, &set), XRAY_OK);
    assert_string_equal(err.text, "");
    assert_int_equal(xr_dataset_count(set), 2);
    assert_string_equal(xr_dataset_row(set, 1)->prompt, "b");
    assert_int_equal(xr_dataset_refused(set), BAD);
    assert_int_equal(errors.count, XR_DATA_ERRORS);
    assert_non_null(strstr(errors.items[0], "a.jsonl:1: no key 'prompt'"));
    assert_non_null(strstr(errors.items[1], "a.jsonl:3"));
    xr_dataset_close(set);
    xr_errors_free(&errors);
    /* A set with nothing else is refused, and so is a file that is not there.
     */
    data.train_files.count = 1;
    f.items[0] = scratch_write("a.jsonl", "{}\n");
    assert_int_equal(xr_dataset_open(&data, &want, &err, &set), XRAY_E_CONFIG);
    assert_non_null(strstr(err.text, "none of its rows can be used"));
    assert_int_equal(errors.count, 1);
    f.items[0] = scratch_path("none.jsonl");
    assert_int_equal(xr_dataset_open(&data, &want, &err, &set), XRAY_E_IO);
    assert_int_equal(errors.count, 1);
    xr_errors_free(&errors);
    xr_str_free(&text);
}

static void compressed_rows_are_read(void **state)
{
    (void)state;
    static const char text[] = ROW("a", "") ROW("b", "");
    static files f;
    write_files(&f, "", NULL);
    data.train_files = f.list;
    gzFile out = gzopen(f.paths[0], "wb");
    assert_non_null(out);
    assert_int_equal(gzwrite(out, text, sizeof text - 1), sizeof text - 1);
    assert_int_equal(gzclose(out), Z_OK);
    xr_dataset *set = read_part(XR_DATA_TRAIN, XR_DATA_PROMPTS);
    expect_ids(set, "0,1");
    assert_string_equal(xr_dataset_row(set, 1)->prompt, "b");
    xr_dataset_close(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(sources_are_kept, begin_case),
        cmocka_unit_test_setup(many_rows_are_kept, begin_case),
        cmocka_unit_test_setup(blank_lines_are_skipped, begin_case),
        cmocka_unit_test_setup(longest_prompt_is_bounded, begin_case),
        cmocka_unit_test_setup(longest_response_is_bounded, begin_case),
        cmocka_unit_test_setup(filters_leave_rows_out, begin_case),
        cmocka_unit_test_setup(train_and_validation_files_differ, begin_case),
        cmocka_unit_test_setup(split_holds_rows_out, begin_case),
        cmocka_unit_test_setup(weights_become_shares, begin_case),
        cmocka_unit_test_setup(malformed_rows_are_counted, begin_case),
        cmocka_unit_test_setup(compressed_rows_are_read, begin_case),
    };
    return cmocka_run_group_tests_name("data.rows", tests, open_tokenizer,
                                       close_tokenizer);
}
