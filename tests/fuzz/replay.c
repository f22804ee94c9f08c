/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a fuzz target without libFuzzer over its inputs: each unchanged, cut at
 * many offsets, and with single bits changed. What the target reports must be
 * what the golden says: one line per input with a digest of the outcome, one of
 * the outcomes of what was made of it, and the beginning of the former.
 *
 *     fuzz-TARGET tests/fuzz              compares
 *     fuzz-TARGET tests/fuzz write        replaces the golden
 *     fuzz-TARGET tests/fuzz show NAME    prints all that is seen of an input,
 *                                         or of a file of that name
 */
#include "tests/fuzz/replay.h"
#include "core/base/hash.h"

/* Nothing of the environment has an effect: no cache of models, no zone. */
extern char **environ;
static char *nothing[1];

#define WORDS 48u /* bytes of an outcome that a golden shows */

static unsigned long runs;
static int showing;

/* Returns the digest of `before` and the outcome. */
static uint64_t run_input(const char *name, const char *how,
                          const uint8_t *data, size_t size, uint64_t before)
{
    /* A separate block, so that a read beyond its end is noticed. */
    uint8_t *copy = malloc(size ? size : 1);
    FUZZ_CHECK(copy);
    if (size)
        memcpy(copy, data, size);
    seen_begin(name, how);
    (void)LLVMFuzzerTestOneInput(copy, size);
    const xr_str *seen = seen_end();
    free(copy);
    runs++;
    if (showing)
        (void)printf("== %s%s\n%s", name, how, xr_str_text(seen));
    return xr_hash64(xr_str_text(seen), seen->size, before);
}

static uint64_t run_changed(const replay_input *input)
{
    char how[64];
    uint64_t digest = 0;
    size_t step = input->size / input->places + 1;
    for (size_t at = 0; at < input->size; at += step) {
        uint8_t was = input->data[at];
        unsigned bit = at / step % 8;
        (void)snprintf(how, sizeof(how), ", cut at %zu", at);
        digest = run_input(input->name, how, input->data, at, digest);
        (void)snprintf(how, sizeof(how), ", bit %u of %zu changed", bit, at);
        input->data[at] = (uint8_t)(was ^ 1u << bit);
        digest = run_input(input->name, how, input->data, input->size, digest);
        input->data[at] = was;
    }
    return digest;
}

/* Cuts the first reports at a size, and not within a character. */
static void put_words(xr_str *out, const char *text)
{
    size_t size = strlen(text);
    int cut = size > WORDS;
    if (cut)
        for (size = WORDS; size && (text[size] & 0xC0) == 0x80;)
            size--;
    while (size && (text[size - 1] == '\n' || text[size - 1] == ' '))
        size--;
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        xr_str_append(out,
                      c == '\n'  ? "; "
                      : c < 0x80 ? text + i
                                 : "?",
                      c == '\n' ? 2 : 1);
    }
    xr_str_puts(out, "\n");
}

static void replay_input_at(const replay_input *input, xr_str *lines)
{
    uint64_t digest = run_input(input->name, "", input->data, input->size, 0);
    char words[WORDS + 2];
    (void)snprintf(words, sizeof(words), "%s", xr_str_text(seen_end()));
    uint64_t changed = run_changed(input);
    xr_str_printf(lines, "%s %08x %08x ", input->name, (unsigned)(digest >> 32),
                  (unsigned)(changed >> 32));
    put_words(lines, words);
}

static int compare_golden(const char *path, const char *lines)
{
    char *golden = NULL;
    size_t size;
    xr_err err = { "" };
    if (xr_file_read(path, (size_t)1 << 22, &err, &golden, &size)) {
        (void)printf("%s\n", err.text);
        return 0;
    }
    int same = golden_is(golden, lines);
    if (!same)
        (void)printf("%s: \"show NAME\" prints what is seen of an input, "
                     "\"write\" replaces the golden (tests/README.md)\n",
                     path);
    free(golden);
    return same;
}

static int show_input(replay_inputs *inputs, const char *name)
{
    xr_str lines = { 0 };
    size_t at = 0;
    showing = 1;
    while (at < inputs->count && strcmp(inputs->items[at].name, name) != 0)
        at++;
    if (at == inputs->count)
        inputs_add_file(inputs, name, name);
    seen_work_in(fuzz_dir_path());
    replay_input_at(&inputs->items[at], &lines);
    xr_str_free(&lines);
    return 1;
}

static int replay_all(const replay_inputs *inputs, const char *golden,
                      int write)
{
    xr_str lines = { 0 };
    xr_err err = { "" };
    int good;
    seen_work_in(fuzz_dir_path());
    for (size_t i = 0; i < inputs->count; i++)
        replay_input_at(&inputs->items[i], &lines);
    FUZZ_CHECK(!lines.failed);
    if (write)
        good = xr_file_write(golden, lines.data, lines.size, &err) == XRAY_OK;
    else
        good = compare_golden(golden, lines.data);
    if (err.text[0])
        (void)fprintf(stderr, "%s\n", err.text);
    xr_str_free(&lines);
    (void)printf("%lu inputs\n", runs);
    return good;
}

static void make_absolute(const char *path, char out[XR_PATH_CAP])
{
    char cwd[XR_PATH_CAP];
    xr_err err = { "" };
    FUZZ_CHECK(getcwd(cwd, sizeof(cwd)));
    FUZZ_CHECK(
        !xr_path_join(*path == '/' ? "" : cwd, path, out, XR_PATH_CAP, &err));
}

int main(int argc, char **argv)
{
    const char *target = strstr(argv[0], "fuzz-");
    char folder[XR_PATH_CAP];
    char golden[XR_PATH_CAP + 64];
    replay_inputs inputs;
    for (const char *c = target; c; c = strstr(c + 1, "fuzz-"))
        target = c;
    int show = argc == 4 && strcmp(argv[2], "show") == 0;
    int write = argc == 3 && strcmp(argv[2], "write") == 0;
    if (!target || !(argc == 2 || show || write)) {
        (void)fprintf(stderr, "usage: %s tests/fuzz [write | show NAME]\n",
                      argv[0]);
        return 2;
    }
    target += strlen("fuzz-");
    make_absolute(argv[1], folder);
    (void)snprintf(golden, sizeof(golden), "%s/goldens/%s", folder, target);
    inputs_read(folder, target, &inputs);
    environ = nothing;
    int good = show ? show_input(&inputs, argv[3])
                    : replay_all(&inputs, golden, write);
    inputs_free(&inputs);
    seen_free();
    return good ? 0 : 1;
}
