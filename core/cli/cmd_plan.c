/* SPDX-License-Identifier: Apache-2.0
 *
 * xray plan: prints the memory and compute of a run, from the plans of its
 * plugins.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/str.h"
#include "core/cli/cli.h"
#include "core/cli/inspect.h"
#include "core/cli/plan_time.h"
#include "core/roles/roles.h"
#include "core/run/resources.h"

#define SAMPLING_FORMULA "2 x parameters x (prompt + response tokens)"
#define REFERENCE_FORMULA "2 x parameters x tokens"
#define CRITIC_FORMULA "(2 + 6 x its epochs) x parameters x tokens"
#define UPDATE_FORMULA "6 x parameters x tokens computed x epochs"

/* ---- text --------------------------------------------------------------- */

static void put_memory_row(const char *name, const uint64_t *bytes,
                           size_t count, uint64_t all, xr_str *out)
{
    char text[XR_BYTES_CAP];
    xr_str_printf(out, "%-12s", name);
    for (size_t i = 0; i < count; i++)
        xr_str_printf(out, " %14s",
                      bytes[i] ? xr_bytes_text(bytes[i], text) : "-");
    xr_str_printf(out, " %14s\n", xr_bytes_text(all, text));
}

static void put_memory_table(const xr_resources *r, xr_str *out)
{
    uint64_t bytes[XR_PLANS] = { 0 };
    xr_str_printf(out, "%-12s", "memory");
    for (size_t p = 0; p < r->count; p++)
        xr_str_printf(out, " %14s", r->parts[p].who);
    xr_str_printf(out, " %14s\n", "all");
    for (size_t t = 0; t < XRAY_TAG_COUNT; t++) {
        for (size_t p = 0; p < r->count; p++)
            bytes[p] = r->parts[p].plan.bytes[t];
        if (r->tags[t])
            put_memory_row(xr_tag_name(t), bytes, r->count, r->tags[t], out);
    }
    for (size_t p = 0; p < r->count; p++)
        bytes[p] = r->parts[p].bytes;
    put_memory_row("all", bytes, r->count, r->bytes, out);
}

static void put_machine_lines(const xr_run *s, const xr_resources *r,
                              xr_str *out)
{
    char text[XR_BYTES_CAP];
    if (r->machine.memory_bytes) {
        xr_str_printf(out, "machine       %s, %s of %s memory",
                      s->device.instance,
                      xr_bytes_text(r->machine.memory_bytes, text),
                      r->machine.host_memory ? "host" : "device");
        xr_str_printf(out, ", %.0f %% planned\n",
                      100.0 * (double)r->bytes /
                          (double)r->machine.memory_bytes);
    }
    for (size_t p = 0; p < r->count; p++)
        if (r->parts[p].plan.offloaded)
            xr_str_printf(out, "host          %s of moments of %s on a rank\n",
                          xr_bytes_text(r->parts[p].plan.offloaded, text),
                          r->parts[p].who);
    if (r->checkpoint_bytes)
        xr_str_printf(out, "checkpoint    %s\n",
                      xr_bytes_text(r->checkpoint_bytes, text));
}

/* A line for each model of which one rank does not hold all. */
static void put_layout_lines(const xr_run *s, const xr_resources *r,
                             xr_str *out)
{
    char axes[XR_AXES_CAP];
    for (size_t p = 0; p < r->count; p++) {
        const xr_layout *layout = xr_run_layout(s, r->parts[p].role);
        if (r->parts[p].role && layout->width > 1)
            xr_str_printf(out, "ranks         %s: %u replicas of %u (%s)\n",
                          r->parts[p].who, layout->replicas, layout->width,
                          xr_axes_text(layout, axes));
    }
}

static void put_turns_line(const xr_resources *r, xr_str *out)
{
    char text[XR_BYTES_CAP];
    for (size_t i = 0; i < r->turn_count; i++)
        xr_str_printf(out, "%s%s %s", i ? ", " : "at once       ",
                      r->turns[i].who, xr_bytes_text(r->turns[i].bytes, text));
    if (r->turn_count)
        xr_str_puts(out, "\n");
}

