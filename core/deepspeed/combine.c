/* SPDX-License-Identifier: Apache-2.0
 *
 * Applies the keys of a DeepSpeed JSON that are only meaningful together.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "core/config/sections.h"
#include "core/deepspeed/internal.h"

#define MOST                                                        \
    INT64_C(0x1000000000) /* largest count; the product of two fits \
                           * int64_t */

/* ---- reading ------------------------------------------------------------ */

static const char *find_preset(const char *section, const char *key)
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

/* Returns the number in force; -1 if the text is not a number, which decoding
 * reports. */
static int64_t read_setting(const ds_read *d, const char *in, const char *key)
{
    const char *section = xr_ds_section(d, in);
    const xr_entry *entry = xr_ds_entry(d, section, key);
    const char *text =
        entry && entry->text ? entry->text : find_preset(section, key);
    int64_t value = -1;
    if (!text || xr_parse_int(text, &value) != 0 || value > MOST)
        return -1;
    return value;
}

/* Returns a count of the file; 0 if it is missing, -1 if it is refused. */
static int64_t read_count(ds_read *d, const char *path)
{
    const cJSON *item = xr_ds_get(d, path);
    if (!item)
        return 0;
    if (item->valuedouble >= 1 && item->valuedouble <= (double)MOST)
        return (int64_t)item->valuedouble;
    xr_ds_refuse(d, path, "%.15g is out of range; expected 1 or more",
                 item->valuedouble);
    return -1;
}

static const char *print_count(ds_read *d, int64_t value)
{
    return xr_config_keepf(d->config, "%" PRId64, value);
}

/* Refuses a number other than the only supported value. */
static void require_value(ds_read *d, const char *path, double value,
                          const char *why)
{
    const cJSON *item = xr_ds_get(d, path);
    if (item && item->valuedouble != value)
        xr_ds_refuse(d, path, "%.15g is refused: %s; expected %.15g",
                     item->valuedouble, why, value);
}

/* ---- batch -------------------------------------------------------------- */

#define ALL_KEY "train_batch_size"
#define MICRO_KEY "train_micro_batch_size_per_gpu"
#define STEPS_KEY "gradient_accumulation_steps"

typedef struct batch {
    int64_t all; /* sequences per optimizer step; 0: not given */
    int64_t micro;
    int64_t steps;
    int64_t ranks;
    const char *path; /* key that gives `all` */
} batch;

/* Checks all = micro x steps x ranks, as far as they are given. */
static void check_batch_product(ds_read *d, const batch *b)
{
    int64_t parts = (b->micro ? b->micro : 1) * (b->steps ? b->steps : 1);
    if (b->micro && b->steps) {
        if (parts != b->all / b->ranks || b->all % b->ranks)
            xr_ds_refuse(
                d, ALL_KEY,
                "%" PRId64 " is not " MICRO_KEY " %" PRId64 " x " STEPS_KEY
                " %" PRId64 " x %" PRId64 " ranks = %" PRId64,
                b->all, b->micro, b->steps, b->ranks, parts * b->ranks);
    } else if (b->all % (parts * b->ranks) != 0) {
        xr_ds_refuse(d, ALL_KEY,
                     "%" PRId64 " is not a multiple of %s%s%" PRId64
                     " x %" PRId64 " ranks",
                     b->all,
                     b->micro   ? MICRO_KEY
                     : b->steps ? STEPS_KEY
                                : "",
                     b->micro || b->steps ? " " : "", parts, b->ranks);
    }
}

/* [sft] train_batch_size counts the sequences per step. */
static void set_sft_batch(ds_read *d, const batch *b)
{
    xr_ds_set(d, b->path, "sft", "train_batch_size", print_count(d, b->all));
}

/* The sequences per step are [actor] ppo_mini_batch_size x [rollout] n; 0 means
 * all prompts. */
static void set_mini_batch(ds_read *d, const batch *b)
{
    int64_t n = read_setting(d, "rollout", "n");
    int64_t mini = read_setting(d, "actor", "ppo_mini_batch_size");
    int64_t prompts = read_setting(d, "data", "train_batch_size");
    const xr_entry *set = xr_ds_entry(d, "actor", "ppo_mini_batch_size");
    if (n < 1 || mini < 0 || prompts < 1)
        return;
    if (set && set->layer > XR_LAYER_FILE)
        return;
    if (b->all % n) {
        xr_ds_refuse(d, b->path,
                     "%" PRId64
                     " sequences per optimizer step are not a multiple "
                     "of [rollout] n = %" PRId64 " samples, set by %s",
                     b->all, n, xr_config_origin(d->config, "rollout", "n"));
        return;
    }
    int64_t here = mini ? mini : prompts;
    if (set && set->layer == XR_LAYER_FILE && here * n != b->all)
        xr_ds_refuse(d, b->path,
                     "%" PRId64 " sequences per optimizer step contradict "
                     "[actor] ppo_mini_batch_size = %" PRId64
                     ", set by %s: %" PRId64 " prompts x [rollout] n %" PRId64
                     " = %" PRId64,
                     b->all, mini, set->origin, here, n, here * n);
    else if (!set || set->layer < XR_LAYER_FILE)
        xr_ds_set(d, b->path, "actor", "ppo_mini_batch_size",
                  print_count(d, b->all / n));
}

