/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves rows that are conversations: prompts through a chat template, and the
 * tokens that SFT learns from a complete conversation.
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
/* As Qwen 3 treats thoughts: the last answer is rendered differently from
 * earlier ones. */
#define CHANGING                                                      \
    "{%- for m in messages -%}[{{ m.role }}]{{ m.content }}"          \
    "{%- if loop.last -%}!{%- endif -%}{{ eos_token }}{%- endfor -%}" \
    "{%- if add_generation_prompt -%}[assistant]{%- endif -%}"

typedef struct fixture {
    xm_tokenizer *tokenizer;
    xm_chat *chat;
    xr_data_section data;
    const char *files[1];
    char path[512];
} fixture;

static void begin_fixture(fixture *f, const char *source)
{
    xr_err err = { "" };
    *f = (fixture){ .data = { .prompt_key = "prompt",
                              .answer_key = "answer",
                              .response_key = "",
                              .reward_fn_key = "data_source",
                              .template = "Say {prompt}",
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
                              .tools_key = "tools" } };
    test_data("models/stories260K/hf", f->path, sizeof f->path);
    assert_int_equal(xm_tokenizer_open(f->path, &err, &f->tokenizer), XRAY_OK);
    if (source)
        f->data.chat_template = scratch_write("chat.jinja", source);
    if (xr_data_chat(&f->data, f->path, &err, &f->chat) != XRAY_OK)
        fail_msg("%s", err.text);
}

static void end_fixture(fixture *f)
{
    xm_chat_close(f->chat);
    xm_tokenizer_close(f->tokenizer);
}

static xray_status open_rows(fixture *f, const char *text, int kind, int part,
                             xr_err *err, xr_dataset **out)
{
    static char path[256];
    (void)snprintf(path, sizeof path, "%s", scratch_write("rows.jsonl", text));
    f->files[0] = path;
    f->data.train_files = (xray_list){ f->files, 1 };
    xr_data_want want = {
        .part = part, .kind = kind, .tokenizer = f->tokenizer, .chat = f->chat
    };
    return xr_dataset_open(&f->data, &want, err, out);
}

static xr_dataset *read_rows(fixture *f, const char *text, int kind)
{
    xr_err err = { "" };
    xr_dataset *set = NULL;
    if (open_rows(f, text, kind, XR_DATA_TRAIN, &err, &set) != XRAY_OK)
        fail_msg("%s", err.text);
    return set;
}

static void expect_refusal(fixture *f, const char *text, int kind,
                           const char *what)
{
    xr_err err = { "" };
    xr_dataset *set = NULL;
    assert_true(open_rows(f, text, kind, XR_DATA_TRAIN, &err, &set) < 0);
    assert_null(set);
    if (!strstr(err.text, what))
        fail_msg("%s", err.text);
}

static void expect_prompt(fixture *f, const char *row, const char *want)
{
    xr_dataset *set = read_rows(f, row, XR_DATA_PROMPTS);
    const xr_row *got = xr_dataset_row(set, 0);
    xm_ids ids = { 0 };
    assert_string_equal(got->prompt, want);
    assert_int_equal(
        xm_tokenizer_encode(f->tokenizer, want, strlen(want), 0, &ids, NULL),
        XRAY_OK);
    assert_int_equal(got->id_count, ids.count); /* no BOS but the template's */
    assert_memory_equal(got->ids, ids.data, ids.count * sizeof(int32_t));
    xm_ids_free(&ids);
    xr_dataset_close(set);
}

#define ASKS                                                 \
    "{\"prompt\":[{\"role\":\"user\",\"content\":\"two\"}]," \
    "\"answer\":\"2\"}"

static void prompts_go_through_the_template(void **state)
{
    (void)state;
    fixture f;
    begin_fixture(&f, PLAIN);
    expect_prompt(&f, ASKS, "[user]two\n[assistant]");
    f.data.add_generation_prompt = 0;
    expect_prompt(&f, ASKS, "[user]two\n");
    f.data.add_generation_prompt = 1;
    f.data.system_prompt = "Be brief.";
    expect_prompt(&f, ASKS, "[system]Be brief.\n[user]two\n[assistant]");
    expect_prompt(&f,
                  "{\"prompt\":[{\"role\":\"system\",\"content\":\"x\"},"
                  "{\"role\":\"user\",\"content\":\"y\"}],\"answer\":\"\"}",
                  "[system]x\n[user]y\n[assistant]");
    f.data.apply_chat_template = XR_CHAT_ALWAYS;
    expect_prompt(&f, "{\"prompt\":\"one\",\"answer\":\"1\"}",
                  "[system]Be brief.\n[user]Say one\n[assistant]");
    end_fixture(&f);
}

