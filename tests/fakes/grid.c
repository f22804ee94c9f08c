/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes distributions by halves, and communicates and stores the tables of a
 * model that is cut over ranks.
 */
#include "tests/fakes/grid.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <xray/numerics.h>
#include <xray/plugin.h>

/* ---- numbers ------------------------------------------------------------- */

grid_rows grid_half(uint32_t vocab, uint32_t half)
{
    uint32_t middle = (vocab + 1) / 2;
    return half ? (grid_rows){ middle, vocab } : (grid_rows){ 0, middle };
}

float grid_logit(const float *hidden, const float *row)
{
    float sum = 0;
    for (uint32_t k = 0; k < HIDDEN; k++)
        sum += hidden[k] * row[k];
    return sum;
}

grid_part grid_summarize(const float *logits, grid_rows rows,
                         double temperature, uint32_t target)
{
    grid_part part = { .most = -HUGE_VAL };
    for (uint32_t v = rows.first; v < rows.end; v++)
        part.most =
            fmax(part.most, (double)logits[v - rows.first] / temperature);
    for (uint32_t v = rows.first; v < rows.end; v++) {
        double x = (double)logits[v - rows.first] / temperature;
        double e = exp(x - part.most);
        part.sum += e;
        part.weighted += e * x;
        if (v == target)
            part.target = x;
    }
    return part;
}

grid_joined grid_join(const grid_part *low, const grid_part *high)
{
    double most = fmax(low->most, high->most);
    double a = exp(low->most - most);
    double b = exp(high->most - most);
    double sum = low->sum * a + high->sum * b;
    grid_joined out = { .log_sum = most + log(sum) };
    out.logp = low->target + high->target - out.log_sum;
    out.entropy = out.log_sum - (low->weighted * a + high->weighted * b) / sum;
    return out;
}

/* ---- ranks --------------------------------------------------------------- */

/* Finds the sub-group of a name, which must have `size` ranks. An engine plans
 * no stages, so it has no sub-group of them. */
static xray_status find_subgroup(const grid_world *world,
                                 const xray_world *from, const char *name,
                                 uint64_t size, xray_subgroup *out)
{
    const unsigned char *at = (const unsigned char *)from->subgroups;
    char text[128];
    for (uint32_t i = 0; i < from->subgroup_count;
         i++, at += from->subgroup_stride) {
        const xray_subgroup *one = (const xray_subgroup *)(const void *)at;
        if (strcmp(one->name, name) == 0 && one->size == size &&
            one->rank < one->size && (one->size > 1) == (one->group != NULL)) {
            *out = *one;
            return XRAY_OK;
        }
    }
    *out = (xray_subgroup){ .name = name, .size = 1 };
    if (size == 1 && strcmp(name, XRAY_AXIS_PIPELINE) == 0)
        return XRAY_OK;
    (void)snprintf(text, sizeof(text), "no sub-group %s of %u ranks", name,
                   (unsigned)size);
    return world->host->fail(world->host, XRAY_E_BUG, "create", text);
}

xray_status grid_open_world(const xray_setup *setup, const grid_config *config,
                            grid_world *out)
{
    const xray_world *from = setup->world;
    uint64_t width = (uint64_t)(config->tp * config->pp);
    *out = (grid_world){ .host = setup->host,
                         .device = setup->device,
                         .device_self = setup->device_self,
                         .comm = from->comm };
    const struct {
        const char *name;
        uint64_t size;
        xray_subgroup *to;
    } wanted[] = {
        { XRAY_AXIS_TENSOR, (uint64_t)config->tp, &out->tp },
        { XRAY_AXIS_PIPELINE, (uint64_t)config->pp, &out->pp },
        { XRAY_AXIS_DATA, from->size / width, &out->data },
        { XRAY_AXIS_REPLICA, width, &out->replica },
    };
    xray_status status = XRAY_OK;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        if (status == XRAY_OK)
            status = find_subgroup(out, from, wanted[i].name, wanted[i].size,
                                   wanted[i].to);
    if (status != XRAY_OK)
        return status;
    /* tp is the fastest axis, then pp, then the replicas. */
    uint64_t rank = out->data.rank * width +
                    out->pp.rank * (uint64_t)config->tp + out->tp.rank;
    if (rank != from->rank || out->replica.rank != rank % width ||
        !from->global_ranks)
        return setup->host->fail(setup->host, XRAY_E_BUG, "create",
                                 "the ranks of the axes are wrong");
    return XRAY_OK;
}

xray_status grid_alloc(const grid_world *world, const char *owner, uint32_t tag,
                       uint64_t bytes, void **out)
{
    return world->device->alloc(world->device_self, owner, tag, bytes, out);
}