/* Micro-batches are limited by tokens: as many as that number of longest rows
 * has. */
static void set_micro_batch(ds_read *d, const batch *b)
{
    int64_t prompt = read_setting(d, "data", "max_prompt_length");
    int64_t response = read_setting(d, "data", "max_response_length");
    if (prompt < 1 || response < 1 || prompt + response > INT32_MAX ||
        b->micro > INT32_MAX)
        return;
    const char *key = d->sft ? "max_token_len" : "ppo_max_token_len_per_gpu";
    const xr_entry *entry = xr_ds_entry(d, XR_DS_JOB, key);
    const char *tokens = print_count(d, b->micro * (prompt + response));
    double now = 0;
    if (entry && entry->layer == XR_LAYER_FILE && entry->text &&
        xr_parse_real(entry->text, &now) == 0 &&
        now != (double)(b->micro * (prompt + response)))
        xr_ds_refuse(d, MICRO_KEY,
                     "%" PRId64 " sequences of at most %" PRId64 " + %" PRId64
                     " tokens are %s tokens, which contradicts [%s] %s = %s, "
                     "set by %s",
                     b->micro, prompt, response, tokens,
                     xr_ds_section(d, XR_DS_JOB), key, entry->text,
                     entry->origin);
    else
        xr_ds_set(d, MICRO_KEY, XR_DS_JOB, key, tokens);
}

static void combine_batch(ds_read *d)
{
    batch b = { .all = read_count(d, ALL_KEY),
                .micro = read_count(d, MICRO_KEY),
                .steps = read_count(d, STEPS_KEY),
                .ranks = d->ranks,
                .path = ALL_KEY };
    if (b.all < 0 || b.micro < 0 || b.steps < 0)
        return;
    int refused = d->refused;
    d->refused = 0;
    if (b.micro > MOST / 1024 || b.steps > MOST / 1024) {
        xr_ds_refuse(d, b.micro > MOST / 1024 ? MICRO_KEY : STEPS_KEY,
                     "is out of range; expected at most %" PRId64 "",
                     MOST / 1024);
    } else if (b.all) {
        check_batch_product(d, &b);
    } else if (b.micro && (b.steps || !xr_json_get(d->root, ALL_KEY))) {
        /* Without a total, it is derived as in DeepSpeed. */
        b.all = b.micro * (b.steps ? b.steps : 1) * b.ranks;
        b.path = MICRO_KEY;
    }
    if (b.steps && !d->refused)
        xr_ds_note(d, 0, STEPS_KEY,
                   "micro-batches are cut by their tokens, so their number "
                   "follows");
    if (b.all && !d->refused && d->sft)
        set_sft_batch(d, &b);
    else if (b.all && !d->refused)
        set_mini_batch(d, &b);
    if (b.micro && !d->refused)
        set_micro_batch(d, &b);
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

/* DeepSpeed's Adam decays weights as AdamW does, unless told otherwise. */
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
                     "'%s' is not supported; expected Adam or AdamW",
                     type->valuestring);
        return;
    }
    int adam = type && strcasecmp(type->valuestring, "adam") == 0;
    if (adam && cJSON_IsFalse(mode) && !(decay && decay->valuedouble == 0))
        xr_ds_refuse(d, "optimizer.params.adam_w_mode",
                     "false puts weight_decay into the gradient, which is not "
                     "supported; expected true, or weight_decay 0");
}

/* ---- scheduler ---------------------------------------------------------- */

#define SCHEDULER "scheduler."
#define PARAMS SCHEDULER "params."

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

/* Refuses parameters that belong to another scheduler. */
static void check_scheduler_params(ds_read *d, const schedule *s)
{
    const cJSON *params =
        xr_json_get(xr_json_get(d->root, "scheduler"), "params");
    for (const cJSON *c = params ? params->child : NULL; c; c = c->next) {
        if (!xr_ds_among(c->string, s->params))
            xr_ds_refuse(d, xr_config_keepf(d->config, PARAMS "%s", c->string),
                         "%s has no such parameter; expected one of %s",
                         s->name, s->params);
    }
}

