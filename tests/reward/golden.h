/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the rows of a JSON Lines file of verdicts in this folder.
 */
#ifndef XR_REWARD_GOLDEN_H
#define XR_REWARD_GOLDEN_H

#include <cjson/cJSON.h>

#include "tests/reward/rig.h"

#define GOLDEN_ROWS 2048

typedef struct golden {
    size_t count;
    cJSON *at[GOLDEN_ROWS];
} golden;

static inline void golden_read(golden *rows, const char *name)
{
    const char *root = getenv("XRAY_SOURCE");
    char path[1024];
    char *line = NULL;
    size_t cap = 0;
    (void)snprintf(path, sizeof(path), "%s/tests/reward/%s", root ? root : ".",
                   name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    rows->count = 0;
    while (getline(&line, &cap, file) > 0) {
        assert_true(rows->count < GOLDEN_ROWS);
        rows->at[rows->count] = cJSON_Parse(line);
        assert_non_null(rows->at[rows->count]);
        rows->count++;
    }
    free(line);
    (void)fclose(file);
}

static inline void golden_free(golden *rows)
{
    for (size_t i = 0; i < rows->count; i++)
        cJSON_Delete(rows->at[i]);
}

static inline const char *golden_text(const cJSON *row, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(row, key);
    assert_true(cJSON_IsString(item));
    return item->valuestring;
}

#endif
