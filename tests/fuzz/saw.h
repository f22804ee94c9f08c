/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares how a fuzz target reports what came of an input. A replay
 * (tests/fuzz/replay.c) compares that with tests/fuzz/goldens; with libFuzzer
 * the functions do nothing.
 *
 * Report everything that a caller could observe: the sentence of a refusal, the
 * parsed values, the written text. The first report is the one that the golden
 * shows in words. Report neither pointers nor anything that another machine, a
 * clock or another build would give differently.
 */
#ifndef XR_FUZZ_SAW_H
#define XR_FUZZ_SAW_H

#include <stddef.h>
#include <stdint.h>

#ifdef FUZZ_REPLAY
static inline int fuzz_sees(void)
{
    return 1;
}
/* "NAME, cut at 7: ", the input that runs. */
const char *fuzz_input(void);
/* Report a value under a name, which may be "". */
void fuzz_saw(const char *name, const void *data, size_t size);
void fuzz_saw_text(const char *name, const char *text); /* NULL: none */
void fuzz_saw_u64(const char *name, uint64_t value);
void fuzz_saw_i64(const char *name, int64_t value);
/* The exact value. */
void fuzz_saw_real(const char *name, double value);
/* Six digits of a value that libm computed, whose last bits may depend on its
 * version. */
void fuzz_saw_rounded(const char *name, double value);
#else
static inline int fuzz_sees(void)
{
    return 0;
}
static inline const char *fuzz_input(void)
{
    return "";
}
static inline void fuzz_saw(const char *name, const void *data, size_t size)
{
    (void)name;
    (void)data;
    (void)size;
}
static inline void fuzz_saw_text(const char *name, const char *text)
{
    (void)name;
    (void)text;
}
static inline void fuzz_saw_u64(const char *name, uint64_t value)
{
    (void)name;
    (void)value;
}
static inline void fuzz_saw_i64(const char *name, int64_t value)
{
    (void)name;
    (void)value;
}
static inline void fuzz_saw_real(const char *name, double value)
{
    (void)name;
    (void)value;
}
static inline void fuzz_saw_rounded(const char *name, double value)
{
    (void)name;
    (void)value;
}
#endif

#endif
