/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans `xray ab`: seeds, names of variants, folders, and checks of every INI
 * file.
 */
#include "core/cli/ab_plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/ab/run_folder.h"
#include "core/rl/check.h"

#define MOST_SEEDS 1000

/* ---- seeds -------------------------------------------------------------- */

static int append_seed(cli_ab_plan *plan, int64_t seed, xr_errors *errors)
{
    for (size_t i = 0; i < plan->seed_count; i++)
        if (plan->seeds[i] == seed) {
            xr_errors_add(errors, "--seed-list: %lld is listed twice",
                          (long long)seed);
            return -1;
        }
    plan->seeds[plan->seed_count++] = seed;
    return 0;
}

static void parse_seed_list(cli_ab_plan *plan, const char *list,
                            xr_errors *errors)
{
    for (const char *at = list;; at++) {
        char word[32] = "";
        size_t n = strcspn(at, ",");
        int64_t seed = 0;
        if (n < sizeof(word))
            memcpy(word, at, n);
        if (n >= sizeof(word) || xr_parse_int(word, &seed) || seed < 0) {
            xr_errors_add(errors,
                          "--seed-list takes integers of at least 0, separated "
                          "by commas, not '%.*s'",
                          (int)n, at);
            return;
        }
        if (plan->seed_count == MOST_SEEDS || append_seed(plan, seed, errors))
            return;
        at += n;
        if (!*at)
            return;
    }
}

/* The seeds of --seed-list, else --seeds many from [run] seed of the base on.
 */
static void collect_seeds(cli_ab_plan *plan, const cli_args *args,
                          xr_errors *errors)
{
    plan->seeds = xr_calloc(MOST_SEEDS, sizeof(*plan->seeds));
    if (!plan->seeds) {
        xr_errors_add(errors, "out of memory");
        return;
    }
    if (args->seed_list) {
        parse_seed_list(plan, args->seed_list, errors);
        return;
    }
    xr_errors quiet = { 0 }; /* check_variant reports them */
    xr_config *config = cli_config(args, args->words.items[0], &quiet);
    const char *text = config ? xr_config_get(config, "run", "seed") : NULL;
    int64_t first = 42;
    if (text && (xr_parse_int(text, &first) || first < 0))
        first = 42;
    for (int64_t i = 0; i < args->seeds; i++)
        plan->seeds[plan->seed_count++] = first + i;
    xr_config_free(config);
    xr_errors_free(&quiet);
}

/* ---- names and paths ---------------------------------------------------- */

static int is_name_taken(const cli_ab_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->variant_count; i++)
        if (strcmp(plan->variants[i].name, name) == 0)
            return 1;
    return 0;
}

/* "runs/lr.ini" -> "lr"; characters that a plain name lacks become '_'. */
static char *make_variant_name(const cli_ab_plan *plan, const char *ini)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrst"
                                "uvwxyz0123456789_-.";
    const char *mark = strrchr(ini, '/');
    char base[128];
    char name[160];
    (void)snprintf(base, sizeof(base), "%s", mark ? mark + 1 : ini);
    char *dot = strrchr(base, '.');
    if (dot && dot != base && strcmp(dot, ".ini") == 0)
        *dot = '\0';
    for (char *at = base; *at; at++)
        if (!strchr(plain, *at) || (at == base && *at == '.'))
            *at = '_';
    (void)snprintf(name, sizeof(name), "%s", base);
    for (unsigned n = 2; is_name_taken(plan, name); n++)
        (void)snprintf(name, sizeof(name), "%s-%u", base, n);
    return xr_strdup(name);
}

static void resolve_out_folder(cli_ab_plan *plan, const char *dir,
                               xr_errors *errors)
{
    char here[XR_PATH_CAP] = "";
    if (dir[0] != '/' && !getcwd(here, sizeof(here))) {
        xr_errors_add(errors, "the current folder: %s", strerror(errno));
        return;
    }
    int n = dir[0] == '/'
                ? snprintf(plan->dir, sizeof(plan->dir), "%s", dir)
                : snprintf(plan->dir, sizeof(plan->dir), "%s/%s", here, dir);
    if (n < 0 || (size_t)n >= sizeof(plan->dir) - 256)
        xr_errors_add(errors, "--out: the path is too long");
}

xray_status cli_ab_path(const cli_ab_plan *plan, size_t variant, int64_t seed,
                        const char *name, char *out_path, xr_err *err)
{
    int n = snprintf(out_path, XR_PATH_CAP, "%s/%s/seed-%lld%s%s", plan->dir,
                     plan->variants[variant].name, (long long)seed,
                     name ? "/" : "", name ? name : "");
    return n > 0 && n < (int)XR_PATH_CAP
               ? XRAY_OK
               : xr_fail(err, XRAY_E_RANGE, "--out: the path is too long");
}

void cli_ab_words_free(char **words)
{
    for (size_t i = 0; words && words[i]; i++)
        free(words[i]);
    free(words);
}