/* Plain prompts are left unchanged unless the INI demands a template. */
static void plain_prompt_becomes_a_message(void **state)
{
    (void)state;
    fixture f;
    begin_fixture(&f, PLAIN);
    xr_dataset *set =
        read_rows(&f, "{\"prompt\":\"one\",\"answer\":\"1\"}", XR_DATA_PROMPTS);
    assert_string_equal(xr_dataset_row(set, 0)->prompt, "Say one");
    xr_dataset_close(set);
    end_fixture(&f);
}

static void template_variables_are_passed(void **state)
{
    (void)state;
    fixture f;
    begin_fixture(&f,
                  "{{ strftime_now('%d %b %Y') }}|{{ mood }}|{{ bos_token }}|"
                  "{%- for t in tools or [] -%}{{ t.name }}{%- endfor -%}");
    f.data.chat_template_kwargs = "{\"mood\": \"calm\"}";
    expect_prompt(&f,
                  "{\"prompt\":[{\"role\":\"user\",\"content\":\"x\"}],"
                  "\"answer\":\"\",\"tools\":[{\"name\":\"add\"}]}",
                  "26 Jul 2024|calm|<s>|add");
    f.data.chat_date = "2026-03-01";
    expect_prompt(&f, ASKS, "01 Mar 2026|calm|<s>|");
    f.data.chat_date = "yesterday";
    expect_refusal(
        &f, ASKS, XR_DATA_PROMPTS,
        "[data] chat_date: 'yesterday' is not a date; expected YYYY-MM-DD");
    f.data.chat_date = "2026-03-01";
    f.data.chat_template_kwargs = "[1]";
    expect_refusal(&f, ASKS, XR_DATA_PROMPTS,
                   "[data] chat_template_kwargs must be a JSON object");
    end_fixture(&f);
}

static void bad_rows_are_refused(void **state)
{
    (void)state;
    fixture f;
    begin_fixture(&f, "{{ raise_exception('only two turns') }}");
    expect_refusal(&f, ASKS, XR_DATA_PROMPTS, "only two turns");
    expect_refusal(&f, ASKS, XR_DATA_PROMPTS, "rows.jsonl:1: ");
    expect_refusal(&f, "{\"prompt\":[],\"answer\":\"\"}", XR_DATA_PROMPTS,
                   "rows.jsonl:1: 'prompt' must be a list of messages, each an "
                   "object with a 'role'");
    end_fixture(&f);
    /* The model has no template of its own. */
    begin_fixture(&f, NULL);
    assert_null(f.chat);
    xr_dataset *set = read_rows(&f, ASKS, XR_DATA_PROMPTS);
    assert_string_equal(xr_dataset_row(set, 0)->prompt, "Say two");
    xr_dataset_close(set);
    expect_refusal(&f, "{\"messages\":[{\"role\":\"user\"}]}", XR_DATA_SFT,
                   "rows.jsonl:1: 'messages' is a conversation, but the model "
                   "has no chat template");
    f.data.apply_chat_template = XR_CHAT_ALWAYS;
    xr_err err = { "" };
    assert_int_equal(xr_data_chat(&f.data, f.path, &err, &f.chat),
                     XRAY_E_CONFIG);
    assert_non_null(strstr(err.text, "the model has no chat template, which "
                                     "[data] apply_chat_template = always "
                                     "needs"));
    end_fixture(&f);
}

