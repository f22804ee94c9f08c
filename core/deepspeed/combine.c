/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys of a DeepSpeed JSON that mean something together.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "core/config/sections.h"
#include "core/deepspeed/internal.h"

#define MOST INT64_C(0x1000000000) /* of a count: products of two fit */

/* ---- reading ------------------------------------------------------------ */

static const char *preset_of(const char *section, const char *key)
{
    const xr_section_info *info = NULL;
    for (size_t i = 0; (info = xr_run_sections(i)); i++) {
        if (strcmp(info->section, section) != 0)
            continue;
        for (size_t k = 0; k < info->table.count; k++)
            if (strcmp(info->table.options[k].name, key) == 0)
                return info->table.options[k].preset;
    }
    return NULL;
}

/* The number in force; -1 if it is none, which decoding will say. */
static int64_t ours(const ds_read *d, const char *in, const char *key)
{
    const char *section = xr_ds_section(d, in);
    const xr_entry *entry = xr_ds_entry(d, section, key);
    const char *text =
        entry && entry->text ? entry->text : preset_of(section, key);
    int64_t value = -1;
    if (!text || xr_parse_int(text, &value) != 0 || value > MOST)
        return -1;
    return value;
}

/* A count of the file: 0 if it has none, -1 if it is refused. */
static int64_t count_at(ds_read *d, const char *path)
{
    const cJSON *item = xr_ds_get(d, path);
    if (!item)
        return 0;
    if (item->valuedouble >= 1 && item->valuedouble <= (double)MOST)
        return (int64_t)item->valuedouble;
    xr_ds_refuse(d, path, "%.15g is out of range, 1 or more is expected",
                 item->valuedouble);
    return -1;
}

static const char *number(ds_read *d, int64_t value)
{
    return xr_config_keepf(d->config, "%" PRId64, value);
}

/* A number that must be one value, which ours always is. */
static void want(ds_read *d, const char *path, double value, const char *why)
{
    const cJSON *item = xr_ds_get(d, path);
    if (item && item->valuedouble != value)
        xr_ds_refuse(d, path, "%.15g is refused: %s; expected %.15g",
                     item->valuedouble, why, value);
}

/* ---- batch -------------------------------------------------------------- */

#define ALL "train_batch_size"
#define MICRO "train_micro_batch_size_per_gpu"
#define STEPS "gradient_accumulation_steps"

typedef struct batch {
    int64_t all; /* sequences of an optimizer step; 0: not said */
    int64_t micro;
    int64_t steps;
    int64_t ranks;
    const char *path; /* that gives `all` */
} batch;

/* all = micro x steps x ranks, of what is there. */
static void check_product(ds_read *d, const batch *b)
{
    int64_t parts = (b->micro ? b->micro : 1) * (b->steps ? b->steps : 1);
    if (b->micro && b->steps) {
        if (parts != b->all / b->ranks || b->all % b->ranks)
            xr_ds_refuse(d, ALL,
                         "%" PRId64 " is not " MICRO " %" PRId64 " x " STEPS
                         " %" PRId64 " x %" PRId64 " ranks = %" PRId64,
                         b->all, b->micro, b->steps, b->ranks,
                         parts * b->ranks);
    } else if (b->all % (parts * b->ranks) != 0) {
        xr_ds_refuse(d, ALL,
                     "%" PRId64 " is no multiple of %s%s%" PRId64 " x %" PRId64
                     " ranks",
                     b->all,
                     b->micro   ? MICRO
                     : b->steps ? STEPS
                                : "",
                     b->micro || b->steps ? " " : "", parts, b->ranks);
    }
}

/* [sft] train_batch_size is the sequences of a step. */
static void set_rows(ds_read *d, const batch *b)
{
    xr_ds_set(d, b->path, "sft", "train_batch_size", number(d, b->all));
}

