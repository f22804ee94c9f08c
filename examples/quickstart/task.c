/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the quickstart's task: 3-digit addition with the digits of the answer
 * reversed (123+456=975), and a small Llama decoder over single characters.
 *
 *   quickstart-task FOLDER SEED
 *
 * writes FOLDER/train.jsonl, FOLDER/val.jsonl (held out: no problem is in both)
 * and FOLDER/model/{config,tokenizer,tokenizer_config}.json.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xray/numerics.h>

#include "core/base/file.h"
#include "core/base/str.h"

#define TRAIN_ROWS 40000u
#define VAL_ROWS 512u
#define NUMBERS 1000u

static const char config[] = "{\n"
                             "  \"architectures\": [\"LlamaForCausalLM\"],\n"
                             "  \"model_type\": \"llama\",\n"
                             "  \"hidden_size\": 96,\n"
                             "  \"num_hidden_layers\": 3,\n"
                             "  \"num_attention_heads\": 6,\n"
                             "  \"num_key_value_heads\": 3,\n"
                             "  \"head_dim\": 16,\n"
                             "  \"intermediate_size\": 256,\n"
                             "  \"max_position_embeddings\": 32,\n"
                             "  \"rms_norm_eps\": 1e-5,\n"
                             "  \"rope_theta\": 10000.0,\n"
                             "  \"tie_word_embeddings\": false,\n"
                             "  \"hidden_act\": \"silu\",\n"
                             "  \"initializer_range\": 0.08,\n"
                             "  \"torch_dtype\": \"float32\",\n"
                             "  \"bos_token_id\": 0,\n"
                             "  \"eos_token_id\": 1,\n"
                             "  \"vocab_size\": 15\n"
                             "}\n";

static const char tokenizer_config[] = "{\n"
                                       "  \"bos_token\": \"<s>\",\n"
                                       "  \"eos_token\": \"</s>\",\n"
                                       "  \"unk_token\": \"<unk>\",\n"
                                       "  \"model_max_length\": 32\n"
                                       "}\n";

/* Writes a character-level tokenizer.json: ids 0 to 2 are special, then come
 * the digits, '+' and '='. */
static void write_tokenizer(xr_str *out)
{
    static const char *const special[] = { "<s>", "</s>", "<unk>" };
    static const char chars[] = "0123456789+=";
    xr_str_puts(out, "{\n  \"version\": \"1.0\",\n  \"added_tokens\": [");
    for (int i = 0; i < 3; i++)
        xr_str_printf(out,
                      "%s\n    {\"id\": %d, \"content\": \"%s\", "
                      "\"single_word\": false, \"lstrip\": false, \"rstrip\": "
                      "false, \"normalized\": false, \"special\": true}",
                      i ? "," : "", i, special[i]);
    xr_str_puts(
        out, "\n  ],\n"
             "  \"normalizer\": null,\n"
             "  \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": "
             "{\"Regex\": \"\"}, \"behavior\": \"Isolated\", \"invert\": "
             "false},\n"
             "  \"post_processor\": {\"type\": \"TemplateProcessing\", "
             "\"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": "
             "0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": "
             "[{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"Sequence\": "
             "{\"id\": \"B\", \"type_id\": 1}}], \"special_tokens\": {\"<s>\": "
             "{\"id\": \"<s>\", \"ids\": [0], \"tokens\": [\"<s>\"]}}},\n"
             "  \"decoder\": {\"type\": \"Fuse\"},\n"
             "  \"model\": {\"type\": \"WordLevel\", \"unk_token\": "
             "\"<unk>\", \"vocab\": {");
    for (int i = 0; i < 3; i++)
        xr_str_printf(out, "\"%s\": %d, ", special[i], i);
    for (int i = 0; chars[i]; i++)
        xr_str_printf(out, "%s\"%c\": %d", i ? ", " : "", chars[i], 3 + i);
    xr_str_puts(out, "}}\n}\n");
}

static void write_problem(xr_str *out, uint32_t a, uint32_t b)
{
    char digits[16];
    char reversed[16];
    int size = snprintf(digits, sizeof(digits), "%u", a + b);
    for (int i = 0; i < size; i++)
        reversed[i] = digits[size - 1 - i];
    reversed[size] = '\0';
    xr_str_printf(out, "{\"question\": \"%u+%u=\", \"answer\": \"%s\"}\n", a, b,
                  reversed);
}

/* Draws problems that are not `used` yet, marks them and writes them. */
static void write_problems(xr_str *out, uint64_t key, uint32_t rows,
                           uint32_t part, unsigned char *used)
{
    uint32_t done = 0;
    for (uint32_t i = 0; done < rows; i++) {
        xray_philox_out draw = xray_philox(key, i, part, 0, 0);
        uint32_t a = 100 + draw.w[0] % (NUMBERS - 100);
        uint32_t b = 100 + draw.w[1] % (NUMBERS - 100);
        if (used[a * NUMBERS + b])
            continue;
        used[a * NUMBERS + b] = 1;
        write_problem(out, a, b);
        done++;
    }
}

static int save_file(const char *folder, const char *name, const char *data,
                     size_t size)
{
    xr_err err = { "" };
    char path[XR_PATH_CAP];
    if (xr_path_join(folder, name, path, sizeof(path), &err) == XRAY_OK &&
        xr_file_write(path, data, size, &err) == XRAY_OK)
        return 0;
    (void)fprintf(stderr, "quickstart-task: %s\n", err.text);
    return 1;
}

static int write_task_files(const char *folder, const char *model,
                            uint64_t seed)
{
    xr_str train = { 0 };
    xr_str val = { 0 };
    xr_str tokenizer = { 0 };
    uint64_t key = xray_philox_key(seed, 0, 0x7461736b);
    unsigned char *used = xr_calloc(NUMBERS, NUMBERS);
    if (used) {
        write_problems(&val, key, VAL_ROWS, 0, used);
        write_problems(&train, key, TRAIN_ROWS, 1, used);
        write_tokenizer(&tokenizer);
    }
    int bad = !used || train.failed || val.failed || tokenizer.failed;
    if (bad)
        (void)fputs("quickstart-task: out of memory\n", stderr);
    else
        bad = save_file(folder, "train.jsonl", train.data, train.size) ||
              save_file(folder, "val.jsonl", val.data, val.size) ||
              save_file(model, "config.json", config, strlen(config)) ||
              save_file(model, "tokenizer.json", tokenizer.data,
                        tokenizer.size) ||
              save_file(model, "tokenizer_config.json", tokenizer_config,
                        strlen(tokenizer_config));
    free(used);
    xr_str_free(&train);
    xr_str_free(&val);
    xr_str_free(&tokenizer);
    return bad;
}

int main(int argc, char **argv)
{
    char model[XR_PATH_CAP];
    xr_err err = { "" };
    int64_t seed = 0;
    if (argc != 3 || xr_parse_int(argv[2], &seed) != 0 || seed < 0) {
        (void)fputs("usage: quickstart-task FOLDER SEED\n", stderr);
        return 2;
    }
    if (xr_path_join(argv[1], "model", model, sizeof(model), &err) != XRAY_OK ||
        xr_dir_make(model, &err) != XRAY_OK) {
        (void)fprintf(stderr, "quickstart-task: %s\n", err.text);
        return 1;
    }
    return write_task_files(argv[1], model, (uint64_t)seed);
}
