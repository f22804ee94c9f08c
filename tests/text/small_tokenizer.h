/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers that make a tokenizer from a JSON string and check its ids, for
 * suites with scratch_make.
 */
#ifndef XR_TEST_SMALL_TOKENIZER_H
#define XR_TEST_SMALL_TOKENIZER_H

#include "model/text/tokenizer.h"
#include "tests/scratch.h"

static inline xm_tokenizer *make_tokenizer(const char *json)
{
    xm_tokenizer *tok;
    xr_err err = { "" };
    (void)scratch_write("tokenizer.json", json);
    if (xm_tokenizer_open(scratch_dir(), &err, &tok))
        fail_msg("%s", err.text);
    return tok;
}

static inline void expect_ids(const xm_tokenizer *tok, const char *text,
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

#define EXPECT_IDS(tok, text, special, ...)                                    \
    do {                                                                       \
        const int32_t want_[] = { __VA_ARGS__ };                               \
        expect_ids(tok, text, special, want_, sizeof want_ / sizeof want_[0]); \
    } while (0)

#endif