/* [actor] ppo_mini_batch_size x [rollout] n is; 0 stands for all prompts. */
static void set_mini(ds_read *d, const batch *b)
{
    int64_t n = ours(d, "rollout", "n");
    int64_t mini = ours(d, "actor", "ppo_mini_batch_size");
    int64_t prompts = ours(d, "data", "train_batch_size");
    const xr_entry *set = xr_ds_entry(d, "actor", "ppo_mini_batch_size");
    if (n < 1 || mini < 0 || prompts < 1)
        return;
    if (set && set->layer > XR_LAYER_FILE)
        return;
    if (b->all % n) {
        xr_ds_refuse(d, b->path,
                     "%" PRId64 " sequences of an optimizer step are no whole "
                     "groups of [rollout] n = %" PRId64 " samples, set by %s",
                     b->all, n, xr_config_origin(d->config, "rollout", "n"));
        return;
    }
    int64_t here = mini ? mini : prompts;
    if (set && set->layer == XR_LAYER_FILE && here * n != b->all)
        xr_ds_refuse(d, b->path,
                     "%" PRId64 " sequences of an optimizer step contradict "
                     "[actor] ppo_mini_batch_size = %" PRId64
                     ", set by %s: %" PRId64 " prompts x [rollout] n %" PRId64
                     " = %" PRId64,
                     b->all, mini, set->origin, here, n, here * n);
    else if (!set || set->layer < XR_LAYER_FILE)
        xr_ds_set(d, b->path, "actor", "ppo_mini_batch_size",
                  number(d, b->all / n));
}

/* A micro-batch is cut by tokens: those that so many longest rows have. */
static void set_micro(ds_read *d, const batch *b)
{
    int64_t prompt = ours(d, "data", "max_prompt_length");
    int64_t response = ours(d, "data", "max_response_length");
    if (prompt < 1 || response < 1 || prompt + response > INT32_MAX ||
        b->micro > INT32_MAX)
        return;
    const char *key = d->sft ? "max_token_len" : "ppo_max_token_len_per_gpu";
    const xr_entry *entry = xr_ds_entry(d, XR_DS_JOB, key);
    const char *tokens = number(d, b->micro * (prompt + response));
    double now = 0;
    if (entry && entry->layer == XR_LAYER_FILE && entry->text &&
        xr_parse_real(entry->text, &now) == 0 &&
        now != (double)(b->micro * (prompt + response)))
        xr_ds_refuse(d, MICRO,
                     "%" PRId64 " sequences of at most %" PRId64 " + %" PRId64
                     " tokens are %s tokens, which contradicts [%s] %s = %s, "
                     "set by %s",
                     b->micro, prompt, response, tokens,
                     xr_ds_section(d, XR_DS_JOB), key, entry->text,
                     entry->origin);
    else
        xr_ds_set(d, MICRO, XR_DS_JOB, key, tokens);
}

static void combine_batch(ds_read *d)
{
    batch b = { .all = count_at(d, ALL),
                .micro = count_at(d, MICRO),
                .steps = count_at(d, STEPS),
                .ranks = d->ranks,
                .path = ALL };
    if (b.all < 0 || b.micro < 0 || b.steps < 0)
        return;
    int refused = d->refused;
    d->refused = 0;
    if (b.micro > MOST / 1024 || b.steps > MOST / 1024) {
        xr_ds_refuse(d, b.micro > MOST / 1024 ? MICRO : STEPS,
                     "is out of range, at most %" PRId64 " is taken",
                     MOST / 1024);
    } else if (b.all) {
        check_product(d, &b);
    } else if (b.micro && (b.steps || !xr_json_get(d->root, ALL))) {
        /* Without a total, as DeepSpeed works it out. */
        b.all = b.micro * (b.steps ? b.steps : 1) * b.ranks;
        b.path = MICRO;
    }
    if (b.steps && !d->refused)
        xr_ds_note(d, 0, STEPS,
                   "micro-batches are cut by their tokens, so their number "
                   "follows");
    if (b.all && !d->refused && d->sft)
        set_rows(d, &b);
    else if (b.all && !d->refused)
        set_mini(d, &b);
    if (b.micro && !d->refused)
        set_micro(d, &b);
    d->refused |= refused;
}

/* ---- optimizer ---------------------------------------------------------- */

static void set_betas(ds_read *d)
{
    static const char path[] = "optimizer.params.betas";
    const cJSON *list = xr_ds_get(d, path);
    if (!list)
        return;
    const cJSON *a = cJSON_GetArrayItem(list, 0);
    const cJSON *b = cJSON_GetArrayItem(list, 1);
    if (cJSON_GetArraySize(list) != 2 || !cJSON_IsNumber(a) ||
        !cJSON_IsNumber(b)) {
        xr_ds_refuse(d, path, "must be an array of two numbers");
        return;
    }
    xr_ds_set(d, path, XR_DS_TRAIN, "beta1", xr_ds_number(d, a->valuedouble));
    xr_ds_set(d, path, XR_DS_TRAIN, "beta2", xr_ds_number(d, b->valuedouble));
}

