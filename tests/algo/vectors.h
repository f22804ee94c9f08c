/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads entries of the published vectors in rl_vectors.json.
 */
#ifndef XR_ALGO_VECTORS_H
#define XR_ALGO_VECTORS_H

#include <cjson/cJSON.h>

#include "tests/testing.h"

/* Reads the entire file; the test is skipped without it. Free the result with
 * cJSON_Delete. */
static inline cJSON *vectors_open(void)
{
    char path[1024];
    FILE *file = fopen(test_data("rl_vectors.json", path, sizeof(path)), "rb");
    assert_non_null(file);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    size_t size = fread(text, 1, (1 << 20) - 1, file);
    (void)fclose(file);
    assert_true(size > 0);
    cJSON *all = cJSON_Parse(text);
    free(text);
    assert_non_null(all);
    return all;
}

/* Returns the member `part` ("inputs", "expected") of the vector whose name
 * begins with `name`. */
static inline cJSON *vector_part(const cJSON *all, const char *name,
                                 const char *part)
{
    const cJSON *entry = NULL;
    cJSON_ArrayForEach(entry, all)
    {
        const char *have = cJSON_GetObjectItem(entry, "name")->valuestring;
        if (strncmp(have, name, strlen(name)) == 0)
            return cJSON_GetObjectItem(entry, part);
    }
    fail_msg("no vector %s", name);
    return NULL;
}

static inline double vector_number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(object, key);
    assert_true(cJSON_IsNumber(item));
    return item->valuedouble;
}

static inline double vector_at(const cJSON *object, const char *key, int i)
{
    const cJSON *item = cJSON_GetArrayItem(cJSON_GetObjectItem(object, key), i);
    assert_true(cJSON_IsNumber(item));
    return item->valuedouble;
}

#endif
