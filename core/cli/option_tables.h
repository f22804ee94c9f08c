/* SPDX-License-Identifier: Apache-2.0
 *
 * The option tables of the core and of every plugin on the search path, for the
 * commands that print all of them.
 */
#ifndef XR_CLI_OPTION_TABLES_H
#define XR_CLI_OPTION_TABLES_H

#include <xray/plugin.h>

#include "core/base/str.h"
#include "core/cli/cli.h"
#include "core/plugin/plugin.h"

/* The core's section of which every reward is an instance. */
#define CLI_REWARD_SECTION "reward.NAME"

xr_table cli_table_of(const xray_component *component);
/* 1 for a training backend, which has sections per role, too. */
int cli_is_trainer(const xray_component *component);
/* Returns what precedes a backend's section for a role: "ref.", "critic.",
 * "reward.", and NULL after them. */
const char *cli_role_prefix(size_t i);
int cli_is_reward(const xray_component *component);
/* "train.NAME" of xray.train/0:NAME. */
void cli_put_section_name(const xray_component *component, xr_str *out);

typedef struct cli_tables {
    xr_str *out;
    xr_plugins *plugins;
} cli_tables;

/* Calls `f` for each component of each plugin that loads, in the order of the
 * plugins' names; refused plugins are skipped. The core's own reward comes
 * last, with `plugin` NULL. */
void cli_each_component(const cli_tables *tables,
                        void (*f)(const char *plugin, const xray_component *c,
                                  xr_str *out));

/* Opens the plugins and prints what `put` appends. Returns the exit code. */
int cli_print_tables(const cli_args *args, void (*put)(const cli_tables *));

#endif