/* DeepSpeed's Adam decays as AdamW unless it is told otherwise. */
static void combine_optimizer(ds_read *d)
{
    const cJSON *type = xr_ds_get(d, "optimizer.type");
    const cJSON *decay = xr_ds_get(d, "optimizer.params.weight_decay");
    const cJSON *mode = xr_ds_get(d, "optimizer.params.adam_w_mode");
    if (!xr_json_get(d->root, "optimizer"))
        return;
    set_betas(d);
    if (!xr_json_get(xr_json_get(d->root, "optimizer"), "type")) {
        xr_ds_refuse(d, "optimizer.type", "is missing, expected Adam or AdamW");
        return;
    }
    if (type && strcasecmp(type->valuestring, "adam") != 0 &&
        strcasecmp(type->valuestring, "adamw") != 0) {
        xr_ds_refuse(d, "optimizer.type",
                     "'%s' is not offered, expected Adam or AdamW",
                     type->valuestring);
        return;
    }
    int adam = type && strcasecmp(type->valuestring, "adam") == 0;
    if (adam && cJSON_IsFalse(mode) && !(decay && decay->valuedouble == 0))
        xr_ds_refuse(d, "optimizer.params.adam_w_mode",
                     "false puts weight_decay into the gradient, which is not "
                     "offered; expected true, or weight_decay 0");
}

/* ---- scheduler ---------------------------------------------------------- */

#define S "scheduler."
#define P S "params."

typedef struct schedule {
    const char *name;
    const char *type; /* [actor.optim] lr_scheduler_type */
    const char *params;
} schedule;

static const schedule schedules[] = {
    { "WarmupLR", "constant",
      "warmup_min_lr warmup_max_lr warmup_num_steps warmup_type "
      "last_batch_iteration" },
    { "WarmupDecayLR", "linear",
      "warmup_min_lr warmup_max_lr warmup_num_steps warmup_type "
      "total_num_steps last_batch_iteration" },
    { "WarmupCosineLR", "cosine",
      "warmup_min_ratio cos_min_ratio warmup_num_steps warmup_type "
      "total_num_steps last_batch_iteration" },
};

/* Parameters that another scheduler has. */
static void check_params(ds_read *d, const schedule *s)
{
    const cJSON *params =
        xr_json_get(xr_json_get(d->root, "scheduler"), "params");
    for (const cJSON *c = params ? params->child : NULL; c; c = c->next) {
        if (!xr_ds_among(c->string, s->params))
            xr_ds_refuse(d, xr_config_keepf(d->config, P "%s", c->string),
                         "%s has no such parameter; expected one of %s",
                         s->name, s->params);
    }
}

/* Updates of the policy in a step of the run: DeepSpeed counts updates. */
static int64_t updates(const ds_read *d)
{
    int64_t prompts = ours(d, "data", "train_batch_size");
    int64_t mini = ours(d, "actor", "ppo_mini_batch_size");
    int64_t epochs = ours(d, "actor", "ppo_epochs");
    if (d->sft || prompts < 1 || mini < 1 || epochs < 1 || epochs > 1000000)
        return d->sft || epochs < 1 || epochs > 1000000 ? 1 : epochs;
    return epochs * (prompts / mini ? prompts / mini : 1);
}

static void set_steps(ds_read *d, const char *path, const char *section,
                      const char *key)
{
    const cJSON *item = xr_ds_get(d, path);
    int64_t each = updates(d);
    if (!item)
        return;
    if (item->valuedouble < 0 || item->valuedouble > (double)MOST) {
        xr_ds_refuse(d, path, "%.15g is no number of steps", item->valuedouble);
        return;
    }
    int64_t steps = (int64_t)item->valuedouble;
    if (steps % each)
        xr_ds_refuse(d, path,
                     "%" PRId64 " optimizer steps; a step of the run has "
                     "%" PRId64 " of them, so a multiple of that is expected",
                     steps, each);
    else
        xr_ds_set(d, path, section, key, number(d, steps / each));
}