/* Further members of a row that a template sees, and those it does not see. */
static void tools_and_documents_are_passed(void **state)
{
    (void)state;
    fixture f;
    begin_fixture(&f, "{{ tools | length if tools else 'no' }}|"
                      "{{ documents | length if documents else 'no' }}|"
                      "{{ add_generation_prompt }}|{{ messages[0].role }}");
    expect_prompt(&f,
                  "{\"prompt\":[{\"role\":\"developer\",\"content\":\"x\"}],"
                  "\"answer\":\"\",\"tools\":[{},{}],\"documents\":[{}]}",
                  "2|1|True|developer");
    f.data.tools_key = "functions";
    f.data.system_prompt = "S";
    f.data.add_generation_prompt = 0;
    expect_prompt(&f,
                  "{\"prompt\":[{\"role\":\"user\",\"content\":\"x\"}],"
                  "\"answer\":\"\",\"tools\":[{},{}],\"functions\":[{}]}",
                  "1|no|False|system");
    f.data.apply_chat_template = XR_CHAT_ALWAYS;
    f.data.system_prompt = "";
    expect_prompt(&f, "{\"prompt\":\"one\",\"answer\":\"\"}",
                  "no|no|False|user");
    expect_refusal(&f, "{\"answer\":\"\"}", XR_DATA_PROMPTS,
                   "rows.jsonl:1: no key 'prompt'");
    end_fixture(&f);
}

static void malformed_messages_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *row;
        int kind;
        const char *key;
    } cases[] = {
        { "{\"prompt\":[1],\"answer\":\"\"}", XR_DATA_PROMPTS, "prompt" },
        { "{\"prompt\":[{}],\"answer\":\"\"}", XR_DATA_PROMPTS, "prompt" },
        { "{\"prompt\":[{\"role\":1}],\"answer\":\"\"}", XR_DATA_PROMPTS,
          "prompt" },
        { "{\"prompt\":[{\"role\":\"user\"},{}],\"answer\":\"\"}",
          XR_DATA_PROMPTS, "prompt" },
        { "{\"messages\":\"x\"}", XR_DATA_SFT, "messages" },
        { "{\"messages\":[]}", XR_DATA_SFT, "messages" },
        { "{\"messages\":{\"role\":\"user\"}}", XR_DATA_SFT, "messages" },
        { "{\"messages\":[[]]}", XR_DATA_SFT, "messages" },
    };
    fixture f;
    begin_fixture(&f, PLAIN);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char want[160];
        (void)snprintf(want, sizeof want,
                       "rows.jsonl:1: '%s' must be a list of messages, each an "
                       "object with a 'role'",
                       cases[i].key);
        expect_refusal(&f, cases[i].row, cases[i].kind, want);
    }
    end_fixture(&f);
}

/* The template may be none, the file that [data] names, or the model's. */
static void template_is_chosen_by_settings(void **state)
{
    (void)state;
    char folder[256];
    xm_chat *chat;
    xr_err err = { "" };
    fixture f;
    begin_fixture(&f, PLAIN);
    (void)snprintf(folder, sizeof folder, "%s", scratch_path("model"));
    assert_int_equal(xr_dir_make(folder, NULL), XRAY_OK);
    (void)scratch_write("model/chat_template.jinja", "model's");
    for (int file = 0; file < 2; file++)
        for (int way = XR_CHAT_AUTO; way <= XR_CHAT_NEVER; way++) {
            xr_data_section data = f.data;
            data.apply_chat_template = way;
            data.chat_template = file ? scratch_write("own.jinja", "own") : "";
            assert_int_equal(xr_data_chat(&data, folder, &err, &chat), XRAY_OK);
            if (way == XR_CHAT_NEVER) {
                assert_null(chat);
                continue;
            }
            xm_chat_text text = { 0 };
            cJSON *none = cJSON_CreateArray();
            const xm_chat_call call = { .messages = none };
            assert_int_equal(xm_chat_render(chat, &call, "t", &err, &text),
                             XRAY_OK);
            assert_string_equal(xr_str_text(&text.text),
                                file ? "own" : "model's");
            xm_chat_text_free(&text);
            cJSON_Delete(none);
            xm_chat_close(chat);
        }
    xr_data_section data = f.data;
    data.chat_template = "";
    (void)scratch_write("model/chat_template.jinja", "{% if %}");
    assert_true(xr_data_chat(&data, folder, &err, &chat) < 0);
    assert_non_null(strstr(err.text, "chat_template.jinja"));
    const char *tail =
        " ([data] apply_chat_template = never works without a template)";
    assert_string_equal(err.text + strlen(err.text) - strlen(tail), tail);
    data.chat_template = "/nowhere.jinja";
    assert_true(xr_data_chat(&data, folder, &err, &chat) < 0);
    assert_non_null(strstr(err.text, "/nowhere.jinja"));
    end_fixture(&f);
}

