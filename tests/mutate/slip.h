/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells which deliberate slip is on. Every source of the build that run.py
 * makes begins with this file.
 */
#ifndef XRAY_TESTS_MUTATE_SLIP_H
#define XRAY_TESTS_MUTATE_SLIP_H

#ifdef __cplusplus
extern "C" char **environ;
#else
extern char **environ;
#endif

/* The number in XRAY_SLIP; 0: no slip. It is read once in each file. */
static inline __attribute__((unused)) int xray_slip(void)
{
    static int slip = -1;
    for (char **at = environ; slip < 0; at++) {
        const char *name = "XRAY_SLIP=";
        const char *c = at ? *at : 0;
        if (!c) {
            slip = 0;
            break;
        }
        while (*name && *c == *name)
            c++, name++;
        if (*name)
            continue;
        int value = 0;
        while (*c >= '0' && *c <= '9')
            value = 10 * value + (*c++ - '0');
        slip = value;
    }
    return slip;
}

#endif
