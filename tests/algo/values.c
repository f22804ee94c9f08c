/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads lines of a function's name and its numbers, and prints the results of
 * model/rl for them as {"f": NAME, "out": [...]}, for
 * tests/parity/algorithms.py.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/algo/formulas.h"

int main(void)
{
    char line[16384];
    while (fgets(line, sizeof(line), stdin)) {
        double x[FORMULA_CAP];
        formula_in in = { .x = x };
        formula_out out;
        char *at = line + strcspn(line, " \n");
        int more = *at == ' ';
        *at = '\0';
        at += more;
        while (in.count < FORMULA_CAP) {
            char *end = at;
            x[in.count] = strtod(at, &end);
            if (end == at)
                break;
            in.count++;
            at = end;
        }
        if (formula_eval(line, in, &out) != 0) {
            (void)fprintf(stderr, "no function %s\n", line);
            return 1;
        }
        (void)printf("{\"f\": \"%s\", \"out\": [", line);
        for (int i = 0; i < out.count; i++)
            (void)printf("%s%.17g", i ? ", " : "", out.x[i]);
        (void)printf("]}\n");
    }
    return 0;
}
