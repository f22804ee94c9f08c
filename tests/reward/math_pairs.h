/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks tables of pairs of math answers that must be equal, or must not be, in
 * both directions.
 */
#ifndef TEST_MATH_PAIRS_H
#define TEST_MATH_PAIRS_H

#include "plugins/reward-rule/math.h"
#include "tests/testing.h"

typedef struct pair {
    const char *a;
    const char *b;
} pair;

static rule_math work;

/* Fills the buffers, since what an earlier answer has left there must not
 * count, with a byte that changes from pair to pair. */
static void soil_buffers(rule_math *m)
{
    static const char soil[] = "7}a)\\ ,.{/^_+|$!";
    static size_t turn;
    rule_buffer *const buffers[] = { &m->found,   &m->given,   &m->a,
                                     &m->b,       &m->clean_a, &m->clean_b,
                                     &m->scratch, &m->spare };
    int byte = soil[turn++ % (sizeof(soil) - 1)];
    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++)
        memset(buffers[i]->data, byte, sizeof(buffers[i]->data));
}

static int are_equal(const char *a, const char *b)
{
    static const rule_equality how = { .tolerance = 1e-6 };
    soil_buffers(&work);
    return rule_math_equal(&work, rule_text_of(a), rule_text_of(b), &how);
}

static void check_pairs(const pair *pairs, size_t count, int want)
{
    int bad = 0;
    for (size_t i = 0; i < count; i++) {
        int there = are_equal(pairs[i].a, pairs[i].b);
        int back = are_equal(pairs[i].b, pairs[i].a);
        if (there != want || back != want)
            print_error("%s (%d, %d): %s and %s\n", want ? "unequal" : "equal",
                        there, back, pairs[i].a, pairs[i].b);
        bad += there != want || back != want;
    }
    assert_int_equal(bad, 0);
}
#define EQUAL(pairs) check_pairs(pairs, sizeof(pairs) / sizeof((pairs)[0]), 1)
#define UNEQUAL(pairs) check_pairs(pairs, sizeof(pairs) / sizeof((pairs)[0]), 0)

#endif
