/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes a run's INI: reading, decoding, and printing it so that it reads back.
 */
#include "core/config/sections.h"
#include "core/run/hosts.h"
#include "tests/fuzz/fuzz.h"

static void report_ranks(const char *name, const xr_ranks *ranks)
{
    fuzz_saw_u64(name, ranks->count);
    for (uint32_t i = 0; i < ranks->count; i++)
        fuzz_saw_u64("rank", ranks->rank[i]);
}

static xr_placement placement;

static void report_placement(const xr_run_config *run)
{
    char name[XR_HOST_NAME_CAP];
    if (!fuzz_sees() || placement.size > XR_MAX_RANKS)
        return;
    fuzz_saw_u64("most here", placement.most_here);
    fuzz_saw_u64("hosts", placement.hosts);
    fuzz_saw_u64("elsewhere", placement.elsewhere);
    report_ranks("actor", &placement.actor);
    report_ranks("reference", &placement.reference);
    report_ranks("critic", &placement.critic);
    report_ranks("reward", &placement.reward);
    report_ranks("rollout", &placement.rollout);
    for (uint32_t i = 0; i < placement.size; i++) {
        fuzz_saw_u64("host", placement.host[i]);
        fuzz_saw_u64("local", placement.local[i]);
        fuzz_saw_text("name", xr_hosts_name(run, &placement, i, name));
    }
}

/* The sections of components, whose options no table here has. */
static void ignore_components(xr_config *config)
{
    static const char *const kinds[] = { "train.", "infer.",  "algo.",
                                         "comm.",  "device.", "tracker." };
    for (size_t i = 0; xr_config_section(config, i); i++)
        for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
            if (!strncmp(xr_config_section(config, i), kinds[k],
                         strlen(kinds[k])))
                xr_config_ignore(config, xr_config_section(config, i));
}

static xr_config *decode_file(const char *path, xr_run_config *run,
                              xr_errors *errors)
{
    xr_config *config = xr_config_new();
    FUZZ_CHECK(config);
    xr_config_read(config, path, errors);
    xr_run_decode(config, run, errors);
    if (!errors->count) {
        xr_placement_read(config, run, &placement, errors);
        xr_hosts_read(config, run, &placement, errors);
    }
    for (uint32_t i = 0; i < run->run.reward.count; i++) {
        xr_reward_section reward;
        const char *name = ((const char *const *)run->run.reward.items)[i];
        xr_run_reward(config, name, &reward, errors);
    }
    ignore_components(config);
    xr_config_finish(config, errors);
    return config;
}

static void check_errors(const xr_errors *errors)
{
    for (size_t i = 0; i < errors->count; i++) {
        fuzz_saw_text("refused", errors->items[i]);
        FUZZ_CHECK(errors->items[i][0]);
        FUZZ_CHECK(!strchr(errors->items[i], '\n'));
    }
}

static void report_values(const xr_config *config)
{
    xr_config_value value;
    size_t at[2] = { 0 };
    if (!fuzz_sees())
        return;
    while (xr_config_next(config, at, &value))
        if (value.given) {
            fuzz_saw_text("section", value.section);
            fuzz_saw_text("key", value.key);
            fuzz_saw_text("value", value.text);
            fuzz_saw_text("origin", value.origin);
        }
    for (size_t i = 0; xr_config_found(config, i); i++)
        fuzz_saw_text("found", xr_config_found(config, i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    xr_run_config run = { 0 };
    xr_run_config again = { 0 };
    xr_errors errors = { 0 };
    xr_str first = { 0 };
    xr_str second = { 0 };
    xr_config *config =
        decode_file(fuzz_write("run.ini", data, size), &run, &errors);
    check_errors(&errors);
    if (!errors.count) {
        xr_config_print(config, 0, &first);
        FUZZ_CHECK(!first.failed);
        fuzz_saw("printed", xr_str_text(&first), first.size);
        report_values(config);
        report_placement(&run);
        xr_config *back =
            decode_file(fuzz_write("back.ini", xr_str_text(&first), first.size),
                        &again, &errors);
        if (errors.count)
            (void)fprintf(stderr, "%s\n%s", errors.items[0],
                          xr_str_text(&first));
        FUZZ_CHECK(!errors.count);
        xr_config_print(back, 0, &second);
        FUZZ_CHECK(strcmp(xr_str_text(&first), xr_str_text(&second)) == 0);
        xr_config_free(back);
    }
    xr_str_free(&first);
    xr_str_free(&second);
    xr_errors_free(&errors);
    xr_config_free(config);
    return 0;
}
