/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the goldens of the small model.
 */
#include "tests/material/golden.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#define LINES "tests/text/goldens/stories/lines.jsonl"

enum { IDS = 128, DERIVATIVES = 58 };

typedef struct sequence {
    int32_t ids[IDS];
    uint32_t prompt;
    uint32_t count;
    double logp[IDS]; /* logp[i] belongs to ids[i + 1] */
    double margin;
    double entropy;
    double logits[VOCAB]; /* after the prompt */
} sequence;

/* Reads the ids that the Hugging Face library gives the text. */
static void read_prompt_ids(const material *m, const char *text, sequence *s)
{
    size_t size = 0;
    char *lines = source_read(m, LINES, &size);
    for (char *at = lines, *line; (line = line_next(&at)) != NULL;) {
        cJSON *row = cJSON_Parse(line);
        const cJSON *of = cJSON_GetObjectItem(row, "text");
        if (of && strcmp(of->valuestring, text) == 0) {
            const cJSON *id;
            cJSON_ArrayForEach(id, cJSON_GetObjectItem(row, "ids"))
                s->ids[s->prompt++] = id->valueint;
        }
        cJSON_Delete(row);
    }
    if (s->prompt == 0)
        stop_with_error("no line has this text", text);
    free(lines);
}

/* Returns the likeliest id, and keeps the smallest margin to the second. */
static int32_t find_best_id(const double *logits, double *margin)
{
    int32_t best = 0;
    double second = -INFINITY;
    for (int32_t i = 1; i < VOCAB; i++) {
        if (logits[i] > logits[best]) {
            second = logits[best];
            best = i;
        } else if (logits[i] > second) {
            second = logits[i];
        }
    }
    if (logits[best] - second < *margin)
        *margin = logits[best] - second;
    return best;
}

static void follow_sequence(const tensor *model, sequence *s)
{
    double logits[VOCAB];
    double logp[VOCAB];
    decoder_row *row = allocate_zeroed(1, sizeof *row);
    s->margin = INFINITY;
    for (uint32_t i = 0; i + 1 < s->count; i++) {
        decoder_step(model, row, s->ids[i], logits);
        double entropy = decoder_logp(logits, logp);
        if (i + 1 == s->prompt) {
            memcpy(s->logits, logits, sizeof logits);
            s->entropy = entropy;
        }
        if (i + 1 >= s->prompt)
            s->ids[i + 1] = find_best_id(logits, &s->margin);
        s->logp[i] = logp[s->ids[i + 1]];
    }
    free(row);
}

static void print_ids(FILE *out, const char *key, const int32_t *ids,
                      uint32_t count)
{
    (void)fprintf(out, ", \"%s\": [", key);
    for (uint32_t i = 0; i < count; i++)
        (void)fprintf(out, "%s%d", i ? ", " : "", ids[i]);
    (void)fputc(']', out);
}

static void print_values(FILE *out, const char *key, const double *values,
                         uint32_t count)
{
    (void)fprintf(out, ", \"%s\": [", key);
    for (uint32_t i = 0; i < count; i++)
        (void)fprintf(out, "%s%.17g", i ? ", " : "", values[i]);
    (void)fputc(']', out);
}

void golden_write(const material *m, const char *name, const tensor *model)
{
    static const struct {
        const char *text;
        uint32_t more;
    } cases[] = {
        { "", 72 },
        { "Once upon a time", 64 },
        { "Lily and Tom went to the park. They saw a", 48 },
        { "One day, a little cat named Mittens found a big red ball", 48 },
    };
    FILE *out = file_open(m, name);
    (void)fprintf(out, "{\"cases\": [");
    for (int i = 0; i < 4; i++) {
        sequence s = { .prompt = 0 };
        read_prompt_ids(m, cases[i].text, &s);
        s.count = s.prompt + cases[i].more;
        follow_sequence(model, &s);
        (void)fprintf(out, "%s\n{\"prompt\": \"%s\"", i ? "," : "",
                      cases[i].text);
        print_ids(out, "prompt_ids", s.ids, s.prompt);
        print_values(out, "prompt_logprobs", s.logp, s.prompt - 1);
        print_values(out, "next_logits_after_prompt", s.logits, VOCAB);
        print_ids(out, "greedy_ids", s.ids + s.prompt, cases[i].more);
        print_values(out, "greedy_logprobs", s.logp + s.prompt - 1,
                     cases[i].more);
        (void)fprintf(out, ", \"entropy_after_prompt\": %.17g", s.entropy);
        (void)fprintf(out, ", \"min_top1_top2_logit_margin\": %.17g}",
                      s.margin);
    }
    (void)fprintf(out, "]}\n");
    file_close(out, name);
}

/* ---- derivatives -------------------------------------------------------- */

static double mean_loss(const tensor *model, const sequence *s)
{
    double logits[VOCAB];
    double logp[VOCAB];
    double sum = 0;
    decoder_row *row = allocate_zeroed(1, sizeof *row);
    for (uint32_t i = 0; i + 1 < s->prompt; i++) {
        decoder_step(model, row, s->ids[i], logits);
        (void)decoder_logp(logits, logp);
        sum -= logp[s->ids[i + 1]] / (s->prompt - 1);
    }
    free(row);
    return sum;
}

/* Differentiates by differences over two steps, whose error is of the fourth
 * order. */
static double differentiate_loss(const tensor *model, const sequence *s,
                                 double *at)
{
    const double step = 1e-3;
    const double value = *at;
    double loss[4];
    static const int offsets[] = { -2, -1, 1, 2 };
    for (int i = 0; i < 4; i++) {
        *at = value + offsets[i] * step;
        loss[i] = mean_loss(model, s);
    }
    *at = value;
    return (loss[0] - 8 * loss[1] + 8 * loss[2] - loss[3]) / (12 * step);
}

void golden_write_derivatives(const material *m, const char *name,
                              tensor *model)
{
    sequence s = { .prompt = 0 };
    read_prompt_ids(
        m, "Once upon a time there was a kind dog named Max. Max was happy.",
        &s);
    double loss = mean_loss(model, &s);
    FILE *out = file_open(m, name);
    (void)fprintf(out, "{\"mean_nll\": %.17g", loss);
    print_ids(out, "ids", s.ids, s.prompt);
    (void)fprintf(out, ", \"grads\": [");
    for (uint32_t i = 0; i < DERIVATIVES; i++) {
        tensor *t = &model[i % TENSORS];
        uint32_t cols = t->cols ? t->cols : 1;
        uint32_t row = draw_below(77, 2 * i, t->rows);
        uint32_t col = draw_below(77, 2 * i + 1, cols);
        if (t == &model[EMBED]) /* rows of ids in the text also have a look-up
                                 * gradient */
            row = (uint32_t)s.ids[i % s.prompt];
        double *at = &t->values[row * cols + col];
        (void)fprintf(out, "%s\n{\"tensor\": \"%s\", \"index\": [%u",
                      i ? "," : "", t->name, row);
        if (t->cols)
            (void)fprintf(out, ", %u", col);
        (void)fprintf(out, "], \"value\": %.17g, \"grad\": %.17g}", *at,
                      differentiate_loss(model, &s, at));
    }
    (void)fprintf(out, "]}\n");
    file_close(out, name);
}
