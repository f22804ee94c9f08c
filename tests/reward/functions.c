/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that reward.ffi calls: some are right, the others each go wrong in
 * their own way.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/reward/functions.h"

const char has_truth_sig[] = "response:s, ground_truth:s -> d";
double has_truth(const char *response, const char *truth)
{
    return strstr(response, truth) ? 1 : 0;
}

int weigh(int32_t finish, uint64_t id, int64_t level, const char *text)
{
    return finish + 10 * (int)id + 1000 * (int)level +
           10000 * (int)strlen(text);
}

float add_lists(const int32_t *ids, uint64_t id_count, const double *weights,
                uint64_t weight_count)
{
    double sum = 0;
    for (uint64_t i = 0; i < id_count; i++)
        sum += ids[i];
    for (uint64_t i = 0; i < weight_count; i++)
        sum += 100 * weights[i];
    return (float)sum;
}

#define LEAK (64u << 20) /* bytes of a call */

const char obey_sig[] = "response:s -> d";
double obey(const char *response)
{
    if (strcmp(response, "crash") == 0) {
        (void)puts("the end");
        (void)raise(SIGABRT);
    }
    if (strcmp(response, "exit") == 0)
        exit(7); // NOLINT(concurrency-mt-unsafe)
    if (strcmp(response, "nan") == 0)
        return NAN;
    if (strcmp(response, "print") == 0)
        (void)puts("[1,2,3]");
    if (strcmp(response, "leak") == 0) {
        static char *volatile lost;
        lost = malloc(LEAK);
        if (!lost)
            (void)raise(SIGABRT);
        else
            memset(lost, 1, LEAK);
    }
    for (volatile int hung = strcmp(response, "hang") == 0; hung;)
        ;
    return 2;
}

const char broken_sig[] = "response:s - d";
double broken(const char *response)
{
    return (double)strlen(response);
}

const char keep_d_sig[] = "x:d -> d";

/* keep_T returns its number, and last_T the last one of its list, or 77. */
#define KEEP(letter, type)                            \
    type keep_##letter(type x)                        \
    {                                                 \
        return x;                                     \
    }                                                 \
    type last_##letter(const type *x, uint64_t count) \
    {                                                 \
        return count ? x[count - 1] : 77;             \
    }

KEEP(d, double)
KEEP(i, int32_t)
KEEP(I, int64_t)
KEEP(u, uint32_t)
KEEP(U, uint64_t)

double measure(const char *text)
{
    return (double)strlen(text);
}

double print(const char *text)
{
    (void)fputs(text, stdout);
    return 1;
}

double complain(const char *text)
{
    (void)fputs(text, stderr);
    return 1;
}
