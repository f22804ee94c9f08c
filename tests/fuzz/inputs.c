/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the inputs of a replay: each file of a corpus, and the parts of a set.
 *
 * A line "=== NAME" begins a part of a set. The part consists of the lines that
 * follow, without the last one's end. A line "===" in it stands for a NUL, and
 * a line "===@ NAME" for the bytes of an earlier part. After the name may come:
 *
 *     byte=N   a byte that is put in front
 *     each     every line is an input
 *     tails    every line after the first "===" is an input, behind what is
 *              before it and a NUL
 *     escaped  \xHH stands for a byte; the lines of one input are joined
 */
#include <dirent.h>

#include "tests/fuzz/replay.h"

#define FILE_PLACES 24u
#define PART_PLACES 6u
#define LINE_PLACES 2u
#define MOST ((size_t)1 << 20)

static void refuse_input(const char *where, const char *why)
{
    (void)fprintf(stderr, "%s: %s\n", where, why);
    exit(1);
}

static replay_input *add_input(replay_inputs *inputs, const char *name)
{
    if (inputs->count == inputs->cap) {
        inputs->cap = inputs->cap * 2 + 64;
        inputs->items =
            realloc(inputs->items, inputs->cap * sizeof(*inputs->items));
        FUZZ_CHECK(inputs->items);
    }
    replay_input *input = &inputs->items[inputs->count++];
    *input = (replay_input){ .name = xr_strdup(name) };
    FUZZ_CHECK(input->name);
    return input;
}

static char *read_all(const char *path, size_t *out_size)
{
    char *data = NULL;
    xr_err err = { "" };
    if (xr_file_read(path, MOST, &err, &data, out_size))
        refuse_input("replay", err.text);
    return data;
}

void inputs_add_file(replay_inputs *inputs, const char *path, const char *name)
{
    size_t size;
    uint8_t *data = (uint8_t *)read_all(path, &size);
    replay_input *input = add_input(inputs, name);
    input->data = data;
    input->size = size;
    input->places = FILE_PLACES;
}

/* ---- sets --------------------------------------------------------------- */

typedef struct part {
    char name[64];
    int escaped;
    int each;
    int tails;    /* 1: lines of the head, which comes first, are no inputs */
    xr_str bytes; /* so far; of "each" and "tails" those in front of lines */
    unsigned lines;
} part;

static void add_part(const part *p, unsigned number, replay_inputs *inputs)
{
    FUZZ_CHECK(!p->bytes.failed);
    replay_input *input = add_input(inputs, p->name);
    input->data = malloc(p->bytes.size + 1);
    FUZZ_CHECK(input->data);
    if (p->bytes.size)
        memcpy(input->data, p->bytes.data, p->bytes.size);
    input->size = p->bytes.size;
    input->places = PART_PLACES;
    input->number = number;
}

static void end_part(part *p, replay_inputs *inputs)
{
    if (p->name[0] && !p->each)
        add_part(p, 0, inputs);
    xr_str_free(&p->bytes);
}

static void begin_part(part *p, const char *line)
{
    const char *byte = strstr(line, " byte=");
    *p = (part){ .escaped = strstr(line, " escaped") != NULL,
                 .each = strstr(line, " each") != NULL,
                 .tails = strstr(line, " tails") != NULL };
    (void)snprintf(p->name, sizeof(p->name), "%.*s", (int)strcspn(line, " "),
                   line);
    if (byte) {
        unsigned long value = strtoul(byte + strlen(" byte="), NULL, 10);
        if (value > 255)
            refuse_input(line, "byte= takes a number up to 255");
        xr_str_append(&p->bytes, &(unsigned char){ (unsigned char)value }, 1);
    }
}

static void add_escaped(xr_str *out, const char *line)
{
    for (const char *c = line; *c; c++) {
        char digits[3] = "";
        char *end = digits;
        if (c[0] == '\\' && c[1] == 'x' && c[2]) {
            digits[0] = c[2];
            digits[1] = c[3];
        }
        unsigned char byte = (unsigned char)strtoul(digits, &end, 16);
        if (end == digits + 2) {
            xr_str_append(out, &byte, 1);
            c += 3;
        } else {
            xr_str_append(out, c, 1);
        }
    }
}

