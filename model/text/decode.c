/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts ids to text: each piece runs through the decoder's steps as soon as
 * no later id can change it. A list of ids is decoded as a stream that ends
 * after the last id.
 */
#include <stdlib.h>
#include <string.h>

#include "model/text/internal.h"

/* The state of a decoder step between two pieces. */
typedef struct stage {
    xr_str held; /* an unfinished piece, or the end of one that STRIP may cut */
    /* ALPHABET: an unfinished character; BYTES: a run; BPE: the last piece */
    xr_str bytes;
    size_t index; /* number of pieces so far */
    uint32_t cut; /* STRIP: characters stripped at the start so far */
    int past;     /* STRIP: the start has been passed */
} stage;

struct xm_stream {
    const xm_tokenizer *tok;
    int skip_special;
    stage stages[XM_STEPS];
    xr_str scratch;
    void *regex;
    size_t number; /* of ids so far */
    xr_err *err;
    xray_status status;
    xr_str *out;
};

static void feed_step(xm_stream *s, size_t step, const char *text, size_t size,
                      int last);

static int read_hex_digit(char c)
{
    const char *const digits = "0123456789abcdef0123456789ABCDEF";
    const char *hit = c ? strchr(digits, c) : NULL;
    return hit ? (int)((hit - digits) & 15) : -1;
}

/* Clears a text and records whether memory ran out for it. */
static void clear_text(xm_stream *s, xr_str *text)
{
    s->scratch.failed |= text->failed;
    xr_str_clear(text);
}

/* Returns the byte of a token "<0xNN>", or -1. The library's number parser
 * accepts a plus sign. */
