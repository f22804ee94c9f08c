/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers out of a string, for suites with scratch_make.
 */
#ifndef XR_TEST_SMALL_H
#define XR_TEST_SMALL_H

#include "model/text/tokenizer.h"
#include "tests/scratch.h"

static inline xm_tokenizer *make(const char *json)
{
    xm_tokenizer *tok;
    xr_err err = { "" };
    (void)scratch_write("tokenizer.json", json);
    if (xm_tokenizer_open(scratch_dir(), &err, &tok))
        fail_msg("%s", err.text);
    return tok;
}

static inline void expect(const xm_tokenizer *tok, const char *text,
                          int special, const int32_t *want, size_t count)
{
    xm_ids ids = { 0 };
    xr_err err = { "" };
    if (xm_tokenizer_encode(tok, text, strlen(text), special, &ids, &err))
        fail_msg("%s", err.text);
    if (ids.count != count)
        fail_msg("\"%s\": %zu ids, not %zu", text, ids.count, count);
    assert_memory_equal(ids.data, want, count * sizeof *want);
    xm_ids_free(&ids);
}

#define EXPECT(tok, text, special, ...)                                    \
    do {                                                                   \
        const int32_t want_[] = { __VA_ARGS__ };                           \
        expect(tok, text, special, want_, sizeof want_ / sizeof want_[0]); \
    } while (0)

#endif
