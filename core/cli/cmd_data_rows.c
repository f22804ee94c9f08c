/* SPDX-License-Identifier: Apache-2.0
 *
 * xray data head, stats and check: the rows of data files as a run would see
 * them, with the model's tokenizer and template and the keys of [data].
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cli/cli.h"
#include "core/data/data.h"
#include "core/data/file_list.h"
#include "core/monitor/samples_table.h"
#include "core/run/run.h"
#include "core/run/run_setup.h"

/* Longer than any row that a run can have. */
#define ANY_LENGTH ((int64_t)1 << 24)

typedef struct view {
    const cli_args *args;
    xr_config *config;
    xr_run *run;
    xr_data_section data; /* of the run, with the files that were named */
    xr_file_list files;
    int sft;
    xr_errors errors; /* of rows */
    size_t refused;
    xray_status failed; /* of a text that could not be decoded, with `err` */
    xr_err err;
    xr_str out;
} view;

/* Shows a part that was read; `name` is the key of its files. */
typedef void show_part(view *v, const char *name, int kind,
                       const xr_dataset *set);

/* ---- what is read -------------------------------------------------------- */

static int is_ini(const char *path)
{
    size_t size = strlen(path);
    return size > 4 && strcmp(path + size - 4, ".ini") == 0;
}

static int open_run(view *v)
{
    xr_errors errors = { 0 };
    const cli_list *words = &v->args->words;
    int ini = words->count == 1 && is_ini(words->items[0]);
    v->config = cli_config(v->args, ini ? words->items[0] : NULL, &errors);
    if (v->config)
        v->run = xr_run_new(v->config, v->args->plugin_path, XR_WITH_TOKENIZER,
                            &errors);
    int code = v->run ? CLI_OK : cli_errors(&errors);
    xr_errors_free(&errors);
    if (!v->run)
        return code;
    xr_run_say_found(v->run);
    v->data = v->run->ini.data;
    if (ini)
        return CLI_OK;
    xr_err err = { "" };
    const xray_list names = { words->items, words->count };
    xray_status status = xr_file_list_find(&names, &err, &v->files);
    if (status != XRAY_OK)
        return cli_fail(status, &err);
    v->data.train_files =
        (xray_list){ (const char *const *)v->files.items, v->files.count };
    v->data.val_files.count = 0;
    return CLI_OK;
}

static void close_view(view *v)
{
    xr_str_free(&v->out);
    xr_errors_free(&v->errors);
    xr_run_free(v->run);
    xr_config_free(v->config);
    xr_file_list_free(&v->files);
}

static xray_status read_part(view *v, int part, show_part *show, xr_err *err)
{
    xr_dataset *set = NULL;
    const char *name = part == XR_DATA_TRAIN     ? "train_files"
                       : v->data.val_files.count ? "val_files"
                                                 : "val_split";
    int sft = v->sft && part == XR_DATA_TRAIN;
    xr_data_want want = { .part = part,
                          .kind = sft ? XR_DATA_SFT : XR_DATA_PROMPTS,
                          .tokenizer = v->run->tokenizer,
                          .chat = v->run->chat,
                          .errors = &v->errors };
    xray_status status = xr_dataset_open(&v->data, &want, err, &set);
    if (status != XRAY_OK)
        return status;
    v->refused += xr_dataset_refused(set);
    if (xr_dataset_note(set))
        cli_say("%s", xr_dataset_note(set));
    show(v, name, want.kind, set);
    xr_dataset_close(set);
    *err = v->err;
    if (v->failed != XRAY_OK)
        return v->failed;
    return v->out.failed ? xr_fail(err, XRAY_E_NOMEM, "out of memory")
                         : XRAY_OK;
}

static int read_parts(view *v, show_part *show)
{
    xr_err err = { "" };
    xray_status status = XRAY_OK;
    if (strcmp(v->args->job, "eval") != 0)
        status = read_part(v, XR_DATA_TRAIN, show, &err);
    if (status == XRAY_OK && xr_data_has_val(&v->data))
        status = read_part(v, XR_DATA_VAL, show, &err);
    (void)fputs(xr_str_text(&v->out), stdout);
    (void)fflush(stdout); /* what is wrong comes after it */
    for (size_t i = 0; i < v->errors.count; i++)
        cli_say("%s", v->errors.items[i]);
    if (v->refused > v->errors.count)
        cli_say("%zu more rows are malformed", v->refused - v->errors.count);
    if (status != XRAY_OK) {
        xr_run_locate(v->run, &err);
        return cli_fail(status, &err);
    }
    return v->refused ? CLI_FAILED : CLI_OK;
}

