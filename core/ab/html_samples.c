/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the samples that all variants made for the same prompts, side by side.
 */
#include <stdlib.h>
#include <string.h>

#include "core/ab/page.h"

#define MOST_PROMPTS 6u

/* The samples of one step, one list per variant. */
typedef struct shown {
    const xr_ab_run **runs; /* [variants] */
    xr_sample_list *lists;
    uint64_t step;
} shown;

/* Chooses a run of each variant: those of the base's first seed that all
 * variants have, or the first runs if there is no such seed. */
static void choose_shown_runs(const xr_runs *runs, shown *s)
{
    const xr_variant *base = &runs->variants[0];
    for (size_t i = 0; i <= base->count; i++) {
        size_t found = 0;
        for (size_t v = 0; v < runs->count; v++) {
            const xr_variant *variant = &runs->variants[v];
            s->runs[v] = variant->count ? &variant->runs[0] : NULL;
            for (size_t k = 0; i < base->count && k < variant->count; k++) {
                if (variant->runs[k].seed != base->runs[i].seed)
                    continue;
                s->runs[v] = &variant->runs[k];
                found++;
                break;
            }
        }
        if (found == runs->count)
            return;
    }
}

static void free_sample_lists(const xr_runs *runs, shown *s)
{
    for (size_t v = 0; v < runs->count; v++)
        xr_sample_list_free(&s->lists[v]);
}

/* Reads the samples of a step; 1 if all runs kept some. */
static int read_step_samples(const xr_runs *runs, uint64_t step, shown *s,
                             xray_status *status, xr_err *err)
{
    s->step = step;
    for (size_t v = 0; v < runs->count; v++) {
        *status = xr_samples_read(s->runs[v], step, err, &s->lists[v]);
        if (*status == XRAY_OK && s->lists[v].count)
            continue;
        free_sample_lists(runs, s);
        return 0;
    }
    return 1;
}

static const xr_sample *find_sample(const xr_sample_list *list,
                                    const char *prompt)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i].prompt, prompt) == 0)
            return &list->items[i];
    return NULL;
}

static int is_prompt_in_all(const xr_runs *runs, const shown *s,
                            const char *prompt)
{
    for (size_t v = 0; v < runs->count; v++)
        if (!find_sample(&s->lists[v], prompt))
            return 0;
    return 1;
}

static void put_sample_row(const xr_runs *runs, const shown *s,
                           const xr_sample *base, xr_str *out)
{
    xr_str_puts(out, "<tr><td><pre>");
    xr_page_text(base->prompt, out);
    xr_str_puts(out, "</pre>");
    if (*base->truth) {
        xr_str_puts(out, "<span class=\"dim\">truth: ");
        xr_page_text(base->truth, out);
        xr_str_puts(out, "</span>");
    }
    xr_str_puts(out, "</td>");
    for (size_t v = 0; v < runs->count; v++) {
        const xr_sample *sample = find_sample(&s->lists[v], base->prompt);
        xr_str_puts(out, "<td><pre>");
        xr_page_text(sample->response, out);
        xr_str_puts(out, "</pre><span class=\"dim\">score ");
        xr_page_number(sample->score, out);
        xr_str_puts(out, "</span></td>");
    }
    xr_str_puts(out, "</tr>\n");
}

static void put_sample_table(const xr_runs *runs, const shown *s, xr_str *out)
{
    const xr_sample_list *base = &s->lists[0];
    size_t rows = 0;
    xr_str_printf(out,
                  "<p class=\"dim\">Step %llu, the first sample of a "
                  "prompt.</p>\n<div class=\"wide\"><table class=\"samples\">"
                  "\n<tr><th>prompt</th>",
                  (unsigned long long)s->step);
    for (size_t v = 0; v < runs->count; v++) {
        xr_str_puts(out, "<th>");
        xr_page_name(runs, v, out);
        xr_str_printf(out, ", %s</th>", s->runs[v]->label);
    }
    xr_str_puts(out, "</tr>\n");
    for (size_t i = 0; i < base->count && rows < MOST_PROMPTS; i++) {
        const xr_sample *sample = &base->items[i];
        if (find_sample(base, sample->prompt) != sample ||
            !is_prompt_in_all(runs, s, sample->prompt))
            continue;
        put_sample_row(runs, s, sample, out);
        rows++;
    }
    xr_str_puts(out, "</table></div>\n");
    if (!rows)
        xr_str_puts(out, "<p>No prompt of that step is in all runs.</p>\n");
}

xray_status xr_page_samples(const xr_comparison *c, xr_str *out, xr_err *err)
{
    const xr_runs *runs = c->runs;
    shown s = { .runs = xr_calloc(runs->count, sizeof(*s.runs)),
                .lists = xr_calloc(runs->count, sizeof(*s.lists)) };
    xray_status status = XRAY_OK;
    int found = 0;
    xr_str_puts(out, "<h2>Samples side by side</h2>\n");
    if (!s.runs || !s.lists)
        status = xr_fail(err, XRAY_E_NOMEM, "out of memory for samples");
    else
        choose_shown_runs(runs, &s);
    int all = status == XRAY_OK;
    for (size_t v = 0; all && v < runs->count; v++)
        all = s.runs[v] != NULL;
    for (size_t i = all ? s.runs[0]->line_count : 0;
         i > 0 && !found && status == XRAY_OK; i--)
        found = read_step_samples(runs, s.runs[0]->lines[i - 1].step, &s,
                                  &status, err);
    if (found) {
        put_sample_table(runs, &s, out);
        free_sample_lists(runs, &s);
    } else {
        xr_str_puts(out, "<p>There is no step for which all runs kept samples "
                         "([trainer] rollout_data_dir).</p>\n");
    }
    free(s.runs);
    free(s.lists);
    return status;
}
