/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan of `xray ab`: variants, seeds, folders and the number of parallel
 * runs.
 */
#ifndef XR_CLI_AB_PLAN_H
#define XR_CLI_AB_PLAN_H

#include "core/base/file.h"
#include "core/cli/cli.h"

typedef struct cli_ab_variant {
    const char *ini; /* as given */
    char *name;      /* unique, from the name of the file */
    char *resolved;  /* the resolved INI of the first seed */
    int64_t threads; /* [run] threads; 0: one per core; -1: not known yet */
    int alone;       /* needs all cores, or a device that is not the CPU */
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

/* Reads and checks all INI files, and compares them with the runs of an earlier
 * `xray ab` in the folder. Starts and writes nothing; faults are added to
 * `errors`. */
void cli_ab_plan_make(const cli_args *args, cli_ab_plan *out,
                      xr_errors *errors);
void cli_ab_plan_free(cli_ab_plan *plan);

/* The path DIR/VARIANT/seed-K, or DIR/VARIANT/seed-K/`name`. */
xray_status cli_ab_path(const cli_ab_plan *plan, size_t variant, int64_t seed,
                        const char *name, char *out_path, xr_err *err);
/* The settings that one run adds to its INI, as "section.key=value", ended by
 * NULL; cli_ab_words_free releases them. NULL when out of memory. */
char **cli_ab_sets(const cli_ab_plan *plan, size_t variant, int64_t seed);
void cli_ab_words_free(char **words);
/* Makes the folders, and writes DIR/VARIANT/run.ini if it does not exist. */
xray_status cli_ab_folders(const cli_ab_plan *plan, xr_err *err);

#endif