static void put_step_lines(const xr_run *s, const xr_step_size *z, xr_str *out)
{
    int sft = !(s->with & XR_WITH_ALGO);
    if (sft)
        xr_str_printf(out, "a step        %" PRIu64 " rows\n", z->rows);
    else
        xr_str_printf(out,
                      "a step        %" PRIu64 " prompts x %" PRIu64
                      " samples = %" PRIu64 " rows\n",
                      z->prompts, z->samples, z->rows);
    xr_str_printf(out,
                  "tokens        at most %" PRIu64 " x %" PRIu64 " = %" PRIu64,
                  z->rows, z->row_tokens, z->tokens);
    if (z->computed != z->tokens)
        xr_str_printf(out, ", %" PRIu64 " computed in gradients", z->computed);
    xr_str_puts(out, "\n");
    xr_str_printf(out,
                  "updates       %" PRIu64 " epochs x %" PRIu64
                  " mini-batches of %" PRIu64 " rows, each at most %" PRIu64
                  " micro-batches of %" PRIu64 " tokens\n",
                  z->epochs, z->mini_batches, z->mini_rows, z->micro_batches,
                  z->micro_tokens);
    if (z->sampling_flops > 0)
        xr_str_printf(out, "sampling      %.3g FLOPs: " SAMPLING_FORMULA "\n",
                      z->sampling_flops);
    if (z->reference_flops > 0)
        xr_str_printf(out, "reference     %.3g FLOPs: " REFERENCE_FORMULA "\n",
                      z->reference_flops);
    if (z->critic_flops > 0)
        xr_str_printf(out, "critic        %.3g FLOPs: " CRITIC_FORMULA "\n",
                      z->critic_flops);
    if (z->update_flops > 0)
        xr_str_printf(out, "update        %.3g FLOPs: " UPDATE_FORMULA "\n",
                      z->update_flops);
}

/* `machine`: where times are predicted for; NULL: nowhere. */
static void put_plan_text(const xr_run *s, const xr_resources *r,
                          const xr_machine *machine, xr_str *out)
{
    xr_step_size step;
    xr_step_size_of(s, r, &step);
    if (r->parameters)
        xr_str_printf(out, "parameters    %" PRIu64 "\n", r->parameters);
    put_machine_lines(s, r, out);
    put_layout_lines(s, r, out);
    put_turns_line(r, out);
    if (step.rows)
        put_step_lines(s, &step, out);
    xr_str_puts(out, "\n");
    put_memory_table(r, out);
    if (machine) {
        xr_prediction prediction;
        xr_predict(s, r, machine, &prediction);
        cli_put_time_text(machine, &prediction, out);
    }
}

/* ---- JSON --------------------------------------------------------------- */

static void put_count_member(const char *name, uint64_t value, xr_str *out)
{
    xr_str_printf(out, ",\"%s\":%" PRIu64, name, value);
}

static void put_tags_member(const uint64_t *tags, uint64_t all, xr_str *out)
{
    xr_str_puts(out, "\"bytes\":{");
    for (size_t t = 0; t < XRAY_TAG_COUNT; t++)
        xr_str_printf(out, "\"%s\":%" PRIu64 ",", xr_tag_name(t), tags[t]);
    xr_str_printf(out, "\"all\":%" PRIu64 "}", all);
}

static void put_layout_json(const xr_layout *layout, xr_str *out)
{
    xr_str_printf(out, ",\"replicas\":%u,\"width\":%u,\"axes\":{",
                  layout->replicas, layout->width);
    for (uint32_t i = 0; i < layout->axis_count; i++) {
        const char *name = layout->axes[i].name;
        xr_str_puts(out, i ? "," : "");
        xr_str_json(out, name, strlen(name));
        xr_str_printf(out, ":%u", layout->axes[i].size);
    }
    xr_str_puts(out, "}");
}

static void put_instances_json(const xr_run *s, const xr_resources *r,
                               xr_str *out)
{
    xr_str_puts(out, ",\n \"instances\":[");
    for (size_t p = 0; p < r->count; p++) {
        xr_str_puts(out, p ? ",\n  {" : "\n  {");
        cli_json_member("name", r->parts[p].who, out);
        xr_str_puts(out, ",");
        put_tags_member(r->parts[p].plan.bytes, r->parts[p].bytes, out);
        const xr_layout *layout = xr_run_layout(s, r->parts[p].role);
        if (r->parts[p].role && layout->width > 1)
            put_layout_json(layout, out);
        xr_str_puts(out, "}");
    }
    xr_str_puts(out, "],\n ");
    put_tags_member(r->tags, r->bytes, out);
    if (!r->turn_count)
        return;
    xr_str_puts(out, ",\n \"turns\":{");
    for (size_t i = 0; i < r->turn_count; i++) {
        xr_str_puts(out, i ? "," : "");
        xr_str_json(out, r->turns[i].who, strlen(r->turns[i].who));
        xr_str_printf(out, ":%" PRIu64, r->turns[i].bytes);
    }
    xr_str_puts(out, "}");
}

static void put_flops_member(const char *name, double value,
                             const char *formula, xr_str *out)
{
    xr_str_printf(out, "\"%s\":{\"flops\":", name);
    xr_str_number(out, value);
    xr_str_puts(out, ",");
    cli_json_member("formula", formula, out);
    xr_str_puts(out, "}");
}

