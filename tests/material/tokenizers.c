/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes folders of tokenizers: the small ones of tests/text/goldens where
 * suites expect large ones, with the results of the Hugging Face library for
 * some lines.
 */
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "tests/material/material.h"

#define GOLDENS "tests/text/goldens/"

static void write_vector(FILE *out, const cJSON *row, const char *ids,
                         const char *special)
{
    cJSON *line = cJSON_CreateObject();
    if (!line)
        stop_with_error("no memory", "vectors.jsonl");
    (void)cJSON_AddStringToObject(line, "tokenizer", "llama-spm");
    cJSON_AddItemToObject(line, "text",
                          cJSON_Duplicate(cJSON_GetObjectItem(row, "text"), 1));
    cJSON_AddItemToObject(line, "ids",
                          cJSON_Duplicate(cJSON_GetObjectItem(row, ids), 1));
    cJSON_AddItemToObject(line, "add_special", cJSON_CreateRaw(special));
    cJSON_AddItemToObject(
        line, "decoded_skip_special",
        cJSON_Duplicate(cJSON_GetObjectItem(row, "skipped"), 1));
    char *text = cJSON_PrintUnformatted(line);
    (void)fprintf(out, "%s\n", text);
    free(text);
    cJSON_Delete(line);
}

static void write_vectors(const material *m)
{
    size_t size = 0;
    char *lines = source_read(m, GOLDENS "llama2/lines.jsonl", &size);
    FILE *out = file_open(m, "tokenizers/vectors.jsonl");
    for (char *at = lines, *line; (line = line_next(&at)) != NULL;) {
        cJSON *row = cJSON_Parse(line);
        if (!row)
            stop_with_error("no JSON", GOLDENS "llama2/lines.jsonl");
        write_vector(out, row, "ids", "true");
        write_vector(out, row, "plain", "false");
        cJSON_Delete(row);
    }
    file_close(out, "vectors.jsonl");
    free(lines);
}

void tokenizers_write(const material *m)
{
    file_copy(m, GOLDENS "llama2/tokenizer.json",
              "tokenizers/llama2_spm/tokenizer.json");
    file_copy(m, GOLDENS "qwen2/tokenizer.json",
              "tokenizers/qwen2/tokenizer.json");
    file_copy(m, "tests/material/qwen2_config.json",
              "tokenizers/qwen2/config.json");
    file_copy(m, "tests/material/qwen2_tokenizer_config.json",
              "tokenizers/qwen2/tokenizer_config.json");
    write_vectors(m);
}