xray_status grid_gather(const grid_world *world, const xray_subgroup *group,
                        const void *mine, void *all, uint64_t bytes)
{
    if (group->size == 1) {
        memmove(all, mine, bytes);
        return XRAY_OK;
    }
    xray_status status = world->comm->all_gather(
        group->group, NULL, mine, all, bytes / sizeof(float), XRAY_F32);
    return status == XRAY_OK ? world->device->sync(world->device_self, NULL)
                             : status;
}

/* ---- files --------------------------------------------------------------- */

static FILE *open_file(const char *dir, const char *mode)
{
    char path[4096];
    int size = snprintf(path, sizeof(path), "%s/grid.bin", dir);
    return size > 0 && (size_t)size < sizeof(path) ? fopen(path, mode) : NULL;
}

xray_status grid_read(const xray_host *host, const char *dir, float *tables,
                      uint64_t count, uint64_t *out_version)
{
    FILE *file = open_file(dir, "rb");
    size_t got = file ? fread(out_version, sizeof(*out_version), 1, file) : 0;
    if (got == 1)
        got = fread(tables, sizeof(*tables), count, file);
    if (file)
        (void)fclose(file);
    return got == count ? XRAY_OK
                        : host->fail(host, XRAY_E_IO, __func__,
                                     "grid.bin is missing or too short");
}

xray_status grid_start(const xray_host *host, const xray_model *model,
                       float *tables)
{
    const uint64_t count = (uint64_t)STAGES * model->vocab_size * HIDDEN;
    uint64_t version = 0;
    if (!model->random_init)
        return grid_read(host, model->path, tables, count, &version);
    for (uint64_t i = 0; i < count; i++)
        tables[i] =
            xray_unit(xray_philox(model->seed, (uint32_t)i, 0, 0, 0).w[0]) -
            0.5f;
    return XRAY_OK;
}

xray_status grid_write(const xray_host *host, const char *dir,
                       const float *tables, uint64_t count, uint64_t version)
{
    FILE *file = open_file(dir, "wb");
    size_t put = file ? fwrite(&version, sizeof(version), 1, file) : 0;
    if (put == 1)
        put = fwrite(tables, sizeof(*tables), count, file);
    int closed = file ? fclose(file) : -1;
    return put == count && closed == 0
               ? XRAY_OK
               : host->fail(host, XRAY_E_IO, __func__,
                            "grid.bin cannot be written");
}

/* ---- the plugin ---------------------------------------------------------- */

static const xray_option train_options[] = {
    XRAY_INT(grid_config, tp, "1", 1, 2, NULL, 0u, "0.2",
             "Ranks that share the vocabulary."),
    XRAY_INT(grid_config, pp, "1", 1, 2, NULL, 0u, "0.2", "Stages."),
    XRAY_INT(grid_config, micro_multiple, "1", 1, 64, NULL, 0u, "0.2",
             "The number of micro-batches must be a multiple of it."),
    XRAY_INT(grid_config, token_multiple, "1", 1, 1024, NULL, 0u, "0.2",
             "The tokens of a micro-batch must be a multiple of it."),
};

static const xray_option infer_options[] = {
    XRAY_INT(grid_config, tp, "1", 1, 2, NULL, 0u, "0.2",
             "Ranks that share the vocabulary."),
};

static const xray_component train = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_TRAIN,
    .name = "grid",
    .summary = "Two tables, cut by vocabulary and by stage",
    .ops = &grid_train_ops,
    .options = train_options,
    .option_count = sizeof(train_options) / sizeof(train_options[0]),
    .option_stride = sizeof(train_options[0]),
    .config_size = sizeof(grid_config),
    .numerics = GRID_NUMERICS,
};

static const xray_component infer = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_INFER,
    .name = "grid",
    .summary = "Samples from two tables, cut by vocabulary",
    .ops = &grid_infer_ops,
    .options = infer_options,
    .option_count = sizeof(infer_options) / sizeof(infer_options[0]),
    .option_stride = sizeof(infer_options[0]),
    .config_size = sizeof(grid_config),
    .numerics = GRID_NUMERICS,
};

static const xray_component *const components[] = { &train, &infer };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI,
    .component_count = sizeof(components) / sizeof(components[0]),
    .name = "fake-grid",
    .version = "1.0",
    .vendor = "tests",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(fake_grid, plugin, "fake-grid", "1.0",
                   "xray.train/0:grid xray.infer/0:grid")
XRAY_PLUGIN_ENTRY(fake_grid)
