/* SPDX-License-Identifier: Apache-2.0
 *
 * The prompts and samples of xray generate.
 */
#ifndef XR_CLI_GENERATOR_H
#define XR_CLI_GENERATOR_H

#include <signal.h>

#include "core/cli/answers.h"
#include "core/cli/model_tool.h"
#include "core/cli/wishes.h"
#include "model/text/until.h"

typedef struct cli_sample {
    int32_t *ids;
    float *logp;
    int32_t *top_ids; /* [cap, top_count] */
    float *top_logp;  /* [cap, top_count] */
    float *picked;    /* [cap, picked.count] */
    size_t count;
    size_t cap;
    uint32_t finish; /* XRAY_FINISH_NONE: it is not complete */
    uint32_t given;  /* tokens that the engine has given, also after a stop */
    int ended;       /* 1: the engine has given its end */
    xm_until text;   /* of a prompt whose samples are watched */
} cli_sample;

/* The options of a line, and its samples. */
typedef struct cli_prompt {
    cli_args how; /* the command's options, overridden by the line's */
    int watched;  /* 1: the engine streams the samples */
    int submitted;
    size_t own;   /* the answer that later lines may go on from */
    size_t after; /* the answer whose row comes before the line's own ids, until
                   * it is there */
    cJSON *stops; /* the line's own texts, or NULL */
    cli_wishes wishes;
    float *prompt_logp;  /* of the ids submitted, if they are wished for */
    cli_sample *samples; /* [how.n] */
} cli_prompt;

/* An option that a line may hold: "--top-p" as "top_p". */
typedef struct cli_line_option {
    const cli_flag *flag;
    char key[24];
} cli_line_option;

enum { CLI_LINE_OPTIONS = 14 };

typedef struct cli_generator {
    cli_tool tool;
    cli_line_option options[CLI_LINE_OPTIONS];
    size_t option_count;
    const char *keys[CLI_LINE_OPTIONS + CLI_WISH_KEYS +
                     6]; /* of a line; ends with NULL */
    int32_t end_ids[9];
    uint32_t end_count;
    cli_answers answers;
    /* --stream: what is printed next, and the number of bytes of its text that
     * have been. */
    size_t next_item;
    int64_t next_sample;
    size_t printed;
    xr_str out;
    /* Set by a signal handler: samples end where they are. NULL: never. */
    const volatile sig_atomic_t *stop;
} cli_generator;

/* The most tokens that the row of a line can have; the model's last position
 * ends a row, too. */
uint64_t cli_generator_row(const cli_generator *g, const cli_item *item);

/* Adds the ids that end samples: those of generation_config.json or
 * config.json, else the tokenizer's EOS. */
void cli_generator_find_ends(cli_generator *g);

/* Reads a line with the options of `g`, for an item with ids:
 * cli_batch_ops.take. cli_prompt_free in any case: cli_batch_ops.drop. */
xray_status cli_prompt_read(void *ctx, const cJSON *object, const char *where,
                            cli_item *item, xr_err *err);
void cli_prompt_free(cli_item *item);

/* True for a text that can occur in another one of UTF-8. */
int cli_is_text(const char *text);

/* Generates the samples of a chunk: cli_batch_ops.run. With --stream it prints
 * their texts. */
int cli_generator_run(void *ctx, cli_item *items, size_t count);

/* Refuses to watch samples, with `what` ("--stop") in the sentence, where the
 * engine or the tokenizer is not made for it. */
xray_status cli_generator_watches(const cli_generator *g, const char *what,
                                  const cli_args *how, xr_err *err);

#endif
