/* SPDX-License-Identifier: Apache-2.0
 *
 * math_verify against the verdicts of Math-Verify 0.9 on 600 pairs that
 * tests/parity/math_answers.py made. The library refuses some right answers,
 * so a pair it refuses may be accepted if it was made to be right.
 */
#include <cjson/cJSON.h>

#include "tests/reward/rig.h"

#define FEWEST_SAME 0.97

typedef struct tally {
    int rows;
    int same;
    int wrong; /* accepted, refused by the library, and made to be wrong */
} tally;

static int is_true(const cJSON *row, const char *key)
{
    return cJSON_IsTrue(cJSON_GetObjectItem(row, key));
}

static const char *text_of(const cJSON *row, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(row, key);
    assert_true(cJSON_IsString(item));
    return item->valuestring;
}

static void judge_row(rig *r, const cJSON *row, tally *t)
{
    const char *text = text_of(row, "response");
    const char *truth = text_of(row, "truth");
    int accepted = rig_judge(r, text, strlen(text), truth) == 'R';
    int right = is_true(row, "right");
    t->rows++;
    t->same += accepted == right;
    if (accepted && !right && !is_true(row, "meant")) {
        print_error("accepted for %s: %s\n", truth, text);
        t->wrong++;
    }
}

static void agrees_with_the_library(void **state)
{
    const char *root = getenv("XRAY_SOURCE");
    char path[1024];
    char *line = NULL;
    size_t cap = 0;
    tally t = { 0, 0, 0 };
    rig r;
    (void)state;
    (void)snprintf(path, sizeof(path), "%s/tests/reward/math_answers.jsonl",
                   root ? root : ".");
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    rig_open(&r, RIG_KEYS("grader", "math_verify"));
    while (getline(&line, &cap, file) > 0) {
        cJSON *row = cJSON_Parse(line);
        assert_non_null(row);
        judge_row(&r, row, &t);
        cJSON_Delete(row);
    }
    free(line);
    (void)fclose(file);
    rig_close(&r);
    print_message("%d of %d as Math-Verify\n", t.same, t.rows);
    assert_int_equal(t.rows, 600);
    assert_int_equal(t.wrong, 0);
    assert_true(t.same >= FEWEST_SAME * t.rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
