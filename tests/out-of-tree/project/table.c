/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes and stores the policy's table of logits, which both backends share.
 */
#include "table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void table_logp(const float *table, uint32_t vocab, int32_t previous,
                float temperature, float *logp)
{
    const float *z = table + (size_t)previous * vocab;
    double most = -HUGE_VAL;
    double sum = 0;
    for (uint32_t i = 0; i < vocab; i++)
        most = fmax(most, (double)z[i] / (double)temperature);
    for (uint32_t i = 0; i < vocab; i++)
        sum += exp((double)z[i] / (double)temperature - most);
    for (uint32_t i = 0; i < vocab; i++)
        logp[i] = (float)((double)z[i] / (double)temperature - most - log(sum));
}

/* Both backends report it; the host knows that it is about a file and shows it
 * once. */
static xray_status refuse_model(const xray_host *host, const xray_model *model)
{
    char file[4096];
    (void)snprintf(file, sizeof(file), "%s/config.json", model->path);
    const xray_location location = { .header = XRAY_HEADER(xray_location),
                                     .file = file };
    if (!XRAY_HAS(xray_host, host, fail_at))
        return host->fail(host, XRAY_E_CONFIG, "plan",
                          "config.json: model_type is not table");
    return host->fail_at(host, XRAY_E_CONFIG, "plan", &location,
                         ": model_type is not table");
}

xray_status table_plan(const xray_host *host, const void *config,
                       const xray_model *model, const xray_world *world,
                       const xray_workload *load, xray_plan *out)
{
    (void)config;
    (void)load;
    if (!model->config_json || !strstr(model->config_json, "\"table\""))
        return refuse_model(host, model);
    if (world->size > 1)
        return host->fail(host, XRAY_E_CONFIG, __func__,
                          "a table runs on one rank");
    xray_plan own = { .header = XRAY_HEADER(xray_plan),
                      .micro_multiple = 1,
                      .token_multiple = 1 };
    own.bytes[XRAY_TAG_WEIGHTS] =
        sizeof(float) * (uint64_t)model->vocab_size * model->vocab_size;
    xray_fill(out, &own);
    return XRAY_OK;
}

static FILE *open_file(const char *dir, const char *mode)
{
    char path[4096];
    int size = snprintf(path, sizeof(path), "%s/table.bin", dir);
    return size > 0 && (size_t)size < sizeof(path) ? fopen(path, mode) : NULL;
}

xray_status table_read(const xray_host *host, const char *dir, float *table,
                       uint64_t count)
{
    FILE *file = open_file(dir, "rb");
    size_t got = file ? fread(table, sizeof(*table), count, file) : 0;
    if (file)
        (void)fclose(file);
    return got == count ? XRAY_OK
                        : host->fail(host, XRAY_E_IO, __func__,
                                     "table.bin is missing or too short");
}

xray_status table_write(const xray_host *host, const char *dir,
                        const float *table, uint64_t count)
{
    FILE *file = open_file(dir, "wb");
    size_t put = file ? fwrite(table, sizeof(*table), count, file) : 0;
    int closed = file ? fclose(file) : -1;
    return put == count && closed == 0
               ? XRAY_OK
               : host->fail(host, XRAY_E_IO, __func__,
                            "table.bin cannot be written");
}
