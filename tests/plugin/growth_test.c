/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that a struct of one version is filled by a callee of another.
 */
#include "tests/growth.h"

/* Two versions of one struct. */
typedef struct older {
    xray_header header;
    uint64_t first;
    const char *second;
} older;

typedef struct newer {
    xray_header header;
    uint64_t first;
    const char *second;
    uint64_t third;
} newer;

static void a_newer_callee_stays_within_an_older_struct(void **state)
{
    (void)state;
    const newer own = { XRAY_HEADER(newer), 1, "two", 3 };
    newer out;
    EXPECT_FILLED_IN_REACH(newer, out, first, (xray_fill(&out, &own), 0));
    growth_cut(&out, sizeof(out), sizeof(older));
    xray_fill(&out, &own);
    assert_int_equal(out.first, 1);
    assert_string_equal(out.second, "two");
}

static void an_older_callee_leaves_newer_members_alone(void **state)
{
    (void)state;
    const older own = { XRAY_HEADER(older), 1, "two" };
    newer out = { .header = XRAY_HEADER(newer), .third = 3 };
    xray_fill(&out, &own);
    assert_int_equal(out.header.size, sizeof(newer));
    assert_int_equal(out.first, 1);
    assert_string_equal(out.second, "two");
    assert_int_equal(out.third, 3);
}

/* A caller that forgot the header gets nothing, and nothing is overwritten. */
static void a_struct_without_header_is_not_filled(void **state)
{
    (void)state;
    const older own = { XRAY_HEADER(older), 1, "two" };
    older out = { .second = NULL };
    xray_fill(&out, &own);
    assert_int_equal(out.header.size, 0);
    assert_int_equal(out.first, 0);
    assert_null(out.second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_newer_callee_stays_within_an_older_struct),
        cmocka_unit_test(an_older_callee_leaves_newer_members_alone),
        cmocka_unit_test(a_struct_without_header_is_not_filled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