static int view_rows(const cli_args *args, show_part *show, int any_length)
{
    view v = { .args = args, .sft = strcmp(args->job, "sft") == 0 };
    int code = open_run(&v);
    if (code == CLI_OK && any_length) {
        v.data.max_prompt_length = v.data.max_response_length = ANY_LENGTH;
        v.data.filter_overlong_prompts = 0;
    }
    if (code == CLI_OK)
        code = read_parts(&v, show);
    close_view(&v);
    return code;
}

/* ---- head ---------------------------------------------------------------- */

static int is_learned(const xr_row *row, uint32_t i)
{
    return row->mask ? row->mask[i] : i >= row->prompt_count;
}

static uint32_t count_learned(const xr_row *row)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < row->id_count; i++)
        count += is_learned(row, i) != 0;
    return count;
}

/* The text of each run of tokens that are learned. */
static void put_learned(view *v, const xr_row *row)
{
    xr_str text = { 0 };
    for (uint32_t i = 0; i < row->id_count;) {
        uint32_t end = i;
        while (end < row->id_count && is_learned(row, end))
            end++;
        if (end == i) {
            i++;
            continue;
        }
        xr_str_clear(&text);
        v->failed = xm_tokenizer_decode(v->run->tokenizer, row->ids + i,
                                        end - i, 0, &text, &v->err);
        if (v->failed != XRAY_OK)
            break;
        xr_shown_text(xr_str_text(&text), text.size, "  learned: ", &v->out);
        i = end;
    }
    v->out.failed |= text.failed;
    xr_str_free(&text);
}

static void put_named_text(xr_str *out, const char *name, const char *text)
{
    if (*text)
        xr_shown_text(text, strlen(text), name, out);
}

static void show_head(view *v, const char *name, int kind,
                      const xr_dataset *set)
{
    size_t count = xr_dataset_count(set);
    if (count > (size_t)v->args->n)
        count = (size_t)v->args->n;
    for (size_t i = 0; i < count && v->failed == XRAY_OK; i++) {
        const xr_row *row = xr_dataset_row(set, i);
        xr_str_printf(&v->out, "%s: row %" PRIu64 ": %" PRIu32 " tokens", name,
                      row->id, row->id_count);
        if (kind == XR_DATA_SFT)
            xr_str_printf(&v->out, ", %" PRIu32 " of them learned",
                          count_learned(row));
        xr_str_puts(&v->out, "\n");
        xr_shown_text(row->prompt, strlen(row->prompt), "  | ", &v->out);
        if (kind == XR_DATA_SFT)
            put_learned(v, row);
        put_named_text(&v->out, "  ground truth: ", row->ground_truth);
        put_named_text(&v->out, "  data_source: ", row->data_source);
    }
}

static int run_head(const cli_args *args)
{
    return view_rows(args, show_head, 1);
}

/* ---- stats --------------------------------------------------------------- */

