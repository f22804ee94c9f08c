/* SPDX-License-Identifier: Apache-2.0
 *
 * What every suite shares: cmocka, the test data folder and its skip rule.
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

/* The path of a data file in `buffer`. Without the data the test is skipped,
 * or fails when CI is "true". */
static inline const char *test_data(const char *name, char *buffer, size_t cap)
{
    const char *root = getenv("XRAY_TEST_DATA");
    (void)snprintf(buffer, cap, "%s/%s", root ? root : "../shared/data", name);
    if (access(buffer, R_OK) == 0)
        return buffer;
    const char *ci = getenv("CI");
    if (ci && strcmp(ci, "true") == 0)
        fail_msg("test data %s is missing", buffer);
    print_message("skipped: test data %s is missing\n", buffer);
    skip();
    return NULL;
}

#endif
