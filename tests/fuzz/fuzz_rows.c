/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes JSON lines of data. The first byte chooses how they are read. After a
 * '[' come settings of [data] instead, one per line, and after a NUL a chat
 * template, which may be empty, and after another one the rows.
 */
#include "core/data/data.h"
#include "tests/fuzz/fuzz.h"

/* One token each for a..z and a space, and an end token. */
static const xm_tokenizer *open_tokenizer(void)
{
    static xm_tokenizer *tok;
    if (tok)
        return tok;
    xr_str json = { 0 };
    xr_err err = { "" };
    xr_str_puts(&json,
                "{\"added_tokens\":[{\"id\":0,\"content\":\"<e>\",\"special\":"
                "true}],\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{"
                "\"String\":\"\"},\"behavior\":\"Isolated\",\"invert\":false},"
                "\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":"
                "\"WordLevel\",\"unk_token\":\"<e>\",\"vocab\":{\"<e>\":0");
    for (int c = 'a'; c <= 'z'; c++)
        xr_str_printf(&json, ",\"%c\":%d", c, c - 'a' + 1);
    xr_str_puts(&json, ",\" \":27}}}");
    FUZZ_CHECK(!json.failed);
    (void)fuzz_write("tokenizer.json", json.data, json.size);
    xr_str_free(&json);
    (void)fuzz_write("tokenizer_config.json", "{\"eos_token\":\"<e>\"}", 19);
    if (xm_tokenizer_open(fuzz_dir(), &err, &tok))
        (void)fprintf(stderr, "%s\n", err.text);
    FUZZ_CHECK(tok);
    return tok;
}

static const xm_chat *open_chat_template(void)
{
    static const char text[] =
        "{% for m in messages %}{{ m['role'] }} {% generation %}{{ m.content }}"
        "{% endgeneration %} {% endfor %}";
    static xm_chat *chat;
    xr_err err = { "" };
    if (!chat)
        FUZZ_CHECK(xm_chat_compile(text, sizeof(text) - 1, "template", &err,
                                   &chat) == XRAY_OK);
    return chat;
}

/* The default [data] section except for the lengths. */
static const xr_data_section *choose_settings(const char *path)
{
    static xr_config *config;
    static xr_run_config run;
    char files[160];
    xr_errors errors = { 0 };
    if (config)
        return &run.data;
    config = xr_config_new();
    FUZZ_CHECK(config);
    (void)snprintf(files, sizeof(files), "data.train_files=%s", path);
    xr_config_set(config, files, &errors);
    xr_config_set(config, "data.max_prompt_length=40", &errors);
    xr_config_set(config, "data.max_response_length=30", &errors);
    FUZZ_CHECK(!errors.count);
    xr_run_decode(config, &run, &errors);
    xr_errors_free(&errors);
    return &run.data;
}

static void report_row(const xr_row *row)
{
    fuzz_saw_u64("row", row->id);
    fuzz_saw_text("prompt", row->prompt);
    fuzz_saw_text("truth", row->ground_truth);
    fuzz_saw_text("source", row->data_source);
    fuzz_saw_text("fields", row->fields_json);
    fuzz_saw_u64("prompt tokens", row->prompt_count);
    for (uint32_t t = 0; t < row->id_count; t++)
        fuzz_saw_i64(row->mask && row->mask[t] ? "learned" : "token",
                     row->ids[t]);
}

static void report_set(const xr_dataset *set)
{
    fuzz_saw_u64("rows", xr_dataset_count(set));
    fuzz_saw_u64("filtered", xr_dataset_filtered(set));
    fuzz_saw_u64("truncated", xr_dataset_truncated(set));
    fuzz_saw_u64("unwanted", xr_dataset_unwanted(set));
    fuzz_saw_u64("refused rows", xr_dataset_refused(set));
    fuzz_saw_text("note", xr_dataset_note(set));
}

/* The order of two and a half epochs. */
static void report_order(const xr_dataset *set, int shuffle)
{
    xr_sampler sampler;
    size_t parts = 0;
    xr_err err = { "" };
    xr_str order = { 0 };
    const xr_share *shares = xr_dataset_shares(set, &parts);
    if (!fuzz_sees() || !xr_dataset_count(set) || xr_dataset_count(set) > 64)
        return;
    if (xr_sampler_init(&sampler, shares, parts, 7, shuffle, &err)) {
        fuzz_said(&err);
        return;
    }
    for (size_t i = 0; i < xr_dataset_count(set) * 5 / 2; i++)
        xr_str_printf(&order, " %u", xr_sampler_next(&sampler));
    fuzz_saw_text("order", xr_str_text(&order));
    fuzz_saw_u64("steps", xr_sampler_steps(&sampler, 3));
    xr_sampler_free(&sampler);
    xr_str_free(&order);
}