static int read_byte_token(const char *text, size_t size)
{
    if (size != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    int high = text[3] == '+' ? 0 : read_hex_digit(text[3]);
    int low = read_hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* Ends a run of byte tokens: valid UTF-8 is text, otherwise each byte becomes
 * U+FFFD. */
static void flush_byte_run(xm_stream *s, size_t step)
{
    xr_str *run = &s->stages[step].bytes;
    const char *at = xr_str_text(run);
    const char *end = at + run->size;
    uint32_t code;
    if (!run->size)
        return;
    for (int n; at < end && (n = xr_utf8_decode(at, end, &code));)
        at += n;
    if (at == end)
        feed_step(s, step + 1, run->data, run->size, 1);
    for (size_t i = 0; at < end && i < run->size; i++)
        feed_step(s, step + 1, "\xEF\xBF\xBD", 3, 1);
    clear_text(s, run);
}

static void decode_bytes(xm_stream *s, size_t step, const char *text,
                         size_t size)
{
    int byte = read_byte_token(text, size);
    if (byte >= 0) {
        char c = (char)byte;
        xr_str_append(&s->stages[step].bytes, &c, 1);
        return;
    }
    flush_byte_run(s, step);
    feed_step(s, step + 1, text, size, 1);
}

static int is_valid_utf8(const xr_str *text)
{
    const char *end = text->data + text->size;
    uint32_t code;
    for (const char *at = text->data; at < end;) {
        int length = xr_utf8_decode(at, end, &code);
        if (!length)
            return 0;
        at += length;
    }
    return 1;
}

/* Passes on the bytes that are final. The bytes of all pieces together are one
 * text; an incomplete character at the end waits while `more` may come. */
static void pass_valid_utf8(xm_stream *s, size_t step, int more)
{
    xr_str *bytes = &s->stages[step].bytes;
    if (more && bytes->size && is_valid_utf8(bytes)) {
        feed_step(s, step + 1, bytes->data, bytes->size, 0);
        clear_text(s, bytes);
        return;
    }
    xr_str made = { 0 };
    size_t used = xm_utf8_repair(xr_str_text(bytes), bytes->size, more, &made);
    s->scratch.failed |= made.failed;
    if (used)
        memmove(bytes->data, bytes->data + used, bytes->size - used);
    bytes->size -= used;
    if (made.size || !more)
        feed_step(s, step + 1, xr_str_text(&made), made.size, !more);
    xr_str_free(&made);
}

static void decode_alphabet(xm_stream *s, size_t step, const char *text,
                            size_t size)
{
    xr_str *bytes = &s->stages[step].bytes;
    if (!xm_alphabet_read(text, size, bytes))
        xr_str_append(bytes, text, size);
    pass_valid_utf8(s, step, 1);
}

/* The most bytes that a decoder may make of one piece. */
#define PIECE_LIMIT ((size_t)1 << 28)

/* Replaces each `from` by `to`. */
static void replace_string(const char *text, size_t size, const char *from,
                           const char *to, xr_str *out)
{
    size_t length = strlen(from);
    size_t done = 0;
    for (size_t i = 0; length && i + length <= size;) {
        if (memcmp(text + i, from, length) != 0) {
            i++;
            continue;
        }
        xr_str_append(out, text + done, i - done);
        xr_str_puts(out, to);
        if (out->size > PIECE_LIMIT)
            out->failed = 1;
        i += length;
        done = i;
    }
    xr_str_append(out, text + done, size - done);
}

static void replace_matches(xm_stream *s, const xm_decoder_step *dec,
                            const char *text, size_t size, xr_str *out)
{
    xm_matches m = {
        .regex = dec->regex, .workspace = s->regex, .text = text, .size = size
    };
    size_t done = 0;
    int found = size > 0;
    while (found && !s->status) {
        size_t from = size;
        size_t to = size;
        s->status = xm_regex_next(&m, s->err, &found, &from, &to);
        if (!found || s->status)
            break;
        xr_str_append(out, text + done, from - done);
        xr_str_puts(out, dec->to);
        if (out->size > PIECE_LIMIT)
            out->failed = 1;
        done = to;
    }
    xr_str_append(out, text + done, size - done);
}

static void decode_replace(xm_stream *s, size_t step, const char *text,
                           size_t size)
{
    const xm_decoder_step *dec = &s->tok->dec[step];
    xr_str made = { 0 };
    if (dec->regex)
        replace_matches(s, dec, text, size, &made);
    else if (!memchr(text, dec->from[0], size)) {
        feed_step(s, step + 1, text, size, 1);
        return;
    } else
        replace_string(text, size, dec->from, dec->to, &made);
    s->scratch.failed |= made.failed;
    feed_step(s, step + 1, xr_str_text(&made), made.size, 1);
    xr_str_free(&made);
}

/* Strips up to `start` characters at the start and `stop` at the end of each
 * piece. Text is held back while it may be part of the end. */
static void decode_strip(xm_stream *s, size_t step, const char *text,
                         size_t size, int last)
{
    const xm_decoder_step *dec = &s->tok->dec[step];
    stage *st = &s->stages[step];
    size_t unit = strlen(dec->from);
    while (!st->past && st->cut < dec->start && size >= unit &&
           memcmp(text, dec->from, unit) == 0) {
        text += unit;
        size -= unit;
        st->cut++;
    }
    st->past |= size > 0 || st->cut == dec->start;
    if (dec->stop) {
        xr_str_append(&st->held, text, size);
        if (!last)
            return;
        text = xr_str_text(&st->held);
        size = st->held.size;
        for (uint32_t n = 0; n < dec->stop && size >= unit &&
                             memcmp(text + size - unit, dec->from, unit) == 0;
             n++)
            size -= unit;
    }
    feed_step(s, step + 1, text, size, last);
    if (!last)
        return;
    clear_text(s, &st->held);
    st->cut = 0;
    st->past = 0;
}

static void decode_metaspace(xm_stream *s, size_t step, const char *text,
                             size_t size)
{
    const xm_decoder_step *dec = &s->tok->dec[step];
    int first = s->stages[step].index == 0;
    xr_str made = { 0 };
    replace_string(text, size, dec->from, first ? dec->to : " ", &made);
    s->scratch.failed |= made.failed;
    feed_step(s, step + 1, xr_str_text(&made), made.size, 1);
    xr_str_free(&made);
}

static void clean_up_spaces(xr_str *text)
{
    static const char *const pairs[][2] = {
        { " .", "." },     { " ?", "?" },           { " !", "!" },
        { " ,", "," },     { " ' ", "'" },          { " n't", "n't" },
        { " 'm", "'m" },   { " do not", " don't" }, { " 's", "'s" },
        { " 've", "'ve" }, { " 're", "'re" }
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        xr_str made = { 0 };
        replace_string(xr_str_text(text), text->size, pairs[i][0], pairs[i][1],
                       &made);
        made.failed |= text->failed;
        xr_str_free(text);
        *text = made;
    }
}

static void decode_wordpiece(xm_stream *s, size_t step, const char *text,
                             size_t size)
{
    const xm_decoder_step *dec = &s->tok->dec[step];
    size_t prefix = strlen(dec->from);
    xr_str made = { 0 };
    if (s->stages[step].index && size >= prefix &&
        memcmp(text, dec->from, prefix) == 0)
        xr_str_append(&made, text + prefix, size - prefix);
    else {
        xr_str_puts(&made, s->stages[step].index ? " " : "");
        xr_str_append(&made, text, size);
    }
    if (dec->clean)
        clean_up_spaces(&made);
    s->scratch.failed |= made.failed;
    feed_step(s, step + 1, xr_str_text(&made), made.size, 1);
    xr_str_free(&made);
}

/* Delays each piece by one, because a suffix becomes a space in every piece but
 * the last. */
static void decode_bpe(xm_stream *s, size_t step, const char *text, size_t size,
                       int end)
{
    const xm_decoder_step *dec = &s->tok->dec[step];
    stage *st = &s->stages[step];
    if (st->index) {
        xr_str made = { 0 };
        replace_string(xr_str_text(&st->bytes), st->bytes.size, dec->from,
                       end ? "" : " ", &made);
        s->scratch.failed |= made.failed;
        feed_step(s, step + 1, xr_str_text(&made), made.size, 1);
        xr_str_free(&made);
    }
    clear_text(s, &st->bytes);
    xr_str_append(&st->bytes, text, size);
}

static void decode_piece(xm_stream *s, size_t step, const char *text,
                         size_t size)
{
    stage *st = &s->stages[step];
    switch (s->tok->dec[step].kind) {
    case XM_DEC_REPLACE:
        decode_replace(s, step, text, size);
        break;
    case XM_DEC_BYTES:
        decode_bytes(s, step, text, size);
        break;
    case XM_DEC_ALPHABET:
        decode_alphabet(s, step, text, size);
        break;
    case XM_DEC_METASPACE:
        decode_metaspace(s, step, text, size);
        break;
    case XM_DEC_WORDPIECE:
        decode_wordpiece(s, step, text, size);
        break;
    case XM_DEC_BPE:
        decode_bpe(s, step, text, size, 0);
        break;
    case XM_DEC_JOIN:
        if (st->index)
            feed_step(s, step + 1, " ", 1, 1);
        feed_step(s, step + 1, text, size, 1);
        break;
    case XM_DEC_FUSE: /* feed_step handles these two */
    case XM_DEC_STRIP:
        break;
    }
    st->index++;
}

static void feed_step(xm_stream *s, size_t step, const char *text, size_t size,
                      int last)
{
    if (step == s->tok->dec_count) {
        xr_str_append(s->out, text, size);
        return;
    }
    stage *st = &s->stages[step];
    if (s->tok->dec[step].kind == XM_DEC_FUSE) {
        feed_step(s, step + 1, text, size, 0);
    } else if (s->tok->dec[step].kind == XM_DEC_STRIP) {
        decode_strip(s, step, text, size, last);
    } else if (last && !st->held.size) {
        decode_piece(s, step, text, size);
    } else {
        xr_str_append(&st->held, text, size);
        if (!last)
            return;
        decode_piece(s, step, xr_str_text(&st->held), st->held.size);
        clear_text(s, &st->held);
    }
}

/* Passes on the text that the steps hold back, from the first step to the
 * last. */
static void flush_all_steps(xm_stream *s)
{
    for (size_t i = 0; i < s->tok->dec_count; i++) {
        stage *st = &s->stages[i];
        enum xm_dec_kind kind = s->tok->dec[i].kind;
        if (kind == XM_DEC_FUSE)
            feed_step(s, i + 1, "", 0, 1);
        else if (kind == XM_DEC_BYTES)
            flush_byte_run(s, i);
        else if (kind == XM_DEC_ALPHABET)
            pass_valid_utf8(s, i, 0);
        else if (kind == XM_DEC_BPE)
            decode_bpe(s, i, "", 0, 1);
        clear_text(s, &st->held);
        clear_text(s, &st->bytes);
        st->index = 0;
        st->cut = 0;
        st->past = 0;
    }
    s->number = 0;
}

static xray_status check_stream(xm_stream *s, xr_err *err)
{
    int failed = s->scratch.failed || s->out->failed;
    for (size_t i = 0; i < s->tok->dec_count; i++)
        failed |= s->stages[i].held.failed || s->stages[i].bytes.failed;
    if (s->status)
        return s->status;
    return failed ? xr_fail(err, XRAY_E_NOMEM, "tokenizer: out of memory")
                  : XRAY_OK;
}

static xray_status push_token(xm_stream *s, int32_t id, xr_err *err)
{
    const xm_tokenizer *tok = s->tok;
    const xm_token *t =
        id >= 0 && (size_t)id < tok->token_count ? &tok->tokens[id] : NULL;
    int known = t && (t->flags & XM_TOK_KNOWN);
    size_t number = s->number++;
    if (!known && s->skip_special == 2)
        return XRAY_OK;
    if (!known)
        return xr_fail(err, XRAY_E_RANGE,
                       "id %d (number %zu of the list) is not in the "
                       "tokenizer's vocabulary",
                       (int)id, number);
    if (s->skip_special && (t->flags & XM_TOK_SKIPPED))
        return XRAY_OK;
    feed_step(s, 0, xr_str_text(&tok->pool) + t->at, t->size, 1);
    return s->status;
}

static xray_status init_stream(xm_stream *s, const xm_tokenizer *tok,
                               int skip_special, xr_err *err)
{
    s->tok = tok;
    s->skip_special = skip_special;
    for (size_t i = 0; !s->regex && i < tok->dec_count; i++) {
        if (!tok->dec[i].regex)
            continue;
        s->regex = xm_regex_workspace();
        if (!s->regex)
            return xr_fail(err, XRAY_E_NOMEM, "tokenizer: out of memory");
    }
    return XRAY_OK;
}

static void free_stream(xm_stream *s)
{
    for (size_t i = 0; s->tok && i < s->tok->dec_count; i++) {
        xr_str_free(&s->stages[i].held);
        xr_str_free(&s->stages[i].bytes);
    }
    xr_str_free(&s->scratch);
    xm_regex_workspace_free(s->regex);
}

xray_status xm_tokenizer_decode(const xm_tokenizer *tok, const int32_t *ids,
                                size_t count, int skip_special, xr_str *out,
                                xr_err *err)
{
    xm_stream s = { 0 };
    size_t from = out->size;
    xray_status status = init_stream(&s, tok, skip_special, err);
    s.out = out;
    s.err = err;
    for (size_t i = 0; !status && i < count; i++)
        status = push_token(&s, ids[i], err);
    if (!status) {
        flush_all_steps(&s);
        status = check_stream(&s, err);
    }
    if (status && out->size > from) {
        out->size = from;
        out->data[from] = '\0';
    }
    free_stream(&s);
    return status;
}

xray_status xm_stream_open(const xm_tokenizer *tok, int skip_special,
                           xr_err *err, xm_stream **out)
{
    xm_stream *s = xr_calloc(1, sizeof *s);
    if (!s)
        return xr_fail(err, XRAY_E_NOMEM, "tokenizer: out of memory");
    xray_status status = init_stream(s, tok, skip_special, err);
    if (status) {
        xm_stream_close(s);
        return status;
    }
    *out = s;
    return XRAY_OK;
}

void xm_stream_close(xm_stream *stream)
{
    if (!stream)
        return;
    free_stream(stream);
    free(stream);
}

xray_status xm_stream_push(xm_stream *stream, int32_t id, xr_str *out,
                           xr_err *err)
{
    stream->out = out;
    stream->err = err;
    xray_status status = push_token(stream, id, err);
    return status ? status : check_stream(stream, err);
}

static void copy_stage(const stage *from, stage *to)
{
    *to = *from;
    to->held = to->bytes = (xr_str){ 0 };
    if (from->held.size)
        xr_str_append(&to->held, from->held.data, from->held.size);
    if (from->bytes.size)
        xr_str_append(&to->bytes, from->bytes.data, from->bytes.size);
}

/* Ends a copy of the stream. The workspace of patterns keeps nothing between
 * two texts, so the copy uses that of the stream. */
xray_status xm_stream_peek(const xm_stream *stream, xr_str *out, xr_err *err)
{
    xm_stream copy = { .tok = stream->tok, .regex = stream->regex };
    for (size_t i = 0; i < copy.tok->dec_count; i++)
        copy_stage(&stream->stages[i], &copy.stages[i]);
    xray_status status = xm_stream_end(&copy, out, err);
    copy.regex = NULL;
    free_stream(&copy);
    return status;
}

xray_status xm_stream_end(xm_stream *stream, xr_str *out, xr_err *err)
{
    stream->out = out;
    stream->err = err;
    flush_all_steps(stream);
    xray_status status = check_stream(stream, err);
    stream->status = XRAY_OK;
    return status;
}
