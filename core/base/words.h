/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts a command line of a configuration into words without a shell, so that
 * what is put in cannot become a command.
 */
#ifndef XR_WORDS_H
#define XR_WORDS_H

#include <stddef.h>

#include "core/base/err.h"

/* The name of a host consists of these, since it is put in command lines. */
#define XR_HOST_NAME_CHARACTERS  \
    "abcdefghijklmnopqrstuvwxyz" \
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ" \
    "0123456789._-"

typedef struct xr_word_value {
    const char *name; /* "host": replaces "{host}" in any word */
    const char *value;
} xr_word_value;

/* Words end at blanks; a part in ' or " is taken as it is, without the quotes.
 * *out ends with NULL and is one allocation, for `free`. XRAY_E_CONFIG if a
 * quote does not end or there is no word; the sentence begins with what follows
 * the name of the key. */
xray_status xr_words_cut(const char *text, const xr_word_value *values,
                         size_t value_count, xr_err *err, char ***out);
/* Copies words that end with NULL, and `last` behind them, into one allocation,
 * for `free`; NULL if memory ran out. */
char **xr_words_copy(const char *const *words, const char *last);

#endif
