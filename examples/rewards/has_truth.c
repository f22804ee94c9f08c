/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores 1 if the ground truth is a part of the response, else 0. Build it by
 * cc -shared -fPIC -o libhas_truth.so has_truth.c
 */
#include <string.h>

const char has_truth_sig[] = "response:s, ground_truth:s -> d";

double has_truth(const char *response, const char *truth)
{
    return strstr(response, truth) ? 1 : 0;
}