static void add_other(part *p, const replay_inputs *inputs, const char *name)
{
    size_t i = 0;
    while (i < inputs->count && strcmp(inputs->items[i].name, name) != 0)
        i++;
    if (i == inputs->count)
        refuse_input(name, "no earlier part of the set has this name");
    xr_str_append(&p->bytes, inputs->items[i].data, inputs->items[i].size);
    p->lines = 0;
}

/* Adds an input that consists of the head and the line. */
static void add_each(part *p, const char *line, replay_inputs *inputs)
{
    size_t head = p->bytes.size;
    if (p->escaped)
        add_escaped(&p->bytes, line);
    else
        xr_str_puts(&p->bytes, line);
    add_part(p, ++p->lines, inputs);
    replay_input *input = &inputs->items[inputs->count - 1];
    input->head = head;
    input->places = LINE_PLACES;
    p->bytes.size = head;
}

static void add_line(part *p, replay_inputs *inputs, const char *line)
{
    if (strcmp(line, "===") == 0) {
        xr_str_append(&p->bytes, "", 1);
        p->lines = 0;
        p->each |= p->tails;
    } else if (strncmp(line, "===@ ", 5) == 0) {
        add_other(p, inputs, line + 5);
    } else if (p->each) {
        add_each(p, line, inputs);
    } else if (p->escaped && !p->tails) {
        add_escaped(&p->bytes, line);
    } else {
        if (p->lines++)
            xr_str_puts(&p->bytes, "\n");
        xr_str_puts(&p->bytes, line);
    }
}

static void read_set(const char *path, replay_inputs *inputs)
{
    size_t size;
    char *text = read_all(path, &size);
    part p = { .lines = 0 };
    for (char *line = text; line < text + size;) {
        char *end = strchr(line, '\n');
        if (!end)
            refuse_input(path, "the last line has no end, or there is a NUL");
        *end = '\0';
        if (strncmp(line, "=== ", 4) == 0) {
            end_part(&p, inputs);
            begin_part(&p, line + 4);
        } else {
            add_line(&p, inputs, line);
        }
        line = end + 1;
    }
    end_part(&p, inputs);
    free(text);
}

/* ---- all ---------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    const replay_input *one = a;
    const replay_input *other = b;
    int order = strcmp(one->name, other->name);
    return order
               ? order
               : (one->number > other->number) - (one->number < other->number);
}

void inputs_read(const char *folder, const char *target, replay_inputs *out)
{
    char path[XR_PATH_CAP];
    char file[XR_PATH_CAP + 256];
    *out = (replay_inputs){ 0 };
    (void)snprintf(path, sizeof(path), "%s/sets/%s", folder, target);
    if (xr_path_exists(path))
        read_set(path, out);
    (void)snprintf(path, sizeof(path), "%s/corpus/%s", folder, target);
    DIR *dir = opendir(path);
    if (!dir)
        refuse_input(path, "this folder of the corpus is missing");
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        if (e->d_name[0] == '.')
            continue;
        (void)snprintf(file, sizeof(file), "%s/%s", path, e->d_name);
        inputs_add_file(out, file, e->d_name);
    }
    (void)closedir(dir);
    add_input(out, "nothing")->places = 1;
    qsort(out->items, out->count, sizeof(*out->items), compare_names);
    for (size_t i = 1; i < out->count; i++)
        if (strcmp(out->items[i - 1].name, out->items[i].name) == 0 &&
            (out->items[i - 1].number == 0 ||
             out->items[i - 1].number == out->items[i].number))
            refuse_input(out->items[i].name, "two inputs have this name");
}

void inputs_free(replay_inputs *inputs)
{
    for (size_t i = 0; i < inputs->count; i++) {
        free(inputs->items[i].name);
        free(inputs->items[i].data);
    }
    free(inputs->items);
    *inputs = (replay_inputs){ 0 };
}