static void put_step_json(const xr_step_size *z, xr_str *out)
{
    xr_str_printf(out, ",\n \"step\":{\"prompts\":%" PRIu64, z->prompts);
    put_count_member("samples", z->samples, out);
    put_count_member("rows", z->rows, out);
    put_count_member("row_tokens", z->row_tokens, out);
    put_count_member("tokens", z->tokens, out);
    put_count_member("computed_tokens", z->computed, out);
    put_count_member("epochs", z->epochs, out);
    put_count_member("mini_batches", z->mini_batches, out);
    put_count_member("mini_rows", z->mini_rows, out);
    put_count_member("micro_batches", z->micro_batches, out);
    put_count_member("micro_tokens", z->micro_tokens, out);
    xr_str_puts(out, ",\n  ");
    put_flops_member("sampling", z->sampling_flops, SAMPLING_FORMULA, out);
    xr_str_puts(out, ",\n  ");
    put_flops_member("reference", z->reference_flops, REFERENCE_FORMULA, out);
    xr_str_puts(out, ",\n  ");
    put_flops_member("critic", z->critic_flops, CRITIC_FORMULA, out);
    xr_str_puts(out, ",\n  ");
    put_flops_member("update", z->update_flops, UPDATE_FORMULA, out);
    xr_str_puts(out, "}");
}

static void put_plan_json(const xr_run *s, const xr_resources *r,
                          const xr_machine *machine, xr_str *out)
{
    xr_step_size step;
    xr_step_size_of(s, r, &step);
    xr_str_printf(out, "{\"parameters\":%" PRIu64 ",\n \"machine\":{",
                  r->parameters);
    cli_json_member("device", s->device.instance, out);
    put_count_member("memory_bytes", r->machine.memory_bytes, out);
    xr_str_printf(out, ",\"host_memory\":%s}",
                  r->machine.host_memory ? "true" : "false");
    put_instances_json(s, r, out);
    xr_str_printf(out, ",\n \"checkpoint_bytes\":%" PRIu64,
                  r->checkpoint_bytes);
    if (step.rows)
        put_step_json(&step, out);
    if (machine) {
        xr_prediction prediction;
        xr_predict(s, r, machine, &prediction);
        cli_put_time_json(machine, &prediction, out);
    }
    xr_str_puts(out, "}\n");
}

/* ---- the command -------------------------------------------------------- */

static int print_plan(xr_run *s, const cli_args *args,
                      const xr_machine *machine, xr_errors *errors)
{
    xr_resources r;
    xr_err err = { "" };
    xr_str out = { 0 };
    xr_roles_try(s, errors);
    xr_resources_plan(s, errors, &r);
    if (errors->count)
        return cli_errors(errors);
    if (args->json)
        put_plan_json(s, &r, machine, &out);
    else
        put_plan_text(s, &r, machine, &out);
    (void)fputs(xr_str_text(&out), stdout);
    int code = out.failed ? CLI_FAILED : CLI_OK;
    if (out.failed)
        cli_say("out of memory");
    xr_str_free(&out);
    /* A plan that does not fit is printed, too, since that is its purpose. */
    int found = xr_resources_check_memory(s, &r, &err);
    if (found)
        cli_say("%s%s", found == 1 ? "warning: " : "", err.text);
    return found == 2 ? CLI_USAGE : code;
}

static int run_plan(const cli_args *args)
{
    xr_errors errors = { 0 };
    xr_run *run = NULL;
    xr_machine machine;
    xr_err err = { "" };
    if (args->machine &&
        xr_machine_read(args->machine, &err, &machine) != XRAY_OK)
        return cli_fail(XRAY_E_CONFIG, &err);
    xr_config *config = cli_config(args, args->words.items[0], &errors);
    if (config)
        run = xr_run_new(config, args->plugin_path, cli_job_parts(args->job),
                         &errors);
    if (run)
        xr_run_say_found(run);
    int code =
        run ? print_plan(run, args, args->machine ? &machine : NULL, &errors)
            : cli_errors(&errors);
    xr_run_free(run);
    xr_config_free(config);
    xr_errors_free(&errors);
    return code;
}

static const cli_flag flags[] = {
    { "--json", NULL, CLI_SWITCH, 0, offsetof(cli_args, json), NULL, 1, 0,
      "as a JSON object" },
    { "--machine", "NAME[,FIGURE=VALUE...]", CLI_TEXT, 0,
      offsetof(cli_args, machine), NULL, 1, 0,
      "predict times on h100, h200 or by figures" },
    CLI_JOB_FLAG,
    CLI_SET_FLAG,
    CLI_PLUGIN_PATH_FLAG,
    CLI_LOG_FLAG,
    { 0 }
};

const cli_command cli_plan = {
    .name = "plan",
    .usage = "RUN.INI [options]",
    .summary = "memory, checkpoint size, work and time of a step",
    .about = "Prints the needs of a run without running it: bytes per tag of "
             "each instance, as the\nplugins plan them, and the machine's "
             "memory; bytes of a checkpoint; at most how many\nrows, tokens "
             "and floating-point operations a step has. With --machine, how "
             "long a step\nwould take there, with every row at its longest: an "
             "estimate (docs/time.md). Exit code\n2 if the run does not fit.",
    .examples = "  xray plan run.ini\n  xray plan run.ini --json --set "
                "rollout.n=16\n  xray plan run.ini --machine h200\n  xray plan "
                "run.ini --machine flops32=4e11,memory=3e10\n",
    .flags = flags,
    .min_words = 1,
    .max_words = 1,
    .run = run_plan,
};
