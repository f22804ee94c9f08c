/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes tokenizers: tokenizer.json up to the first NUL, then a text that is
 * encoded with its spans and decoded again, at once and id by id. If there is
 * another NUL, tokenizer_config.json follows it.
 */
#include "model/text/tokenizer.h"
#include "tests/fuzz/fuzz.h"

static void check_spans(const xm_token_spans *spans, const xm_ids *ids,
                        size_t size)
{
    FUZZ_CHECK(spans->count == ids->count);
    for (size_t i = 0; i < spans->count; i++)
        FUZZ_CHECK(spans->data[i].from <= spans->data[i].to &&
                   spans->data[i].to <= size);
}

static void report_ids(const xm_ids *ids, const xm_token_spans *spans)
{
    xr_str text = { 0 };
    if (!fuzz_sees())
        return;
    for (size_t i = 0; i < ids->count; i++)
        xr_str_printf(&text, " %d", (int)ids->data[i]);
    fuzz_saw_text("ids", xr_str_text(&text));
    xr_str_clear(&text);
    for (size_t i = 0; i < ids->count; i++)
        xr_str_printf(&text, " %zu-%zu", spans->data[i].from,
                      spans->data[i].to);
    fuzz_saw_text("spans", xr_str_text(&text));
    xr_str_free(&text);
}

/* Decodes every id, also those that encoding does not give. */
static void report_vocabulary(const xm_tokenizer *tok)
{
    xr_str out = { 0 };
    if (!fuzz_sees())
        return;
    fuzz_saw_u64("vocabulary", xm_tokenizer_vocab(tok));
    fuzz_saw_i64("bos", xm_tokenizer_bos(tok));
    fuzz_saw_i64("eos", xm_tokenizer_eos(tok));
    for (int32_t id = -1; id <= (int32_t)xm_tokenizer_vocab(tok) && id < 300;
         id++) {
        const int32_t pair[2] = { id, id };
        xr_err err = { "" };
        xr_str_clear(&out);
        if (xm_tokenizer_decode(tok, pair, 2, (id + 1) % 3, &out, &err))
            fuzz_said(&err);
        else
            fuzz_saw("twice", xr_str_text(&out), out.size);
    }
    xr_str_free(&out);
}

/* Checks that decoding id by id gives the text of all ids. */
static void check_stream(const xm_tokenizer *tok, const xm_ids *ids,
                         const xr_str *all_text)
{
    xr_err err = { "" };
    xr_str out = { 0 };
    xm_stream *stream = NULL;
    FUZZ_CHECK(xm_stream_open(tok, 0, &err, &stream) == XRAY_OK);
    for (size_t i = 0; i < ids->count; i++)
        FUZZ_CHECK(xm_stream_push(stream, ids->data[i], &out, &err) == XRAY_OK);
    FUZZ_CHECK(xm_stream_end(stream, &out, &err) == XRAY_OK);
    FUZZ_CHECK(out.size == all_text->size);
    FUZZ_CHECK(memcmp(xr_str_text(&out), xr_str_text(all_text), out.size) == 0);
    xm_stream_close(stream);
    xr_str_free(&out);
}

static void check_round_trip(const xm_tokenizer *tok, const char *text,
                             size_t size)
{
    xr_err err = { "" };
    xm_ids ids = { 0 };
    xm_ids plain = { 0 };
    xm_token_spans spans = { 0 };
    xr_str out = { 0 };
    if (xm_tokenizer_encode_spans(tok, text, size, 1, &ids, &spans, &err)) {
        fuzz_said(&err);
    } else {
        report_ids(&ids, &spans);
        check_spans(&spans, &ids, size);
        FUZZ_CHECK(xm_tokenizer_encode(tok, text, size, 1, &plain, &err) ==
                   XRAY_OK);
        FUZZ_CHECK(plain.count == ids.count);
        for (size_t i = 0; i < ids.count; i++)
            FUZZ_CHECK(plain.data[i] == ids.data[i] && ids.data[i] >= 0 &&
                       (uint32_t)ids.data[i] < xm_tokenizer_vocab(tok));
        FUZZ_CHECK(xm_tokenizer_decode(tok, ids.data, ids.count, 0, &out,
                                       &err) == XRAY_OK);
        fuzz_saw("decoded", xr_str_text(&out), out.size);
        check_stream(tok, &ids, &out);
    }
    xm_ids_free(&ids);
    xm_ids_free(&plain);
    xm_token_spans_free(&spans);
    xr_str_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char preset[] =
        "Hello, w\xC3\xB6rld! <s> 123\n  \xE2\x96\x81x";
    fuzz_two in = fuzz_split(data, size);
    fuzz_two text = fuzz_split(in.second, in.second_size);
    xr_err err = { "" };
    xm_tokenizer *tok = NULL;
    (void)fuzz_write("tokenizer.json", in.first, in.first_size);
    (void)fuzz_write("tokenizer_config.json",
                     text.second_size ? (const void *)text.second : "{}",
                     text.second_size ? text.second_size : 2);
    if (xm_tokenizer_open(fuzz_dir(), &err, &tok)) {
        fuzz_said(&err);
        return 0;
    }
    check_round_trip(tok, preset, sizeof(preset) - 1);
    if (text.first_size)
        check_round_trip(tok, (const char *)text.first, text.first_size);
    report_vocabulary(tok);
    xm_tokenizer_close(tok);
    return 0;
}