/* SFT rows share prompt and response lengths. */
static void check_rows(const xr_dataset *set, const xr_data_section *section,
                       int kind)
{
    int64_t most = section->max_prompt_length;
    if (kind == XR_DATA_SFT)
        most += section->max_response_length;
    for (size_t i = 0; i < xr_dataset_count(set); i++) {
        const xr_row *row = xr_dataset_row(set, i);
        report_row(row);
        FUZZ_CHECK(row->prompt && row->ground_truth && row->data_source);
        FUZZ_CHECK(row->fields_json && row->prompt_count <= row->id_count);
        FUZZ_CHECK(row->id_count <= (uint64_t)most);
        for (uint32_t t = 0; t < row->id_count; t++)
            FUZZ_CHECK(row->ids[t] >= 0 && row->ids[t] < 28);
    }
}

static void read_rows(const xr_data_section *section, const xr_data_want *want)
{
    xr_err err = { "" };
    xr_dataset *set = NULL;
    if (xr_dataset_open(section, want, &err, &set)) {
        fuzz_said(&err);
    } else {
        report_set(set);
        check_rows(set, section, want->kind);
        report_order(set, 1);
        report_order(set, 0);
    }
    xr_dataset_close(set);
}

static void set_keys(xr_config *config, char *lines, xr_errors *errors)
{
    char assignment[1024];
    (void)snprintf(assignment, sizeof(assignment),
                   "data.train_files=%s/rows.jsonl%s", fuzz_dir(),
                   strstr(lines, "train_weights") ? ", again.jsonl" : "");
    xr_config_set(config, assignment, errors);
    for (char *line = lines; *line;) {
        size_t size = strcspn(line, "\n");
        (void)snprintf(assignment, sizeof(assignment), "data.%.*s",
                       (int)(size < 900 ? size : 900), line);
        xr_config_set(config, assignment, errors);
        line += size + (line[size] == '\n');
    }
}

/* Every part and kind of rows that these settings give. */
static void read_parts(const xr_run_config *run, const xm_chat *chat)
{
    for (int part = XR_DATA_TRAIN; part <= XR_DATA_VAL; part++)
        for (int kind = XR_DATA_PROMPTS; kind <= XR_DATA_SFT; kind++) {
            xr_errors refused = { 0 };
            const xr_data_want want = { .part = part,
                                        .kind = kind,
                                        .tokenizer = open_tokenizer(),
                                        .chat = chat,
                                        .errors = &refused };
            if (part == XR_DATA_VAL && !xr_data_has_val(&run->data))
                continue;
            read_rows(&run->data, &want);
            for (size_t i = 0; i < refused.count; i++)
                fuzz_saw_text("refused", refused.items[i]);
            xr_errors_free(&refused);
        }
}

static void read_with_settings(const uint8_t *data, size_t size)
{
    fuzz_two two = fuzz_split(data, size);
    fuzz_two rest = fuzz_split(two.second, two.second_size);
    char *lines = fuzz_text(two.first, two.first_size);
    xr_config *config = xr_config_new();
    xr_run_config run = { 0 };
    xr_errors errors = { 0 };
    xr_err err = { "" };
    xm_chat *chat = NULL;
    FUZZ_CHECK(config);
    (void)fuzz_write("rows.jsonl", rest.second, rest.second_size);
    (void)fuzz_write("again.jsonl", rest.second, rest.second_size);
    set_keys(config, lines, &errors);
    xr_run_decode(config, &run, &errors);
    for (size_t i = 0; i < errors.count; i++)
        fuzz_saw_text("refused", errors.items[i]);
    if (rest.first_size &&
        xm_chat_compile((const char *)rest.first, rest.first_size, "template",
                        &err, &chat))
        fuzz_said(&err);
    else if (!errors.count)
        read_parts(&run, chat);
    xm_chat_close(chat);
    xr_errors_free(&errors);
    xr_config_free(config);
    free(lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const templates[] = { "{prompt}", "q {prompt} {x}",
                                             "{{{extra_info}}}" };
    unsigned how = size ? data[0] : 0;
    if (how == '[') {
        read_with_settings(data + 1, size - 1);
        return 0;
    }
    const xm_tokenizer *tok = open_tokenizer();
    const char *path =
        fuzz_write("rows.jsonl", size ? data + 1 : data, size ? size - 1 : 0);
    xr_data_section section = *choose_settings(path);
    section.template = templates[how % 3];
    section.filter_overlong_prompts = how >> 2 & 1u;
    section.truncation = how >> 3 & 3u ? (how >> 3 & 3u) - 1 : XR_TRUNCATE_LEFT;
    section.val_split = how >> 7 & 1u ? 0.5 : 0;
    xr_data_want want = { .part = XR_DATA_TRAIN,
                          .kind = how >> 5 & 1u ? XR_DATA_SFT : XR_DATA_PROMPTS,
                          .tokenizer = tok,
                          .chat = how >> 6 & 1u ? open_chat_template() : NULL };
    read_rows(&section, &want);
    return 0;
}