static void check_warmup(ds_read *d)
{
    const cJSON *type = xr_ds_get(d, P "warmup_type");
    const cJSON *steps = xr_ds_get(d, P "warmup_num_steps");
    const cJSON *params =
        xr_json_get(xr_json_get(d->root, "scheduler"), "params");
    int said = xr_json_get(params, "warmup_type") != NULL;
    if (type && strcmp(type->valuestring, "linear") != 0)
        xr_ds_refuse(d, P "warmup_type", "'%s' is not offered, expected linear",
                     type->valuestring);
    else if (!said && steps && steps->valuedouble > 0)
        xr_ds_note(d, 1, P "warmup_type",
                   "it is missing, which is \"log\" in DeepSpeed; the warm-up "
                   "is linear");
    want(d, P "warmup_min_lr", 0, "the warm-up starts from 0");
    want(d, P "warmup_min_ratio", 0, "the warm-up starts from 0");
}

static void set_real(ds_read *d, const char *path, const char *section,
                     const char *key)
{
    const cJSON *item = xr_ds_get(d, path);
    if (item)
        xr_ds_set(d, path, section, key, xr_ds_number(d, item->valuedouble));
}

static void combine_scheduler(ds_read *d)
{
    const cJSON *type = xr_ds_get(d, S "type");
    const schedule *s = NULL;
    if (!xr_json_get(d->root, "scheduler"))
        return;
    for (size_t i = 0; type && i < 3; i++)
        if (strcmp(type->valuestring, schedules[i].name) == 0)
            s = &schedules[i];
    if (type && !s) {
        xr_ds_refuse(d, S "type",
                     "'%s' is not offered, expected WarmupLR, WarmupDecayLR "
                     "or WarmupCosineLR",
                     type->valuestring);
        return;
    }
    if (s)
        check_params(d, s);
    check_warmup(d);
    if (s)
        xr_ds_set(d, S "type", XR_DS_OPTIM, "lr_scheduler_type", s->type);
    if (s == &schedules[1]) /* it ends at 0 */
        xr_ds_set(d, S "type", XR_DS_OPTIM, "min_lr_ratio", "0");
    set_real(d, P "warmup_max_lr", XR_DS_OPTIM, "lr");
    set_real(d, P "cos_min_ratio", XR_DS_OPTIM, "min_lr_ratio");
    set_steps(d, P "warmup_num_steps", XR_DS_OPTIM, "lr_warmup_steps");
    if (d->sft)
        set_steps(d, P "total_num_steps", "sft", "total_steps");
    else
        set_steps(d, P "total_num_steps", "trainer", "total_training_steps");
}

/* ---- precision and offload ---------------------------------------------- */

static void set_dtype(ds_read *d, const char *path)
{
    const cJSON *enabled = xr_ds_get(d, path);
    const char *device = xr_config_get(d->config, "run", "device");
    int cpu = !device || strcmp(device, "cpu") == 0;
    if (!enabled)
        return;
    if (cJSON_IsTrue(enabled) && cpu)
        xr_ds_note(d, 1, path, "the cpu device computes in float32");
    else
        xr_ds_set(d, path, "model", "dtype",
                  cJSON_IsTrue(enabled) ? "bfloat16" : "float32");
}

static void set_offload(ds_read *d, const char *what, const char *old)
{
    const char *path =
        xr_config_keepf(d->config, "zero_optimization.%s.device", what);
    const char *before =
        xr_config_keepf(d->config, "zero_optimization.%s", old);
    const cJSON *device = xr_ds_get(d, path);
    const cJSON *flag = xr_ds_get(d, before);
    if (flag)
        xr_ds_set(d, before, XR_DS_TRAIN, what,
                  cJSON_IsTrue(flag) ? "host" : "none");
    if (!device)
        return;
    if (strcmp(device->valuestring, "cpu") == 0)
        xr_ds_set(d, path, XR_DS_TRAIN, what, "host");
    else if (strcmp(device->valuestring, "none") == 0)
        xr_ds_set(d, path, XR_DS_TRAIN, what, "none");
    else
        xr_ds_refuse(d, path, "'%s' is not offered, expected cpu or none",
                     device->valuestring);
}

void xr_ds_combine(ds_read *d)
{
    combine_batch(d);
    combine_optimizer(d);
    combine_scheduler(d);
    set_dtype(d, "bf16.enabled");
    set_dtype(d, "bfloat16.enabled");
    set_offload(d, "offload_optimizer", "cpu_offload");
    set_offload(d, "offload_param", "cpu_offload_params");
}
