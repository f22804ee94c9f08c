/* SPDX-License-Identifier: Apache-2.0
 *
 * What every suite shares: cmocka, and where its test data is.
 */
#ifndef XR_TESTING_H
#define XR_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Under a sanitizer a suite is many times slower. It takes every third case of
 * a long table there; the other builds take all. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { TEST_STEP = 3 };
#else
enum { TEST_STEP = 1 };
#endif

/* Functions that compute what is expected take most of a suite's time. They are
 * optimised in every build, with fmaf as one instruction, which the kernels
 * need anyway, and sanitizers are for the code under test. The second form is
 * for those that read what other threads wrote, as ThreadSanitizer has to see.
 */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define REFERENCE_WITHOUT(...) \
    __attribute__((optimize("O2"), target("fma"), no_sanitize(__VA_ARGS__)))
#else
#define REFERENCE_WITHOUT(...)
#endif
#define REFERENCE REFERENCE_WITHOUT("address", "undefined", "thread")
#define REFERENCE_OF_THREADS REFERENCE_WITHOUT("address", "undefined")

/* The path of a file of the test data in `buffer`: of the material that the
 * tests make themselves, or, in suites named .data, of the real data. */
static inline const char *test_data(const char *name, char *buffer, size_t cap)
{
    const char *root = getenv("XRAY_TEST_DATA");
    if (!root)
        fail_msg("XRAY_TEST_DATA names no folder; ctest sets it");
    (void)snprintf(buffer, cap, "%s/%s", root, name);
    if (access(buffer, R_OK) != 0)
        fail_msg("test data %s is missing", buffer);
    return buffer;
}

#endif