/* Returns the policy's updates per step of the run, because DeepSpeed counts
 * updates as steps. */
static int64_t count_updates(const ds_read *d)
{
    int64_t prompts = read_setting(d, "data", "train_batch_size");
    int64_t mini = read_setting(d, "actor", "ppo_mini_batch_size");
    int64_t epochs = read_setting(d, "actor", "ppo_epochs");
    if (d->sft || prompts < 1 || mini < 1 || epochs < 1 || epochs > 1000000)
        return d->sft || epochs < 1 || epochs > 1000000 ? 1 : epochs;
    return epochs * (prompts / mini ? prompts / mini : 1);
}

static void set_step_count(ds_read *d, const char *path, const char *section,
                           const char *key)
{
    const cJSON *item = xr_ds_get(d, path);
    int64_t each = count_updates(d);
    if (!item)
        return;
    if (item->valuedouble < 0 || item->valuedouble > (double)MOST) {
        xr_ds_refuse(d, path, "%.15g is not a number of steps",
                     item->valuedouble);
        return;
    }
    int64_t steps = (int64_t)item->valuedouble;
    if (steps % each)
        xr_ds_refuse(d, path,
                     "%" PRId64 " optimizer steps; a step of the run has "
                     "%" PRId64 " of them, so a multiple of that is expected",
                     steps, each);
    else
        xr_ds_set(d, path, section, key, print_count(d, steps / each));
}

static void check_warmup(ds_read *d)
{
    const cJSON *type = xr_ds_get(d, PARAMS "warmup_type");
    const cJSON *steps = xr_ds_get(d, PARAMS "warmup_num_steps");
    const cJSON *params =
        xr_json_get(xr_json_get(d->root, "scheduler"), "params");
    int said = xr_json_get(params, "warmup_type") != NULL;
    if (type && strcmp(type->valuestring, "linear") != 0)
        xr_ds_refuse(d, PARAMS "warmup_type",
                     "'%s' is not supported; expected linear",
                     type->valuestring);
    else if (!said && steps && steps->valuedouble > 0)
        xr_ds_note(d, 1, PARAMS "warmup_type",
                   "it is missing, which is \"log\" in DeepSpeed; the warm-up "
                   "is linear");
    require_value(d, PARAMS "warmup_min_lr", 0, "the warm-up starts from 0");
    require_value(d, PARAMS "warmup_min_ratio", 0, "the warm-up starts from 0");
}

static void copy_real(ds_read *d, const char *path, const char *section,
                      const char *key)
{
    const cJSON *item = xr_ds_get(d, path);
    if (item)
        xr_ds_set(d, path, section, key, xr_ds_number(d, item->valuedouble));
}

static void combine_scheduler(ds_read *d)
{
    const cJSON *type = xr_ds_get(d, SCHEDULER "type");
    const schedule *s = NULL;
    if (!xr_json_get(d->root, "scheduler"))
        return;
    for (size_t i = 0; type && i < 3; i++)
        if (strcmp(type->valuestring, schedules[i].name) == 0)
            s = &schedules[i];
    if (type && !s) {
        xr_ds_refuse(d, SCHEDULER "type",
                     "'%s' is not supported; expected WarmupLR, WarmupDecayLR "
                     "or WarmupCosineLR",
                     type->valuestring);
        return;
    }
    if (s)
        check_scheduler_params(d, s);
    check_warmup(d);
    if (s)
        xr_ds_set(d, SCHEDULER "type", XR_DS_OPTIM, "lr_scheduler_type",
                  s->type);
    if (s == &schedules[1]) /* it decays to 0 */
        xr_ds_set(d, SCHEDULER "type", XR_DS_OPTIM, "min_lr_ratio", "0");
    copy_real(d, PARAMS "warmup_max_lr", XR_DS_OPTIM, "lr");
    copy_real(d, PARAMS "cos_min_ratio", XR_DS_OPTIM, "min_lr_ratio");
    set_step_count(d, PARAMS "warmup_num_steps", XR_DS_OPTIM,
                   "lr_warmup_steps");
    if (d->sft)
        set_step_count(d, PARAMS "total_num_steps", "sft", "total_steps");
    else
        set_step_count(d, PARAMS "total_num_steps", "trainer",
                       "total_training_steps");
}

/* ---- precision and offload ---------------------------------------------- */

static void set_dtype(ds_read *d, const char *path)
{
    const cJSON *enabled = xr_ds_get(d, path);
    if (enabled)
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
        xr_ds_refuse(d, path, "'%s' is not supported; expected cpu or none",
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
