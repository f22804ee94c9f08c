/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that reading data asks often enough whether it shall end, while a file
 * is read or decompressed as while its rows are tokenized, and that a canceled
 * reading leaves nothing.
 */
#include <zlib.h>

#include "core/data/data.h"
#include "core/data/text_file.h"
#include "tests/scratch.h"
#include "tests/stopper.h"

#define ROWS 20000u
#define ROW_CAP 256u

typedef struct fixture {
    stopper stop;
    xm_tokenizer *tokenizer;
    char *text; /* ROWS lines */
    const char *path;
} fixture;

/* Lines of about 200 bytes. */
static char *make_lines(void)
{
    size_t used = 0;
    char *text = malloc((size_t)ROWS * ROW_CAP);
    assert_non_null(text);
    for (uint32_t i = 0; i < ROWS; i++)
        used += (size_t)snprintf(
            text + used, ROW_CAP,
            "{\"prompt\": \"Once upon a time there was a little girl, who had "
            "%u apples and gave some of them to her friends in the park. How "
            "many did she have?\", \"answer\": \"%u\"}\n",
            i, i / 2);
    return text;
}

static xray_status open_rows(fixture *f, xr_dataset **out)
{
    const char *items[] = { f->path };
    const xr_data_section data = { .train_files = { items, 1 },
                                   .prompt_key = "prompt",
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
    const xr_data_want want = { .part = XR_DATA_TRAIN,
                                .kind = XR_DATA_SFT,
                                .tokenizer = f->tokenizer,
                                .calls = &f->stop.service };
    xr_err err = { "" };
    *out = NULL;
    xray_status status = xr_dataset_open(&data, &want, &err, out);
    if (status != XRAY_OK)
        assert_string_equal(err.text, "the run is stopped");
    return status;
}

static void rows_are_canceled(void **state)
{
    fixture *f = *state;
    xr_dataset *set = NULL;
    f->path = scratch_write("a.jsonl", f->text);
    stopper_begin(&f->stop, 0);
    assert_int_equal(open_rows(f, &set), XRAY_OK);
    stopper_mark(&f->stop);
    assert_int_equal(xr_dataset_count(set), ROWS);
    xr_dataset_close(set);
    print_message("    %u questions, at most %.3f s apart\n", f->stop.asked,
                  f->stop.longest);
    assert_true(f->stop.longest < STOPPER_LIMIT);
    const uint32_t asked = f->stop.asked;
    assert_true(asked > ROWS);
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t at = i == 0 ? 1 : i == 1 ? asked / 2 : asked;
        stopper_begin(&f->stop, at);
        assert_int_equal(open_rows(f, &set), XRAY_E_CANCELED);
        assert_int_equal(f->stop.asked, at);
        assert_null(set);
    }
}

/* Zeros, so that a small file is a long text. */
static void write_gzip(const char *path, size_t size)
{
    static const char zeros[1 << 16];
    gzFile file = gzopen(path, "wb1");
    assert_non_null(file);
    for (size_t at = 0; at < size; at += sizeof zeros)
        assert_int_equal(gzwrite(file, zeros, sizeof zeros), sizeof zeros);
    assert_int_equal(gzclose(file), Z_OK);
}

/* Returns how often it asked. */
static uint32_t read_text(fixture *f, const char *path, uint32_t stop_at)
{
    char *text = NULL;
    size_t size = 0;
    xr_err err = { "" };
    stopper_begin(&f->stop, stop_at);
    xray_status status =
        xr_text_read(path, &f->stop.service, &err, &text, &size);
    stopper_mark(&f->stop);
    assert_int_equal(status, stop_at ? XRAY_E_CANCELED : XRAY_OK);
    assert_true((text != NULL) == (stop_at == 0));
    assert_true(f->stop.longest < STOPPER_LIMIT);
    free(text);
    return f->stop.asked;
}

static void files_are_canceled(void **state)
{
    const size_t size = (size_t)64 << 20;
    fixture *f = *state;
    for (uint32_t packed = 0; packed < 2; packed++) {
        const char *path = scratch_write("zeros", "");
        if (packed)
            write_gzip(path, size);
        else
            assert_int_equal(truncate(path, (off_t)size), 0);
        uint32_t asked = read_text(f, path, 0);
        assert_true(asked > 4);
        assert_int_equal(read_text(f, path, asked / 2), asked / 2);
    }
}

static int open_fixture(void **state)
{
    static fixture f;
    char path[512];
    xr_err err = { "" };
    if (scratch_make(state) != 0)
        return -1;
    (void)test_data("models/stories260K/hf", path, sizeof path);
    f.text = make_lines();
    *state = &f;
    return xm_tokenizer_open(path, &err, &f.tokenizer) == XRAY_OK ? 0 : -1;
}

static int close_fixture(void **state)
{
    fixture *f = *state;
    xm_tokenizer_close(f->tokenizer);
    free(f->text);
    return scratch_drop(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_canceled),
        cmocka_unit_test(files_are_canceled),
    };
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
