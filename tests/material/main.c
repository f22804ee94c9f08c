/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the test data that suites read in place of the real data: test-material
 * SOURCE FOLDER. The same sources give the same bytes, and a folder that is up
 * to date is left alone. `test-material stories` prints the text on which the
 * small model was trained (train_model.sh).
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/file.h"
#include "tests/material/material.h"

/* The files from which the folder is made, besides this program. */
static const char *const inputs[] = {
    "tests/material/weights.i8",
    "tests/material/config.json",
    "tests/material/generation_config.json",
    "tests/material/tokenizer_config.json",
    "tests/material/qwen2_config.json",
    "tests/material/qwen2_tokenizer_config.json",
    "tests/text/goldens/stories/tokenizer.json",
    "tests/text/goldens/stories/lines.jsonl",
    "tests/text/goldens/llama2/tokenizer.json",
    "tests/text/goldens/llama2/lines.jsonl",
    "tests/text/goldens/qwen2/tokenizer.json",
    "tests/algo/goldens/rl_vectors.json",
};

static uint64_t hash_file(const material *m, const char *name, uint64_t hash)
{
    size_t size = 0;
    char *data = source_read(m, name, &size);
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)data[i]) * UINT64_C(1099511628211);
    free(data);
    return hash;
}

static void hash_inputs(const material *m, char mark[32])
{
    const material here = { .source = "/proc/self" };
    uint64_t hash = hash_file(&here, "exe", UINT64_C(14695981039346656037));
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
        hash = hash_file(m, inputs[i], hash);
    (void)snprintf(mark, 32, "%016llx\n", (unsigned long long)hash);
}

static int is_up_to_date(const char *folder, const char *mark)
{
    char path[4096];
    char found[32] = "";
    (void)snprintf(path, sizeof path, "%s/made-by", folder);
    FILE *file = fopen(path, "rb");
    if (!file)
        return 0;
    (void)fread(found, 1, sizeof found - 1, file);
    (void)fclose(file);
    return strcmp(found, mark) == 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "stories") == 0) {
        stories_print();
        return 0;
    }
    if (argc != 3) {
        (void)fprintf(stderr, "usage: test-material SOURCE FOLDER | stories\n");
        return 2;
    }
    char mark[32];
    material m = { .source = argv[1] };
    hash_inputs(&m, mark);
    if (is_up_to_date(argv[2], mark))
        return 0;
    (void)snprintf(m.root, sizeof m.root, "%s.%ld", argv[2], (long)getpid());
    rows_write(&m);
    models_write(&m);
    cases_write(&m);
    tokenizers_write(&m);
    file_copy(&m, "tests/algo/goldens/rl_vectors.json", "rl_vectors.json");
    file_write(&m, "made-by", mark, strlen(mark));
    /* A single rename, so that no suite sees an incomplete folder. */
    if (access(argv[2], F_OK) == 0 && xr_dir_remove(argv[2], NULL) != XRAY_OK)
        stop_with_error("cannot remove", argv[2]);
    if (rename(m.root, argv[2]) != 0)
        stop_with_error("cannot make", argv[2]);
    return 0;
}