char **cli_ab_sets(const cli_ab_plan *plan, size_t variant, int64_t seed)
{
    char path[XR_PATH_CAP];
    char text[XR_PATH_CAP + 64];
    char **sets = xr_calloc(9, sizeof(*sets));
    size_t count = 0;
    if (!sets || cli_ab_path(plan, variant, seed, NULL, path, NULL) != XRAY_OK)
        return sets;
    (void)snprintf(text, sizeof(text), "run.seed=%lld", (long long)seed);
    sets[count++] = xr_strdup(text);
    (void)snprintf(text, sizeof(text), "trainer.default_local_dir=%s", path);
    sets[count++] = xr_strdup(text);
    (void)snprintf(text, sizeof(text), "trainer.rollout_data_dir=%s/rollout",
                   path);
    sets[count++] = xr_strdup(text);
    sets[count++] = xr_strdup("trainer.validation_data_dir=");
    sets[count++] = xr_strdup("trainer.logger=jsonl");
    sets[count++] = xr_strdup("trainer.resume_mode=auto");
    sets[count++] = xr_strdup("trainer.resume_from_path=");
    if (plan->variants[variant].threads == 0 && plan->jobs > 1) {
        size_t threads = plan->cores / plan->jobs;
        (void)snprintf(text, sizeof(text), "run.threads=%zu",
                       threads ? threads : 1);
        sets[count++] = xr_strdup(text);
    }
    for (size_t i = 0; i < count; i++)
        if (!sets[i]) {
            cli_ab_words_free(sets);
            return NULL;
        }
    return sets;
}

/* ---- checks ------------------------------------------------------------- */

/* Adds the errors that are new: a wrong option shows in every variant. */
static void add_new_errors(xr_errors *errors, const xr_errors *found)
{
    for (size_t i = 0; i < found->count; i++) {
        int seen = 0;
        for (size_t k = 0; k < errors->count && !seen; k++)
            seen = strcmp(errors->items[k], found->items[i]) == 0;
        if (!seen)
            xr_errors_add(errors, "%s", found->items[i]);
    }
}

/* Compares the settings with those of an earlier `xray ab` of this folder. */
static void compare_with_stored(const cli_ab_plan *plan,
                                const cli_ab_variant *variant,
                                xr_errors *errors)
{
    char path[XR_PATH_CAP];
    char *text = NULL;
    size_t size = 0;
    xr_err err = { "" };
    xr_settings then = { 0 };
    xr_settings now = { 0 };
    int n =
        snprintf(path, sizeof(path), "%s/%s/run.ini", plan->dir, variant->name);
    if (n < 0 || n >= (int)sizeof(path) || !xr_path_exists(path))
        return;
    xray_status status =
        xr_file_read(path, (size_t)1 << 24, &err, &text, &size);
    if (status == XRAY_OK)
        status = xr_settings_parse(text, path, &err, &then);
    if (status == XRAY_OK)
        status = xr_settings_parse(variant->resolved, variant->ini, &err, &now);
    const char *a = NULL;
    const char *b = NULL;
    const char *key =
        status == XRAY_OK ? xr_settings_differ(&then, &now, &a, &b) : NULL;
    const char *dot = key ? strrchr(key, '.') : NULL;
    if (status != XRAY_OK)
        xr_errors_add(errors, "%s", err.text);
    else if (key)
        xr_errors_add(errors,
                      "%s: [%.*s] %s is %s, but the runs in %s/%s were started "
                      "with %s; choose another --out for the changed variant",
                      variant->ini, (int)(dot - key), key, dot + 1,
                      b ? b : "not set", plan->args->out, variant->name,
                      a ? a : "no value");
    xr_settings_free(&then);
    xr_settings_free(&now);
    free(text);
}

/* Compares the job with that of the runs in the folder; without a file that
 * names it, they are runs of `xray train`. */
static void compare_stored_job(const cli_ab_plan *plan, xr_errors *errors)
{
    char path[XR_PATH_CAP];
    char *text = NULL;
    size_t size = 0;
    if (!plan->variant_count ||
        xr_path_join(plan->dir, plan->variants[0].name, path, sizeof(path),
                     NULL) != XRAY_OK ||
        !xr_path_exists(path) ||
        xr_path_join(plan->dir, "job", path, sizeof(path), NULL) != XRAY_OK)
        return;
    (void)xr_file_read(path, 16, NULL, &text, &size);
    const char *then = text ? text : "train";
    if (strcmp(then, plan->args->job) != 0)
        xr_errors_add(errors,
                      "--job %s: the runs in %s were started with --job %s; "
                      "choose another --out",
                      plan->args->job, plan->args->out, then);
    free(text);
}

static void store_resolved_ini(cli_ab_variant *variant, const xr_run *s,
                               const xr_config *config)
{
    xr_str text = { 0 };
    xr_config_print(config, 0, &text);
    if (!text.failed)
        variant->resolved = xr_strdup(xr_str_text(&text));
    xr_str_free(&text);
    variant->threads = s->ini.run.threads;
    variant->alone = !variant->threads || strcmp(s->ini.run.device, "cpu") != 0;
}

