/* SPDX-License-Identifier: Apache-2.0
 *
 * What xray ab is asked to run: variants, seeds, folders.
 */
#ifndef XR_CLI_AB_PLAN_H
#define XR_CLI_AB_PLAN_H

#include "core/base/file.h"
#include "core/cli/cli.h"

typedef struct cli_ab_variant {
    const char *ini; /* as given */
    char *name;      /* its base name, made unique */
    char *resolved;  /* the INI in force, of the first seed */
    int64_t threads; /* [run] threads; 0: one a core; -1: not known yet */
    int alone;       /* takes a whole machine, or a device that is no CPU */
} cli_ab_variant;

typedef struct cli_ab_plan {
    const cli_args *args;
    char dir[XR_PATH_CAP]; /* absolute */
    cli_ab_variant *variants;
    size_t variant_count;
    int64_t *seeds;
    size_t seed_count;
    size_t jobs;
    size_t cores;
} cli_ab_plan;

/* Reads and checks all INIs, and what an earlier xray ab left in the folder;
 * starts and writes nothing. Everything wrong goes to `errors`. */
void cli_ab_plan_make(const cli_args *args, cli_ab_plan *out,
                      xr_errors *errors);
void cli_ab_plan_free(cli_ab_plan *plan);

/* DIR/VARIANT/seed-K with `name` behind it (NULL: none). */
xray_status cli_ab_path(const cli_ab_plan *plan, size_t variant, int64_t seed,
                        const char *name, char *out_path, xr_err *err);
/* Settings of one run above those of the INI, as "section.key=value"; each is
 * freed by the caller, NULL ends them; NULL when out of memory. */
char **cli_ab_sets(const cli_ab_plan *plan, size_t variant, int64_t seed);
void cli_ab_words_free(char **words);
/* Makes the folders and writes DIR/VARIANT/run.ini where there is none. */
xray_status cli_ab_folders(const cli_ab_plan *plan, xr_err *err);

#endif
