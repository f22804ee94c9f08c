/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures how many samples a reward scores in a second: bench-rewards REWARD
 * [COUNT [KEY=VALUE ...]], where the keys are those of its section. The first
 * round, in which caches fill, is left out; the best of the others counts.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/file.h"
#include "core/roles/create.h"
#include "core/roles/rewards.h"

#define ROUNDS 5

static xr_roles *open_rewards(const char *name, char **keys, int count)
{
    char text[1024];
    xr_err err = { "" };
    xr_errors errors = { 0 };
    xr_roles *roles = NULL;
    xr_config *config = xr_config_new();
    (void)snprintf(text, sizeof(text), "run.reward=%s", name);
    if (config)
        xr_config_set(config, text, &errors);
    for (int i = 0; config && i < count; i++) {
        (void)snprintf(text, sizeof(text), "reward.%s.%s", name, keys[i]);
        xr_config_set(config, text, &errors);
    }
    xr_run *run =
        config ? xr_run_new(config, NULL, XR_WITH_REWARD, &errors) : NULL;
    for (size_t i = 0; i < errors.count; i++)
        (void)fprintf(stderr, "%s\n", errors.items[i]);
    if (!run || errors.count)
        return NULL;
    if (xr_roles_start(run, &err, &roles) != XRAY_OK)
        (void)fprintf(stderr, "%s\n", err.text);
    return roles;
}

int main(int argc, char **argv)
{
    xr_err err = { "" };
    size_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000;
    xr_roles *roles =
        argc > 1 ? open_rewards(argv[1], argv + 3, argc > 3 ? argc - 3 : 0)
                 : NULL;
    xray_sample_in *samples = xr_calloc(count, sizeof(*samples));
    xr_score *scores = xr_calloc(count, sizeof(*scores));
    double best = 0;
    if (!roles || !samples || !scores)
        return 1;
    for (size_t i = 0; i < count; i++)
        samples[i] = (xray_sample_in){ .header = XRAY_HEADER(xray_sample_in),
                                       .id = i,
                                       .prompt = "",
                                       .response = "so #### 18",
                                       .response_size = 10,
                                       .ground_truth = "18",
                                       .data_source = "",
                                       .fields_json = "{}" };
    for (int round = 0; round < ROUNDS; round++) {
        double start = xr_now();
        if (xr_rewards_score(roles, samples, count, scores, NULL, NULL, NULL,
                             &err) != XRAY_OK) {
            (void)fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        double taken = xr_now() - start;
        best = round == 0 || (round > 1 && best < taken) ? best : taken;
    }
    (void)printf("%zu samples in %.4f s\n", count, best);
    xr_roles_free(roles);
    free(samples);
    free(scores);
    return 0;
}
