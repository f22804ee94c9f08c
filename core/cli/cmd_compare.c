/* SPDX-License-Identifier: Apache-2.0
 *
 * xray compare: compares finished runs. Also writes the reports of `xray ab`.
 */
#include "core/cli/cmd_compare.h"

#include <stdint.h>
#include <stdio.h>

#include "core/base/file.h"
#include "core/cli/cli.h"

/* ---- reports ------------------------------------------------------------ */

static xray_status write_page(const xr_comparison *c, const char *path,
                              xr_err *err)
{
    xr_str page = { 0 };
    xray_status status = xr_compare_html(c, &page, err);
    if (status == XRAY_OK)
        status = xr_file_write(path, xr_str_text(&page), page.size, err);
    xr_str_free(&page);
    return status;
}

int cli_compare_report(const xr_runs *runs, const char *metric, int lower,
                       const char *path)
{
    xr_comparison c;
    xr_err err = { "" };
    xr_str text = { 0 };
    xray_status status = xr_compare(runs, metric, lower, &err, &c);
    if (status != XRAY_OK)
        return cli_fail(status, &err);
    xr_compare_text(&c, &text);
    status = xr_compare_text_time(&c, &text, &err);
    if (status == XRAY_OK && path)
        status = write_page(&c, path, &err);
    if (status == XRAY_OK && text.failed)
        status = xr_fail(&err, XRAY_E_NOMEM, "out of memory");
    (void)fputs(xr_str_text(&text), stdout);
    if (status == XRAY_OK && path)
        (void)printf("\nreport %s\n", path);
    xr_str_free(&text);
    xr_comparison_free(&c);
    return status == XRAY_OK ? CLI_OK : cli_fail(status, &err);
}

/* ---- the command -------------------------------------------------------- */

static int run_compare(const cli_args *args)
{
    xr_runs runs = { .count = 0 };
    xr_errors errors = { 0 };
    xr_runs_sort(&runs, args->words.items, args->words.count, &errors);
    int code = errors.count ? cli_errors(&errors)
                            : cli_compare_report(&runs, args->metric,
                                                 args->lower, args->out);
    xr_runs_free(&runs);
    xr_errors_free(&errors);
    return code;
}

static const cli_flag flags[] = { { "--out", "FILE", CLI_TEXT, 0,
                                    offsetof(cli_args, out), NULL, 1, 0,
                                    "also write the HTML page to this file" },
                                  CLI_METRIC_FLAG,
                                  CLI_LOWER_FLAG,
                                  { 0 } };

const cli_command cli_compare = {
    .name = "compare",
    .usage = "RUN RUN... [options]",
    .summary = "compare finished runs",
    .about =
        "RUN is the folder of a run ([trainer] default_local_dir), or a folder "
        "of runs named\nseed-N, which is one variant. Other runs whose "
        "settings are equal but for the seed\nare one variant too. The first "
        "variant is the base. Runs of the same seeds are\npaired; others are "
        "compared by Welch's interval.",
    .examples = "  xray compare ab/base ab/variant --out report.html\n"
                "  xray compare checkpoints/a checkpoints/b\n",
    .flags = flags,
    .min_words = 1,
    .max_words = SIZE_MAX,
    .run = run_compare,
};
