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

typedef struct outcome {
    const char *name;
    uint64_t digest;
    uint64_t changed;
    char words[WORDS + 2];
} outcome;

/* Adds the outcome to a digest. */
static void run_input(const replay_input *input, const char *how, size_t size,
                      uint64_t *digest)
{
    char where[96] = "";
    /* A separate block, so that a read beyond its end is noticed. */
    uint8_t *copy = malloc(size ? size : 1);
    FUZZ_CHECK(copy);
    if (size)
        memcpy(copy, input->data, size);
    if (input->number)
        (void)snprintf(where, sizeof(where), ", line %u%s", input->number, how);
    else
        (void)snprintf(where, sizeof(where), "%s", how);
    seen_begin(input->name, where);
    (void)LLVMFuzzerTestOneInput(copy, size);
    const xr_str *seen = seen_end();
    free(copy);
    runs++;
    if (showing)
        (void)printf("== %s%s\n%s", input->name, where, xr_str_text(seen));
    *digest = xr_hash64(xr_str_text(seen), seen->size, *digest);
}

static void run_changed(const replay_input *input, uint64_t *digest)
{
    char how[64];
    size_t step = (input->size - input->head) / input->places + 1;
    for (size_t at = input->head; at < input->size; at += step) {
        uint8_t was = input->data[at];
        unsigned bit =
            (unsigned)((at - input->head) / step + input->number) % 8;
        (void)snprintf(how, sizeof(how), ", cut at %zu", at);
        run_input(input, how, at, digest);
        (void)snprintf(how, sizeof(how), ", bit %u of %zu changed", bit, at);
        input->data[at] = (uint8_t)(was ^ 1u << bit);
        run_input(input, how, input->size, digest);
        input->data[at] = was;
    }
}

/* Adds what is seen of an input to the outcome of those with its name. */
static void run_all(const replay_input *input, outcome *o)
{
    int first = !o->name;
    o->name = input->name;
    run_input(input, "", input->size, &o->digest);
    if (first)
        (void)snprintf(o->words, sizeof(o->words), "%s",
                       xr_str_text(seen_end()));
    run_changed(input, &o->changed);
}

/* Cuts the first reports at a size, and not within a character. */
static void put_words(xr_str *out, const char *text)
{
    size_t size = strlen(text);
    if (size > WORDS)
        for (size = WORDS; size && (text[size] & 0xC0) == 0x80;)
            size--;
    while (size && (text[size - 1] == '\n' || text[size - 1] == ' '))
        size--;
    for (size_t i = 0; i < size; i++)
        if (text[i] == '\n')
            xr_str_puts(out, "; ");
        else
            xr_str_append(out, (unsigned char)text[i] < 0x80 ? text + i : "?",
                          1);
}

static void put_outcome(xr_str *lines, const outcome *o)
{
    xr_str_printf(lines, "%s %08x %08x ", o->name, (unsigned)(o->digest >> 32),
                  (unsigned)(o->changed >> 32));
    put_words(lines, o->words);
    xr_str_puts(lines, "\n");
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
    outcome o = { NULL };
    size_t at = 0;
    showing = 1;
    while (at < inputs->count && strcmp(inputs->items[at].name, name) != 0)
        at++;
    if (at == inputs->count)
        inputs_add_file(inputs, name, name);
    seen_work_in(fuzz_dir_path());
    for (; at < inputs->count && !strcmp(inputs->items[at].name, name); at++)
        run_all(&inputs->items[at], &o);
    return 1;
}

static int replay_all(const replay_inputs *inputs, const char *golden,
                      int write)
{
    xr_str lines = { 0 };
    xr_err err = { "" };
    int good;
    seen_work_in(fuzz_dir_path());
    for (size_t i = 0; i < inputs->count;) {
        outcome o = { NULL };
        const char *name = inputs->items[i].name;
        for (; i < inputs->count && !strcmp(inputs->items[i].name, name); i++)
            run_all(&inputs->items[i], &o);
        put_outcome(&lines, &o);
    }
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
