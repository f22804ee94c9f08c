/* SPDX-License-Identifier: Apache-2.0
 *
 * The answers of lines with an "id", from which later lines of xray generate
 * may go on.
 */
#ifndef XR_CLI_ANSWERS_H
#define XR_CLI_ANSWERS_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/map.h"

typedef enum cli_answer_state {
    CLI_ANSWER_NONE,   /* the line was refused, or is being read */
    CLI_ANSWER_COMING, /* it will be sampled with this chunk */
    CLI_ANSWER_GIVEN
} cli_answer_state;

typedef struct cli_answer {
    cli_answer_state state;
    uint64_t line; /* number of its line, from 0 */
    int64_t samples;
    uint64_t most; /* tokens that its row has at most */
    int32_t *ids;  /* of prompt and sample, once it is given */
    size_t count;
} cli_answer;

typedef struct cli_answers {
    cli_answer *list;
    size_t count;
    size_t cap;
    xr_map *numbers; /* from an id to an index of `list` */
} cli_answers;

/* Stands for no answer. */
#define CLI_NO_ANSWER SIZE_MAX

/* Reads the "id" of a line, under which *out_own is added, and the "after" of a
 * line that goes on from *out_after; each is CLI_NO_ANSWER if there is none. */
xray_status cli_answers_read(cli_answers *answers, const cJSON *object,
                             const char *where, uint64_t line, xr_err *err,
                             size_t *out_own, size_t *out_after);

/* Fails unless the answer is given, or comes. */
xray_status cli_answers_need(const cli_answers *answers, size_t number,
                             xr_err *err);

/* Gives an answer its row: a prompt and the sample behind it, which are copied.
 */
xray_status cli_answers_give(cli_answers *answers, size_t number,
                             const int32_t *prompt, size_t prompt_count,
                             const int32_t *sample, size_t sample_count,
                             xr_err *err);

void cli_answers_free(cli_answers *answers);

#endif