static int compare_lengths(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The least width of 1, 2 or 5 times a power of ten with at most 12 bins. */
static uint32_t choose_width(uint32_t longest)
{
    for (uint32_t ten = 1;; ten *= 10)
        for (uint32_t k = 1; k <= 5; k += k == 1 ? 1 : 3)
            if (longest / (k * ten) < 12)
                return k * ten;
}

static void put_histogram(const uint32_t *sorted, size_t count, xr_str *out)
{
    uint32_t width = choose_width(sorted[count - 1]);
    size_t most = 0;
    size_t bins[12] = { 0 };
    for (size_t i = 0; i < count; i++) {
        size_t *bin = &bins[sorted[i] / width];
        most = ++*bin > most ? *bin : most;
    }
    for (uint32_t i = sorted[0] / width; i <= sorted[count - 1] / width; i++) {
        size_t bar = (bins[i] * 40 + most - 1) / most;
        if (width == 1)
            xr_str_printf(out, "  %18" PRIu32, i);
        else
            xr_str_printf(out, "  %7" PRIu32 " to %7" PRIu32, i * width,
                          (i + 1) * width - 1);
        xr_str_printf(out, " %8zu ", bins[i]);
        for (size_t k = 0; k < bar; k++)
            xr_str_puts(out, "#");
        while (out->size && out->data[out->size - 1] == ' ')
            out->size--;
        xr_str_puts(out, "\n");
    }
}

/* The least length that at least `share` of a hundred rows do not exceed. */
static uint32_t find_quantile(const uint32_t *sorted, size_t count,
                              size_t share)
{
    return sorted[(count * share + 99) / 100 - 1];
}

static void put_lengths(view *v, const char *of, uint32_t *lengths,
                        size_t count, int64_t limit)
{
    double sum = 0;
    size_t over = 0;
    qsort(lengths, count, sizeof *lengths, compare_lengths);
    for (size_t i = 0; i < count; i++) {
        sum += lengths[i];
        over += lengths[i] > limit;
    }
    xr_str_printf(&v->out,
                  "tokens of a %s: mean %.1f, median %" PRIu32
                  ", 90 %% at most %" PRIu32 ", 99 %% at most %" PRIu32
                  ", longest %" PRIu32 "\n",
                  of, sum / (double)count, find_quantile(lengths, count, 50),
                  find_quantile(lengths, count, 90),
                  find_quantile(lengths, count, 99), lengths[count - 1]);
    put_histogram(lengths, count, &v->out);
    xr_str_printf(&v->out, "longer than %" PRId64 " tokens: %zu rows\n", limit,
                  over);
}

/* Counts the rows of each text; `texts` are sorted. */
static void put_sources(const char *const *texts, size_t count, xr_str *out)
{
    for (size_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && strcmp(texts[i], texts[end]) == 0;)
            end++;
        if (*texts[i]) {
            xr_shown_text(texts[i], strlen(texts[i]), "data_source ", out);
            out->size -= out->failed ? 0 : 1;
            xr_str_printf(out, ": %zu rows\n", end - i);
        }
    }
}

static size_t count_repeated(const char *const *texts, size_t count)
{
    size_t repeated = 0;
    for (size_t i = 1; i < count; i++)
        repeated += strcmp(texts[i - 1], texts[i]) == 0;
    return repeated;
}

static void put_all_stats(view *v, int kind, const xr_dataset *set,
                          uint32_t *lengths, const char **texts)
{
    size_t count = xr_dataset_count(set);
    size_t bare = 0;
    int sft = kind == XR_DATA_SFT;
    const xr_data_section *data = &v->run->ini.data;
    for (size_t i = 0; i < count; i++) {
        const xr_row *row = xr_dataset_row(set, i);
        lengths[i] = row->id_count;
        texts[i] = row->data_source;
        bare += !*row->ground_truth;
    }
    qsort(texts, count, sizeof *texts, compare_texts);
    put_sources(texts, count, &v->out);
    put_lengths(v, sft ? "row" : "prompt", lengths, count,
                data->max_prompt_length +
                    (sft ? data->max_response_length : 0));
    for (size_t i = 0; sft && i < count; i++)
        lengths[i] = count_learned(xr_dataset_row(set, i));
    if (sft)
        put_lengths(v, "row that are learned", lengths, count,
                    data->max_response_length);
    for (size_t i = 0; i < count; i++)
        texts[i] = xr_dataset_row(set, i)->prompt;
    qsort(texts, count, sizeof *texts, compare_texts);
    xr_str_printf(&v->out, "prompts that an earlier row has: %zu\n",
                  count_repeated(texts, count));
    if (!sft)
        xr_str_printf(&v->out, "without a ground truth: %zu rows\n", bare);
}