/* ---- complete conversations --------------------------------------------- */

#define TALK                                                  \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"one\"}," \
    "{\"role\":\"assistant\",\"content\":\"two\"},"           \
    "{\"role\":\"user\",\"content\":\"three\"},"              \
    "{\"role\":\"assistant\",\"content\":\"four\"}]}"

/* Compares the text of the tokens to learn. */
static void expect_masked_text(fixture *f, const xr_row *row, const char *want)
{
    xr_str text = { 0 };
    int32_t *ids = calloc(row->id_count, sizeof *ids);
    size_t count = 0;
    assert_non_null(ids);
    assert_non_null(row->mask);
    for (uint32_t i = 0; i < row->id_count; i++)
        if (row->mask[i])
            ids[count++] = row->ids[i];
    assert_int_equal(
        xm_tokenizer_decode(f->tokenizer, ids, count, 0, &text, NULL), XRAY_OK);
    assert_string_equal(xr_str_text(&text), want);
    assert_true(row->mask[row->prompt_count]);
    for (uint32_t i = 0; i < row->prompt_count; i++)
        assert_false(row->mask[i]);
    xr_str_free(&text);
    free(ids);
}

static void conversations_mask_the_answers(void **state)
{
    (void)state;
    static const char *const templates[] = { MARKED, PLAIN };
    for (size_t i = 0; i < 2; i++) {
        fixture f;
        begin_fixture(&f, templates[i]);
        xr_dataset *set = read_rows(&f, TALK, XR_DATA_SFT);
        const xr_row *row = xr_dataset_row(set, 0);
        assert_string_equal(row->prompt, "[user]one\n[assistant]two</s>\n"
                                         "[user]three\n[assistant]four</s>\n");
        expect_masked_text(&f, row, "two</s>four</s>");
        xr_dataset_close(set);
        end_fixture(&f);
    }
}

/* Every token of a conversation that begins with its answer may be learned. */
static void first_tokens_can_be_learned(void **state)
{
    (void)state;
    static const char *const templates[] = {
        "{%- for m in messages -%}{{ m.content }}{%- endfor -%}",
        "{%- for m in messages -%}{% generation %}{{ m.content }}"
        "{% endgeneration %}{%- endfor -%}",
    };
    for (size_t i = 0; i < 2; i++) {
        fixture f;
        begin_fixture(&f, templates[i]);
        xr_dataset *set = read_rows(
            &f, "{\"messages\":[{\"role\":\"assistant\",\"content\":\"one\"}]}",
            XR_DATA_SFT);
        assert_int_equal(xr_dataset_row(set, 0)->prompt_count, 0);
        expect_masked_text(&f, xr_dataset_row(set, 0), "one");
        xr_dataset_close(set);
        end_fixture(&f);
    }
}

static void changing_prefix_is_refused(void **state)
{
    (void)state;
    fixture f;
    begin_fixture(&f, CHANGING);
    expect_refusal(&f, TALK, XR_DATA_SFT,
                   "rows.jsonl:1: the chat template does not put message 2 "
                   "after the generation prompt");
    end_fixture(&f);
}

/* The last answer is rendered differently once others follow it. */
static void changed_answer_is_refused(void **state)
{
    (void)state;
    fixture f;
    begin_fixture(
        &f, "{%- for m in messages -%}[{{ m.role }}]{{ m.content }}"
            "{%- if loop.last and not add_generation_prompt -%}!{%- endif -%}"
            "{%- endfor -%}"
            "{%- if add_generation_prompt -%}[assistant]{%- endif -%}");
    expect_refusal(&f, TALK, XR_DATA_SFT,
                   "rows.jsonl:1: the chat template changes message 2 when "
                   "others follow, so the assistant's tokens cannot be found; "
                   "use a template with generation blocks ([data] "
                   "chat_template)");
    f.data.system_prompt = "S"; /* which counts as a message */
    expect_refusal(&f, TALK, XR_DATA_SFT,
                   "rows.jsonl:1: the chat template changes message 3 when");
    end_fixture(&f);
}

