/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the texts of the test material: stories in a few words, on which the
 * small model was trained, word problems with worked answers, and solutions for
 * graders.
 */
#include <string.h>

#include "tests/material/material.h"

enum { STORIES = 12000, TRAIN = 400, TEST = 131, SOLUTIONS = 120 };

/* The random stream of a story, and the words that it repeats. */
typedef struct teller {
    uint64_t stream;
    uint32_t drawn;
    const char *name;
    const char *friend;
    const char *animal;
    const char *thing;
    const char *place;
    const char *adjective;
    int people; /* 1: one hero, 2: two */
} teller;

static uint32_t pick_number(teller *t, uint32_t n)
{
    return draw_below(t->stream, t->drawn++, n);
}

#define PICK(t, list) \
    ((list)[pick_number((t), (uint32_t)(sizeof(list) / sizeof((list)[0])))])

static const char *const names[] = { "Lily", "Tom", "Mia", "Ben",
                                     "Max",  "Ada", "Tim", "Anna" };
static const char *const animals[] = { "dog",  "cat",    "bird", "mouse",
                                       "bear", "rabbit", "fox" };
static const char *const things[] = { "ball", "box",  "book", "boat",
                                      "cake", "tree", "stone" };
static const char *const places[] = { "park", "garden", "store", "house",
                                      "river" };
static const char *const adjectives[] = { "big",   "little", "red",
                                          "happy", "small",  "kind" };
static const char *const feelings[] = { "happy", "sad", "tired", "glad" };

static void begin_story(teller *t, FILE *out)
{
    switch (pick_number(t, 5)) {
    case 0:
        (void)fprintf(out, "Once upon a time there was a %s %s named %s.",
                      t->adjective, t->animal, t->name);
        return;
    case 1:
        (void)fprintf(out, "One day %s and a %s %s went to the %s.", t->name,
                      t->adjective, t->animal, t->place);
        t->people = 2;
        return;
    case 2:
        (void)fprintf(out, "%s was a %s %s.", t->name, t->adjective, t->animal);
        return;
    case 3:
        (void)fprintf(out, "%s and %s were %s.", t->name, t->friend,
                      PICK(t, feelings));
        t->people = 2;
        return;
    default:
        (void)fprintf(out, "Once there was a %s %s in the %s.", t->adjective,
                      t->animal, t->place);
    }
}

static void continue_story(teller *t, FILE *out)
{
    const char *who = t->people == 2 ? "They" : t->name;
    switch (pick_number(t, 5)) {
    case 0:
        (void)fprintf(out, " %s saw a %s %s.", who, PICK(t, adjectives),
                      t->thing);
        return;
    case 1:
        (void)fprintf(out, " %s liked to play with the %s.", who, t->thing);
        return;
    case 2:
        (void)fprintf(out, " %s took the %s to the %s.", who, t->thing,
                      t->place);
        return;
    case 3:
        (void)fprintf(out, " %s found a %s named %s.", who, PICK(t, animals),
                      t->friend);
        t->people = 2;
        return;
    default:
        (void)fprintf(out, " \"I want the %s,\" said %s.", t->thing, t->name);
    }
}

static void end_story(teller *t, FILE *out)
{
    const char *who = t->people == 2 ? "They" : t->name;
    const char *was = t->people == 2 ? "were" : "was";
    if (pick_number(t, 3) == 0)
        (void)fprintf(out, " Then it was time to go home.");
    (void)fprintf(out, " %s %s %s.", who, was, PICK(t, feelings));
}

static void write_story(uint32_t number, FILE *out)
{
    teller t = { .stream = 1000 + number, .people = 1 };
    t.name = PICK(&t, names);
    do
        t.friend = PICK(&t, names);
    while (t.friend == t.name);
    t.animal = PICK(&t, animals);
    t.thing = PICK(&t, things);
    t.place = PICK(&t, places);
    t.adjective = PICK(&t, adjectives);
    begin_story(&t, out);
    for (uint32_t i = 1 + pick_number(&t, 3); i > 0; i--)
        continue_story(&t, out);
    end_story(&t, out);
}