static void show_stats(view *v, const char *name, int kind,
                       const xr_dataset *set)
{
    size_t count = xr_dataset_count(set);
    uint32_t *lengths = xr_calloc(count, sizeof *lengths);
    const char **texts = xr_calloc(count, sizeof *texts);
    xr_str_printf(&v->out, "%s: %zu rows\n", name, count);
    if (xr_dataset_unwanted(set))
        xr_str_printf(&v->out, "%zu rows left out by [data] filters\n",
                      xr_dataset_unwanted(set));
    if (lengths && texts)
        put_all_stats(v, kind, set, lengths, texts);
    else
        v->out.failed = 1;
    free(lengths);
    free(texts);
}

static int run_stats(const cli_args *args)
{
    return view_rows(args, show_stats, 1);
}

/* ---- check --------------------------------------------------------------- */

static void show_check(view *v, const char *name, int kind,
                       const xr_dataset *set)
{
    (void)kind;
    xr_str_printf(&v->out,
                  "%s: %zu rows, %zu left out and %zu cut for their length\n",
                  name, xr_dataset_count(set), xr_dataset_filtered(set),
                  xr_dataset_truncated(set));
    if (xr_dataset_unwanted(set))
        xr_str_printf(&v->out, "%s: %zu rows left out by [data] filters\n",
                      name, xr_dataset_unwanted(set));
    if (xr_dataset_refused(set))
        xr_str_printf(&v->out, "%s: %zu rows with which no run would start\n",
                      name, xr_dataset_refused(set));
}

static int run_check_rows(const cli_args *args)
{
    return view_rows(args, show_check, 0);
}

/* ---- the commands -------------------------------------------------------- */

#define FLAGS_OF_ALL                                                       \
    { "--model",                                                           \
      "DIR",                                                               \
      CLI_TEXT,                                                            \
      0,                                                                   \
      offsetof(cli_args, model),                                           \
      NULL,                                                                \
      1,                                                                   \
      0,                                                                   \
      "folder of the model whose tokenizer and template are used, or its " \
      "Hugging Face id" },                                                 \
        CLI_JOB_FLAG, CLI_SET_FLAG, CLI_PLUGIN_PATH_FLAG, CLI_LOG_FLAG,    \
    {                                                                      \
        0                                                                  \
    }
static const cli_flag head_flags[] = { { "--n", "N", CLI_INT, 0,
                                         offsetof(cli_args, n), "3", 1, 0x1p31,
                                         "rows to show of each part" },
                                       FLAGS_OF_ALL };
static const cli_flag flags[] = { FLAGS_OF_ALL };

#define ABOUT                                                                  \
    "A FILE is anything that [data] train_files takes, and needs --model. Of " \
    "an INI, the rows\nof its train_files and val_files are "

const cli_command cli_data_head = {
    .name = "data head",
    .usage = "RUN.INI|FILE... [options]",
    .summary = "the first rows as a run would see them",
    .about = ABOUT "shown. A row has its tokens, its prompt with\nthe template "
                   "applied, its ground truth, and for sft the text that is "
                   "learned.",
    .examples = "  xray data head train.parquet --model DIR\n"
                "  xray data head sft.ini --job sft --n 1\n",
    .flags = head_flags,
    .min_words = 1,
    .max_words = SIZE_MAX,
    .run = run_head,
};

const cli_command cli_data_stats = {
    .name = "data stats",
    .usage = "RUN.INI|FILE... [options]",
    .summary = "lengths, sources and repetitions of rows",
    .about = ABOUT "measured, whatever their length: tokens,\ndata sources, "
                   "repeated prompts, and rows without a ground truth.",
    .examples = "  xray data stats train.parquet --model DIR\n"
                "  xray data stats run.ini\n",
    .flags = flags,
    .min_words = 1,
    .max_words = SIZE_MAX,
    .run = run_stats,
};

const cli_command cli_data_check = {
    .name = "data check",
    .usage = "RUN.INI|FILE... [options]",
    .summary = "rows that a run would leave out, cut or refuse",
    .about = ABOUT "read as a run reads them. Where a run\nnames the first "
                   "malformed row and ends, this names the first 20 and counts "
                   "the others.",
    .examples = "  xray data check run.ini\n  xray data check train.jsonl "
                "--model DIR --set data.max_prompt_length=1024\n",
    .flags = flags,
    .min_words = 1,
    .max_words = SIZE_MAX,
    .run = run_check_rows,
};
