/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the rows of a JSON Lines file of the test data.
 */
#ifndef XR_REWARD_MATH_ROWS_H
#define XR_REWARD_MATH_ROWS_H

#include <cjson/cJSON.h>

#include "plugins/reward-rule/text.h"
#include "tests/testing.h"

#define MATH_ROWS 512

typedef struct math_rows {
    size_t count;
    cJSON *at[MATH_ROWS];
} math_rows;

static inline void math_rows_read(math_rows *rows, const char *name)
{
    char path[1024];
    char *line = NULL;
    size_t cap = 0;
    FILE *file = fopen(test_data(name, path, sizeof(path)), "rb");
    assert_non_null(file);
    rows->count = 0;
    while (getline(&line, &cap, file) > 0) {
        assert_true(rows->count < MATH_ROWS);
        rows->at[rows->count] = cJSON_Parse(line);
        assert_non_null(rows->at[rows->count]);
        rows->count++;
    }
    free(line);
    (void)fclose(file);
}

static inline void math_rows_free(math_rows *rows)
{
    for (size_t i = 0; i < rows->count; i++)
        cJSON_Delete(rows->at[i]);
}

/* Returns NULL for a JSON null. */
static inline const char *math_string(const cJSON *row, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(row, key);
    assert_non_null(item);
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

static inline int math_is(rule_text got, const char *want)
{
    return got.data && want && rule_equal(got, rule_text_of(want), 0);
}

#endif