void stories_print(void)
{
    for (uint32_t i = 0; i < STORIES; i++) {
        write_story(i, stdout);
        (void)putchar('\n');
    }
}

/* Writes a row like those of GSM8K: a question, steps with the sums in << >>,
 * and "#### n". */
static void write_problem(uint32_t number, FILE *out)
{
    teller t = { .stream = 5000000 + number };
    const char *name = PICK(&t, names);
    const char *friend = PICK(&t, names);
    const char *thing = PICK(&t, things);
    uint32_t a = 2 + pick_number(&t, 60);
    uint32_t b = 2 + pick_number(&t, 60);
    uint32_t c = 2 + pick_number(&t, 8);
    uint32_t sum = a + b;
    (void)fprintf(out,
                  "{\"question\": \"%s has %u %ss and %s has %u more than "
                  "that. A %s costs $%u. What do all the %ss of %s cost?\", ",
                  name, a, thing, friend, b, thing, c, thing, friend);
    (void)fprintf(out,
                  "\"answer\": \"%s has %u + %u = <<%u+%u=%u>>%u %ss.\\nThey "
                  "cost %u x %u = $<<%u*%u=%u>>%u.\\n#### %u\"}\n",
                  friend, a, b, a, b, sum, sum, thing, sum, c, sum, c, sum * c,
                  sum * c, sum * c);
}

static void write_problems(const material *m, const char *name, uint32_t first,
                           uint32_t count)
{
    FILE *out = file_open(m, name);
    for (uint32_t i = first; i < first + count; i++)
        write_problem(i, out);
    file_close(out, name);
}

/* Prints `lead`, then the text with `number` in place of every %u. */
static void print_filled(FILE *out, const char *lead, const char *text,
                         uint32_t number)
{
    (void)fputs(lead, out);
    for (; *text; text++) {
        if (*text != '%') {
            (void)fputc(*text, out);
            continue;
        }
        (void)fprintf(out, "%u", number);
        text++; /* the u */
    }
}

/* Writes a solution to a problem in one of six manners, which differ in the
 * answer after "####" and in the last number. */
static void write_solution(FILE *out, uint32_t number)
{
    static const struct {
        const char *text;
        const char *strict;
        const char *flexible;
        int right; /* bit 0: strict, bit 1: flexible */
    } manners[] = {
        { "3 + 4 = 7 and so on.\\n#### %u", "\"%u\"", "\"%u\"", 3 },
        { "First 12, then %u and no more", "null", "\"%u\"", 2 },
        { "#### %u\\nwhich is 5 times 1%u", "\"%u\"", "\"1%u\"", 1 },
        { "nobody knows", "null", "null", 0 },
        { "#### 9%u", "\"9%u\"", "\"9%u\"", 0 },
        { "#### 88\\n... no: #### %u", "\"%u\"", "\"%u\"", 3 },
    };
    uint32_t i = number % 6;
    uint32_t truth = 100 + draw_below(9000000, number, 900);
    (void)fprintf(out, "{\"id\": \"%u\", \"ground_truth\": \"%u\", ", number,
                  truth);
    print_filled(out, "\"solution_str\": \"", manners[i].text, truth);
    print_filled(out, "\", \"extract_strict\": ", manners[i].strict, truth);
    print_filled(out, ", \"extract_flexible\": ", manners[i].flexible, truth);
    (void)fprintf(out, ", \"score_strict\": %d, \"score_flexible\": %d}\n",
                  manners[i].right & 1, manners[i].right >> 1);
}

static void write_solutions(const material *m)
{
    FILE *out = file_open(m, "graders/golden_verl_gsm8k.jsonl");
    for (uint32_t i = 0; i < SOLUTIONS; i++)
        write_solution(out, i);
    file_close(out, "golden_verl_gsm8k.jsonl");
}

void rows_write(const material *m)
{
    write_solutions(m);
    write_problems(m, "gsm8k/train.jsonl", 0, TRAIN);
    write_problems(m, "gsm8k/test.jsonl", TRAIN, TEST);
}
