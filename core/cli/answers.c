/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps the rows of lines with an "id" until the command ends.
 */
#include "core/cli/answers.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"

static xray_status find_answer(const cli_answers *a, const char *name,
                               xr_err *err, size_t *out)
{
    uint64_t number;
    if (!a->numbers || !xr_map_get(a->numbers, name, strlen(name), &number))
        return xr_fail(err, XRAY_E_ARG,
                       "no line before this one has the id \"%.100s\"", name);
    *out = (size_t)number;
    return cli_answers_need(a, *out, err);
}

static xray_status add_answer(cli_answers *a, const char *name, uint64_t line,
                              xr_err *err, size_t *out)
{
    uint64_t number;
    if (!a->numbers)
        a->numbers = xr_map_new(64);
    if (a->numbers && xr_map_get(a->numbers, name, strlen(name), &number))
        return xr_fail(err, XRAY_E_ARG, "line %llu has the id \"%.100s\", too",
                       (unsigned long long)a->list[number].line + 1, name);
    if (a->count == a->cap) {
        size_t cap = a->cap ? 2 * a->cap : 64;
        cli_answer *list = realloc(a->list, cap * sizeof *list);
        if (!list)
            return xr_fail(err, XRAY_E_NOMEM, "out of memory");
        a->list = list;
        a->cap = cap;
    }
    if (!a->numbers || xr_map_put(a->numbers, name, strlen(name), a->count))
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    a->list[a->count] = (cli_answer){ .line = line };
    *out = a->count++;
    return XRAY_OK;
}

xray_status cli_answers_read(cli_answers *answers, const cJSON *object,
                             const char *where, uint64_t line, xr_err *err,
                             size_t *out_own, size_t *out_after)
{
    const char *own = NULL;
    const char *after = NULL;
    xray_status status = XRAY_OK;
    *out_own = *out_after = CLI_NO_ANSWER;
    if (xr_json_get(object, "id"))
        status = xr_json_string(object, "id", where, err, &own);
    if (status == XRAY_OK && xr_json_get(object, "after"))
        status = xr_json_string(object, "after", where, err, &after);
    if (status != XRAY_OK)
        return status;
    /* Its own id is added last, so that no line goes on from itself, but even
     * if the other is not found: lines after it then learn that it failed. */
    status = after ? find_answer(answers, after, err, out_after) : XRAY_OK;
    xr_err second = { "" };
    xray_status added =
        own ? add_answer(answers, own, line, &second, out_own) : XRAY_OK;
    if (status == XRAY_OK && added != XRAY_OK)
        status = xr_fail(err, added, "%s", second.text);
    return status == XRAY_OK ? status : xr_fail_in(err, status, "%s", where);
}

xray_status cli_answers_need(const cli_answers *answers, size_t number,
                             xr_err *err)
{
    const cli_answer *answer = &answers->list[number];
    unsigned long long line = (unsigned long long)answer->line + 1;
    if (answer->state == CLI_ANSWER_NONE)
        return xr_fail(err, XRAY_E_ARG,
                       "line %llu has no answer to go on from, since it failed",
                       line);
    if (answer->samples != 1)
        return xr_fail(err, XRAY_E_ARG,
                       "line %llu has %lld samples; a line can go on from one "
                       "that has a single sample",
                       line, (long long)answer->samples);
    return XRAY_OK;
}

xray_status cli_answers_give(cli_answers *answers, size_t number,
                             const int32_t *prompt, size_t prompt_count,
                             const int32_t *sample, size_t sample_count,
                             xr_err *err)
{
    cli_answer *answer = &answers->list[number];
    int32_t *ids = xr_calloc(prompt_count + sample_count + 1, sizeof *ids);
    if (!ids)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    if (prompt_count)
        memcpy(ids, prompt, prompt_count * sizeof *ids);
    if (sample_count)
        memcpy(ids + prompt_count, sample, sample_count * sizeof *ids);
    answer->ids = ids;
    answer->count = prompt_count + sample_count;
    answer->most = answer->count;
    answer->state = CLI_ANSWER_GIVEN;
    return XRAY_OK;
}

void cli_answers_free(cli_answers *answers)
{
    for (size_t i = 0; i < answers->count; i++)
        free(answers->list[i].ids);
    free(answers->list);
    xr_map_free(answers->numbers);
    *answers = (cli_answers){ .list = NULL };
}