#define ENDS                                                   \
    "{%- for m in messages -%}[{{ m.role }}]{{ m.content }}\n" \
    "{% endfor -%}"                                            \
    "{%- if add_generation_prompt -%}[assistant]{%- endif -%}"

/* Rows of both forms in sequence: only conversations have a mask, and each has
 * its own. */
static void mixed_rows_are_read(void **state)
{
    (void)state;
    static const char text[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a</s>\"},"
        "{\"role\":\"assistant\",\"content\":\"b\"}]}\n"
        "{\"prompt\":\"one\",\"answer\":\"two\"}\n" TALK "\n"
        "{\"messages\":[{\"role\":\"user\",\"content\":\"nothing\"}]}\n"
        "{\"messages\":[{\"role\":\"assistant\",\"content\":\"Once upon a time "
        "there was a little dog, and a cat, and a bird. They all went to the "
        "park and the sun was big and red and they saw a small tree there.\"},"
        "{\"role\":\"user\",\"content\":\"so\"}]}\n";
    fixture f;
    begin_fixture(&f, ENDS);
    f.data.max_prompt_length = 2000;
    xr_dataset *set = read_rows(&f, text, XR_DATA_SFT);
    assert_int_equal(xr_dataset_count(set), 4);
    assert_int_equal(xr_dataset_filtered(set), 1); /* nothing to learn of it */
    /* Without an EOS, the complete text of the message is learned. */
    expect_masked_text(&f, xr_dataset_row(set, 0), "b\n");
    assert_null(xr_dataset_row(set, 1)->mask);
    expect_masked_text(&f, xr_dataset_row(set, 2), "two\nfour\n");
    const xr_row *last = xr_dataset_row(set, 3);
    assert_int_equal(last->id, 4);
    assert_non_null(last->mask);
    uint32_t learnt = 0;
    for (uint32_t i = 0; i < last->id_count; i++)
        learnt += last->mask[i];
    static const char *const around[] = { "[assistant]", "[user]so\n" };
    uint32_t unlearnt = 0;
    for (size_t i = 0; i < 2; i++) {
        xm_ids ids = { 0 };
        assert_int_equal(xm_tokenizer_encode(f.tokenizer, around[i],
                                             strlen(around[i]), 0, &ids, NULL),
                         XRAY_OK);
        unlearnt += (uint32_t)ids.count;
        xm_ids_free(&ids);
    }
    assert_in_range(last->id_count - learnt, unlearnt - 1, unlearnt);
    assert_true(last->mask[last->prompt_count]);
    assert_false(last->mask[last->id_count - 1]);
    xr_dataset_close(set);
    end_fixture(&f);
}

/* The system prompt comes first; it is learned only if a block has it. */
static void generation_blocks_decide_the_mask(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { MARKED, "b</s>" },
        { PLAIN, "b</s>" },
        { "{% for m in messages %}[{{ m.role }}]{% generation %}{{ m.content }}"
          "{% endgeneration %}{{ eos_token if loop.last }}\n{% endfor %}",
          "Sab" },
    };
    for (size_t i = 0; i < 3; i++) {
        fixture f;
        begin_fixture(&f, rows[i][0]);
        f.data.system_prompt = "S";
        f.data.messages_key = "turns";
        xr_dataset *set = read_rows(
            &f,
            "{\"messages\":[],\"turns\":[{\"role\":\"user\",\"content\":\"a\"},"
            "{\"role\":\"assistant\",\"content\":\"b\"}]}",
            XR_DATA_SFT);
        const xr_row *row = xr_dataset_row(set, 0);
        assert_string_equal(row->prompt,
                            "[system]S\n[user]a\n[assistant]b</s>\n");
        assert_string_equal(row->ground_truth, "");
        expect_masked_text(&f, row, rows[i][1]);
        xr_dataset_close(set);
        end_fixture(&f);
    }
}

/* A cut conversation keeps its mask aligned; one without a target is left
 * out. */
