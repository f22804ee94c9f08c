/* SPDX-License-Identifier: Apache-2.0
 *
 * A text on its way through the steps of the pre_tokenizer.
 */
#include "model/text/tok.h"

static xray_status run(xm_walk *w, size_t step, const char *text, size_t size);

static xray_status run_chars(xm_walk *w, size_t step, const char *text,
                             size_t size)
{
    const char *end = text + size;
    while (text < end) {
        uint32_t code;
        int length = xr_utf8_decode(text, end, &code);
        length = length ? length : 1;
        xray_status status = run(w, step + 1, text, (size_t)length);
        if (status)
            return status;
        text += length;
    }
    return XRAY_OK;
}

static xray_status run_regex(xm_walk *w, size_t step, const char *text,
                             size_t size)
{
    xm_matches m = { .regex = w->tok->pre[step].regex,
                     .room = w->room,
                     .text = text,
                     .size = size };
    xray_status status = XRAY_OK;
    size_t done = 0;
    while (!status && done < size) {
        size_t from = size;
        size_t to = size;
        int found;
        status = xm_regex_next(&m, w->err, &found, &from, &to);
        if (!status)
            status = run(w, step + 1, text + done, from - done);
        if (!status)
            status = run(w, step + 1, text + from, to - from);
        done = to;
    }
    return status;
}

/* Every step has its own text: the one before still reads from its own. */
static xray_status run_rewritten(xm_walk *w, size_t step, const char *text,
                                 size_t size)
{
    xr_str *made = &w->scratch[step];
    xr_str_clear(made);
    if (w->tok->pre[step].kind == XM_PRE_ALPHABET) {
        xm_alphabet_write(text, size, made);
    } else {
        xr_str_puts(made, *text == ' ' ? "" : " ");
        xr_str_append(made, text, size);
    }
    if (made->failed)
        return xr_fail(w->err, XRAY_E_NOMEM, "tokenizer: out of memory");
    return run(w, step + 1, made->data, made->size);
}

static xray_status run(xm_walk *w, size_t step, const char *text, size_t size)
{
    if (!size)
        return XRAY_OK;
    if (step == w->tok->pre_count)
        return xm_tok_word(w->tok, text, size, w->ids, w->err);
    switch (w->tok->pre[step].kind) {
    case XM_PRE_CHARS:
        return run_chars(w, step, text, size);
    case XM_PRE_REGEX:
        return run_regex(w, step, text, size);
    case XM_PRE_SPACE:
    case XM_PRE_ALPHABET:
        break;
    }
    return run_rewritten(w, step, text, size);
}

xray_status xm_walk_open(xm_walk *walk)
{
    for (size_t i = 0; !walk->room && i < walk->tok->pre_count; i++) {
        if (walk->tok->pre[i].kind != XM_PRE_REGEX)
            continue;
        walk->room = xm_regex_room();
        if (!walk->room)
            return xr_fail(walk->err, XRAY_E_NOMEM, "tokenizer: out of memory");
    }
    return XRAY_OK;
}

void xm_walk_close(xm_walk *walk)
{
    xm_regex_room_free(walk->room);
    for (size_t i = 0; i < XM_STEPS; i++)
        xr_str_free(&walk->scratch[i]);
}

xray_status xm_walk_text(xm_walk *walk, const char *text, size_t size)
{
    return run(walk, 0, text, size);
}
