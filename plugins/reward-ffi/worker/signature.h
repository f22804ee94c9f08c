/* SPDX-License-Identifier: Apache-2.0
 *
 * The signature of a function in a shared object: which parts of a sample it
 * takes, with which C types, and what it returns.
 *
 *     signature = [argument {"," argument}] "->" result
 *     argument  = name ":" type
 *     name      = a letter or "_", then letters, digits, "_" and "."
 *     type      = "s" | number | "[" number "]"
 *     number    = "d" | "i" | "I" | "u" | "U"
 *     result    = number | "f"
 *
 * The letters are those of actors: s is a const char *, d a double, i and u are
 * integers of 32 bits, I and U of 64, and f is a float. An array is two
 * arguments, a pointer and a uint64_t that counts its elements. Spaces between
 * these mean nothing.
 */
#ifndef REWARD_FFI_SIGNATURE_H
#define REWARD_FFI_SIGNATURE_H

#include "core/base/err.h"

#define FN_ARGS 32
#define FN_NAME_CAP 64

typedef struct fn_argument {
    char name[FN_NAME_CAP];
    char type;
    uint32_t is_array;
} fn_argument;

typedef struct fn_signature {
    fn_argument args[FN_ARGS];
    uint32_t count;
    char result;
} fn_signature;

/* On failure *out is not written, and the sentence quotes the signature and
 * says at which character something else was expected. */
xray_status fn_signature_parse(const char *text, xr_err *err,
                               fn_signature *out);
/* 1 if both take and return the same. */
int fn_signature_equal(const fn_signature *a, const fn_signature *b);

#endif