static void cut_conversations_keep_their_mask(void **state)
{
    (void)state;
    fixture f;
    begin_fixture(&f, MARKED);
    xr_dataset *set = read_rows(&f, TALK, XR_DATA_SFT);
    uint32_t full_count = xr_dataset_row(set, 0)->id_count;
    uint32_t first = xr_dataset_row(set, 0)->prompt_count;
    xr_dataset_close(set);
    f.data.max_response_length = 0;
    f.data.truncation = XR_TRUNCATE_LEFT;
    f.data.max_prompt_length = full_count - first;
    set = read_rows(&f, TALK, XR_DATA_SFT);
    assert_int_equal(xr_dataset_row(set, 0)->prompt_count, 0);
    expect_masked_text(&f, xr_dataset_row(set, 0), "two</s>four</s>");
    xr_dataset_close(set);
    f.data.truncation = XR_TRUNCATE_RIGHT;
    f.data.max_prompt_length = first;
    expect_refusal(&f, TALK, XR_DATA_SFT, "all 1 rows are longer than");
    end_fixture(&f);
}

/* ---- the held-out part -------------------------------------------------- */

static size_t count_part_rows(fixture *f, const char *text, int part,
                              char *seen)
{
    xr_err err = { "" };
    xr_dataset *set = NULL;
    if (open_rows(f, text, XR_DATA_PROMPTS, part, &err, &set) != XRAY_OK)
        fail_msg("%s", err.text);
    size_t count = xr_dataset_count(set);
    for (size_t i = 0; i < count; i++) {
        size_t id = (size_t)xr_dataset_row(set, i)->id;
        assert_int_equal(seen[id], 0);
        seen[id] = (char)(part + 1);
    }
    xr_dataset_close(set);
    return count;
}

static void validation_rows_are_held_out(void **state)
{
    (void)state;
    enum { ROWS = 400 };
    fixture f;
    xr_str text = { 0 };
    char seen[ROWS] = { 0 };
    char again[ROWS] = { 0 };
    begin_fixture(&f, NULL);
    for (int i = 0; i < ROWS; i++) /* every prompt twice */
        xr_str_printf(&text, "{\"prompt\":\"n %d\",\"answer\":\"\"}\n", i / 2);
    f.data.val_split = 0.2;
    assert_true(xr_data_has_val(&f.data));
    size_t train = count_part_rows(&f, xr_str_text(&text), XR_DATA_TRAIN, seen);
    size_t val = count_part_rows(&f, xr_str_text(&text), XR_DATA_VAL, seen);
    assert_int_equal(train + val, ROWS);
    assert_in_range(val, 50, 110);
    for (int i = 0; i < ROWS; i += 2)
        assert_int_equal(seen[i], seen[i + 1]);
    /* More rows, another seed: the same prompts are held out. */
    f.data.seed = 77;
    f.data.train_max_samples = ROWS / 2;
    f.data.val_max_samples = ROWS / 2;
    (void)count_part_rows(&f, xr_str_text(&text), XR_DATA_TRAIN, again);
    (void)count_part_rows(&f, xr_str_text(&text), XR_DATA_VAL, again);
    assert_memory_equal(seen, again, ROWS / 2);
    const char *const other[] = { "x.jsonl" };
    f.data.val_files = (xray_list){ other, 1 };
    expect_refusal(&f, xr_str_text(&text), XR_DATA_PROMPTS,
                   "[data] val_split: val_files already names the "
                   "validation rows");
    xr_str_free(&text);
    end_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_go_through_the_template),
        cmocka_unit_test(plain_prompt_becomes_a_message),
        cmocka_unit_test(template_variables_are_passed),
        cmocka_unit_test(bad_rows_are_refused),
        cmocka_unit_test(conversations_mask_the_answers),
        cmocka_unit_test(first_tokens_can_be_learned),
        cmocka_unit_test(changing_prefix_is_refused),
        cmocka_unit_test(cut_conversations_keep_their_mask),
        cmocka_unit_test(validation_rows_are_held_out),
        cmocka_unit_test(tools_and_documents_are_passed),
        cmocka_unit_test(malformed_messages_are_refused),
        cmocka_unit_test(template_is_chosen_by_settings),
        cmocka_unit_test(changed_answer_is_refused),
        cmocka_unit_test(mixed_rows_are_read),
        cmocka_unit_test(generation_blocks_decide_the_mask),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