static void check_variant(cli_ab_plan *plan, size_t i, const cli_args *args,
                          xr_errors *errors)
{
    cli_ab_variant *variant = &plan->variants[i];
    xr_errors found = { 0 };
    xr_errors warnings = { 0 };
    xr_str text = { 0 };
    xr_run *run = NULL;
    xr_config *config = cli_config(args, variant->ini, &found);
    char **sets =
        plan->seed_count ? cli_ab_sets(plan, i, plan->seeds[0]) : NULL;
    for (size_t k = 0; config && sets && sets[k]; k++)
        xr_config_set(config, sets[k], &found);
    if (config)
        run = xr_run_draft(config, args->plugin_path, cli_job_parts(args->job),
                           &found);
    if (run) {
        run->in_comparison = 1;
        xr_check_run(run, &text, &found, &warnings);
    }
    if (run && !found.count) {
        store_resolved_ini(variant, run, config);
        if (variant->resolved)
            compare_with_stored(plan, variant, &found);
        else
            xr_errors_add(&found, "out of memory");
    }
    for (size_t k = 0; k < warnings.count; k++)
        cli_say("%s: warning: %s", variant->name, warnings.items[k]);
    add_new_errors(errors, &found);
    cli_ab_words_free(sets);
    xr_run_free(run);
    xr_config_free(config);
    xr_str_free(&text);
    xr_errors_free(&warnings);
    xr_errors_free(&found);
}

static void choose_parallel_jobs(cli_ab_plan *plan, const cli_args *args)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t runs = plan->variant_count * plan->seed_count;
    int64_t threads = 1;
    int alone = 0;
    plan->cores = cores > 0 ? (size_t)cores : 1;
    for (size_t i = 0; i < plan->variant_count; i++) {
        alone |= plan->variants[i].alone;
        if (plan->variants[i].threads > threads)
            threads = plan->variants[i].threads;
    }
    plan->jobs = alone ? 1 : plan->cores / (size_t)threads;
    if (args->jobs > 0)
        plan->jobs = (size_t)args->jobs;
    if (plan->jobs > runs)
        plan->jobs = runs;
    if (!plan->jobs)
        plan->jobs = 1;
}

void cli_ab_plan_make(const cli_args *args, cli_ab_plan *out, xr_errors *errors)
{
    *out = (cli_ab_plan){ .args = args, .jobs = 1 };
    resolve_out_folder(out, args->out, errors);
    collect_seeds(out, args, errors);
    out->variants = xr_calloc(args->words.count, sizeof(*out->variants));
    if (!out->variants) {
        xr_errors_add(errors, "out of memory");
        return;
    }
    for (size_t i = 0; i < args->words.count; i++) {
        char *name = make_variant_name(out, args->words.items[i]);
        if (!name) {
            xr_errors_add(errors, "out of memory");
            return;
        }
        out->variants[out->variant_count++] = (cli_ab_variant){
            .ini = args->words.items[i], .name = name, .threads = -1
        };
    }
    for (size_t i = 0; i < out->variant_count; i++)
        check_variant(out, i, args, errors);
    compare_stored_job(out, errors);
    choose_parallel_jobs(out, args);
}

void cli_ab_plan_free(cli_ab_plan *plan)
{
    for (size_t i = 0; i < plan->variant_count; i++) {
        free(plan->variants[i].name);
        free(plan->variants[i].resolved);
    }
    free(plan->variants);
    free(plan->seeds);
    *plan = (cli_ab_plan){ .variant_count = 0 };
}

/* ---- folders ------------------------------------------------------------ */

xray_status cli_ab_folders(const cli_ab_plan *plan, xr_err *err)
{
    char path[XR_PATH_CAP];
    const char *job = plan->args->job;
    xray_status status =
        xr_path_join(plan->dir, "job", path, sizeof(path), err);
    if (status == XRAY_OK)
        status = xr_file_write(path, job, strlen(job), err);
    for (size_t v = 0; status == XRAY_OK && v < plan->variant_count; v++) {
        for (size_t i = 0; status == XRAY_OK && i < plan->seed_count; i++) {
            status = cli_ab_path(plan, v, plan->seeds[i], NULL, path, err);
            if (status == XRAY_OK)
                status = xr_dir_make(path, err);
        }
        int n = snprintf(path, sizeof(path), "%s/%s/run.ini", plan->dir,
                         plan->variants[v].name);
        if (n < 0 || n >= (int)sizeof(path))
            return xr_fail(err, XRAY_E_RANGE, "--out: the path is too long");
        const char *text = plan->variants[v].resolved;
        if (status == XRAY_OK && !xr_path_exists(path))
            status = xr_file_write(path, text, strlen(text), err);
    }
    return status;
}
