/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves for every key of the core's sections its field, default and bounds,
 * and which combinations of keys are derived or refused.
 */
#include "core/config/sections.h"
#include "tests/config/config_testing.h"

enum { IS_TEXT, IS_LIST, IS_WHOLE, IS_REAL, IS_FLAG };
#define AT(field) offsetof(xr_run_config, field)
#define TEXT(field) AT(field), IS_TEXT
#define LIST(field) AT(field), IS_LIST
#define WHOLE(field) AT(field), IS_WHOLE
#define REAL(field) AT(field), IS_REAL
#define FLAG(field) AT(field), IS_FLAG

/* The value that is set, the field's content then, and its content by
 * default. */
static const struct field {
    const char *section;
    const char *key;
    size_t offset;
    int type;
    const char *set;
    const char *held;
    const char *preset;
} fields[] = {
    { "run", "train", TEXT(run.train), "s201", "s201", "zero3" },
    { "run", "infer", TEXT(run.infer), "s202", "s202", "dsinf" },
    { "run", "algo", TEXT(run.algo), "s203", "s203", "grpo" },
    { "run", "device", TEXT(run.device), "s204", "s204", "cpu" },
    { "run", "reward", LIST(run.reward), "l205, m", "l205|m", "rule" },
    { "run", "seed", WHOLE(run.seed), "206", "206", "42" },
    { "run", "threads", WHOLE(run.threads), "207", "207", "0" },
    { "run", "log", TEXT(run.log), "debug", "debug", "warn" },
    { "run", "plugin_timeout", WHOLE(run.plugin_timeout), "3s", "3000000000",
      "600000000000" },
    { "run", "ranks", WHOLE(run.ranks), "61", "61", "1" },
    { "run", "runtime", TEXT(run.runtime), "s211", "s211", "auto" },
    { "run", "comm", TEXT(run.comm), "s212", "s212", "shm" },
    { "run", "comm_timeout", WHOLE(run.comm_timeout), "4s", "4000000000",
      "600000000000" },
    { "run", "max_restarts", WHOLE(run.max_restarts), "214", "214", "0" },
    { "run", "layout_segments", WHOLE(run.layout_segments), "187", "187", "0" },
    { "placement", "actor", LIST(placement.actor), "l215, m", "l215|m", "all" },
    { "placement", "reference", LIST(placement.reference), "l216, m", "l216|m",
      "" },
    { "placement", "critic", LIST(placement.critic), "l217, m", "l217|m", "" },
    { "placement", "reward", LIST(placement.reward), "l218, m", "l218|m", "" },
    { "placement", "rollout", LIST(placement.rollout), "l219, m", "l219|m",
      "" },
    { "placement", "hosts", LIST(placement.hosts), "l220, m", "l220|m", "" },
    { "runtime", "interface", TEXT(runtime.interface), "s220", "s220", "" },
    { "runtime", "silence", WHOLE(runtime.silence), "5s", "5000000000",
      "3000000000" },
    { "runtime", "tls", FLAG(runtime.tls), "yes", "1", "0" },
    { "runtime.hosts", "launch", TEXT(runtime.launch), "s221", "s221",
      "ssh {host} xray workhorse {address}" },
    { "model", "path", TEXT(model.path), "/p220", "/p220", "" },
    { "model", "tokenizer_path", TEXT(model.tokenizer_path), "/p221", "/p221",
      "" },
    { "model", "dtype", WHOLE(model.dtype), "bfloat16", "2", "1" },
    { "model", "init", WHOLE(model.init), "random", "1", "0" },
    { "data", "train_files", LIST(data.train_files), "l224, m", "l224|m", "" },
    { "data", "val_files", LIST(data.val_files), "l225, m", "l225|m", "" },
    { "data", "prompt_key", TEXT(data.prompt_key), "s226", "s226", "prompt" },
    { "data", "answer_key", TEXT(data.answer_key), "s227", "s227", "answer" },
    { "data", "response_key", TEXT(data.response_key), "s228", "s228", "" },
    { "data", "reward_fn_key", TEXT(data.reward_fn_key), "s229", "s229",
      "data_source" },
    { "data", "template", TEXT(data.template), "s230", "s230", "{prompt}" },
    { "data", "response_template", TEXT(data.response_template), "s231", "s231",
      "{answer}" },
    { "data", "max_prompt_length", WHOLE(data.max_prompt_length), "232", "232",
      "512" },
    { "data", "max_response_length", WHOLE(data.max_response_length), "233",
      "233", "512" },
    { "data", "train_batch_size", WHOLE(data.train_batch_size), "234", "234",
      "1024" },
    { "data", "val_batch_size", WHOLE(data.val_batch_size), "235", "235", "0" },
    { "data", "shuffle", FLAG(data.shuffle), "no", "0", "1" },
    { "data", "filter_overlong_prompts", FLAG(data.filter_overlong_prompts),
      "yes", "1", "0" },
    { "data", "seed", WHOLE(data.seed), "238", "238", "-1" },
    { "data", "truncation", WHOLE(data.truncation), "right", "2", "0" },
    { "data", "train_max_samples", WHOLE(data.train_max_samples), "240", "240",
      "-1" },
    { "data", "val_max_samples", WHOLE(data.val_max_samples), "241", "241",
      "-1" },
    { "data", "special_tokens", FLAG(data.special_tokens), "no", "0", "1" },
    { "data", "train_weights", LIST(data.train_weights), "l243, m", "l243|m",
      "" },
    { "data", "filters", LIST(data.filters), "l244, m", "l244|m", "" },
    { "data", "val_split", REAL(data.val_split), "0.125", "0.125", "0" },
    { "data", "apply_chat_template", WHOLE(data.apply_chat_template), "never",
      "2", "0" },
    { "data", "chat_template", TEXT(data.chat_template), "/p247", "/p247", "" },
    { "data", "chat_template_kwargs", TEXT(data.chat_template_kwargs), "s248",
      "s248", "" },
    { "data", "chat_date", TEXT(data.chat_date), "2031-01-02", "2031-01-02",
      "2024-07-26" },
    { "data", "add_generation_prompt", FLAG(data.add_generation_prompt), "no",
      "0", "1" },
    { "data", "system_prompt", TEXT(data.system_prompt), "s251", "s251", "" },
    { "data", "messages_key", TEXT(data.messages_key), "s252", "s252",
      "messages" },
    { "data", "tools_key", TEXT(data.tools_key), "s253", "s253", "tools" },
    { "rollout", "n", WHOLE(rollout.n), "254", "254", "1" },
    { "rollout", "temperature", REAL(rollout.temperature), "0.25", "0.25",
      "1" },
    { "rollout", "top_p", REAL(rollout.top_p), "0.375", "0.375", "1" },
    { "rollout", "min_p", REAL(rollout.min_p), "0.0625", "0.0625", "0" },
    { "rollout", "top_k", WHOLE(rollout.top_k), "131", "131", "0" },
    { "rollout", "repetition_penalty", REAL(rollout.repetition_penalty), "1.25",
      "1.25", "1" },
    { "rollout", "frequency_penalty", REAL(rollout.frequency_penalty), "-0.5",
      "-0.5", "0" },
    { "rollout", "presence_penalty", REAL(rollout.presence_penalty), "1.5",
      "1.5", "0" },
    { "rollout", "min_tokens", WHOLE(rollout.min_tokens), "133", "133", "0" },
    { "rollout", "ignore_eos", FLAG(rollout.ignore_eos), "yes", "1", "0" },
    { "rollout", "max_num_seqs", WHOLE(rollout.max_num_seqs), "260", "260",
      "0" },
    { "rollout", "share_weights", WHOLE(rollout.share_weights), "off", "1",
      "0" },
    { "rollout", "free_cache_engine", FLAG(rollout.free_cache_engine), "yes",
      "1", "0" },
    { "rollout.val", "n", WHOLE(rollout.val_n), "263", "263", "0" },
    { "rollout.val", "temperature", REAL(rollout.val_temperature), "0.75",
      "0.75", "1" },
    { "rollout.val", "top_p", REAL(rollout.val_top_p), "0.875", "0.875", "1" },
    { "rollout.val", "top_k", WHOLE(rollout.val_top_k), "132", "132", "0" },
    { "actor", "ppo_mini_batch_size", WHOLE(actor.ppo_mini_batch_size), "267",
      "267", "0" },
    { "actor", "ppo_epochs", WHOLE(actor.ppo_epochs), "268", "268", "1" },
    { "actor", "shuffle", FLAG(actor.shuffle), "yes", "1", "0" },
    { "actor", "ppo_max_token_len_per_gpu",
      WHOLE(actor.ppo_max_token_len_per_gpu), "270", "270", "16384" },
    { "actor", "share_prompts", FLAG(actor.share_prompts), "yes", "1", "0" },
    { "actor", "grad_clip", REAL(actor.grad_clip), "272.5", "272.5", "1" },
    { "actor", "recompute_old_logp", WHOLE(actor.recompute_old_logp), "273",
      "273", "0" },
    { "actor", "rollout_probs_diff_max", REAL(actor.rollout_probs_diff_max),
      "0.25", "0.25", "1" },
    { "actor", "trainable_from_layer", WHOLE(actor.trainable_from_layer), "274",
      "274", "0" },
    { "actor", "param_offload", FLAG(actor.param_offload), "true", "1", "0" },
    { "actor", "grad_offload", FLAG(actor.grad_offload), "true", "1", "0" },
    { "actor", "optimizer_offload", FLAG(actor.optimizer_offload), "true", "1",
      "0" },
    { "critic", "ppo_mini_batch_size", WHOLE(critic.ppo_mini_batch_size), "133",
      "133", "0" },
    { "critic", "ppo_epochs", WHOLE(critic.ppo_epochs), "134", "134", "1" },
    { "critic", "shuffle", WHOLE(critic.shuffle), "true", "1", "0" },
    { "critic", "ppo_max_token_len_per_gpu",
      WHOLE(critic.ppo_max_token_len_per_gpu), "135", "135", "16384" },
    { "critic", "share_prompts", WHOLE(critic.share_prompts), "true", "1",
      "0" },
    { "critic", "grad_clip", REAL(critic.grad_clip), "280.5", "280.5", "1" },
    { "critic", "param_offload", FLAG(critic.param_offload), "true", "1", "0" },
    { "critic", "grad_offload", FLAG(critic.grad_offload), "true", "1", "0" },
    { "critic", "optimizer_offload", FLAG(critic.optimizer_offload), "true",
      "1", "0" },
    { "ref", "param_offload", FLAG(ref.param_offload), "yes", "1", "0" },
    { "critic.model", "path", TEXT(critic.path), "/p282", "/p282", "" },
    { "trainer", "total_epochs", WHOLE(trainer.total_epochs), "283", "283",
      "30" },
    { "trainer", "total_training_steps", WHOLE(trainer.total_training_steps),
      "284", "284", "0" },
    { "trainer", "save_freq", WHOLE(trainer.save_freq), "285", "285", "-1" },
    { "trainer", "test_freq", WHOLE(trainer.test_freq), "286", "286", "-1" },
    { "trainer", "val_before_train", FLAG(trainer.val_before_train), "no", "0",
      "1" },
    { "trainer", "val_after_train", FLAG(trainer.val_after_train), "no", "0",
      "1" },
    { "trainer", "default_local_dir", TEXT(trainer.default_local_dir), "/dir",
      "/dir", "checkpoints/xray/run" },
    { "trainer", "resume_mode", TEXT(trainer.resume_mode), "disable", "disable",
      "auto" },
    { "trainer", "resume_from_path", TEXT(trainer.resume_from_path), "/p291",
      "/p291", "" },
    { "trainer", "rollout_data_dir", TEXT(trainer.rollout_data_dir), "/p292",
      "/p292", "" },
    { "trainer", "validation_data_dir", TEXT(trainer.validation_data_dir),
      "/p293", "/p293", "" },
    { "trainer", "max_actor_ckpt_to_keep",
      WHOLE(trainer.max_actor_ckpt_to_keep), "294", "294", "0" },
    { "trainer", "project_name", TEXT(trainer.project_name), "s295", "s295",
      "xray" },
    { "trainer", "experiment_name", TEXT(trainer.experiment_name), "s296",
      "s296", "run" },
    { "trainer", "logger", LIST(trainer.logger), "jsonl", "jsonl",
      "console|jsonl" },
    { "trainer", "critic_warmup", WHOLE(trainer.critic_warmup), "298", "298",
      "0" },
    { "trainer", "val_only", FLAG(trainer.val_only), "yes", "1", "0" },
    { "trainer", "log_val_generations", WHOLE(trainer.log_val_generations),
      "299", "299", "0" },
    { "trainer", "on_nonfinite", WHOLE(trainer.on_nonfinite), "skip", "1",
      "0" },
    { "sft", "train_batch_size", WHOLE(sft.train_batch_size), "300", "300",
      "256" },
    { "sft", "total_steps", WHOLE(sft.total_steps), "301", "301", "1000" },
    { "sft", "test_freq", WHOLE(sft.test_freq), "302", "302", "-1" },
    { "sft", "stop_at", REAL(sft.stop_at), "303.5", "303.5", "0" },
    { "sft", "max_token_len", WHOLE(sft.max_token_len), "304", "304", "16384" },
    { "sft", "grad_clip", REAL(sft.grad_clip), "305.5", "305.5", "1" },
    { "sft", "train_on_prompt", FLAG(sft.train_on_prompt), "yes", "1", "0" },
    { "actor.optim", "lr", REAL(actor_optim.lr), "307.5", "307.5", "1e-06" },
    { "actor.optim", "lr_scheduler_type", WHOLE(actor_optim.lr_scheduler_type),
      "cosine", "2", "0" },
    { "actor.optim", "lr_warmup_steps", WHOLE(actor_optim.lr_warmup_steps),
      "309", "309", "-1" },
    { "actor.optim", "lr_warmup_steps_ratio",
      REAL(actor_optim.lr_warmup_steps_ratio), "0.302734", "0.302734", "0" },
    { "actor.optim", "min_lr_ratio", REAL(actor_optim.min_lr_ratio), "0.303711",
      "0.303711", "0" },
    { "actor.optim", "num_cycles", REAL(actor_optim.num_cycles), "312.5",
      "312.5", "0.5" },
    { "critic.optim", "lr", REAL(critic_optim.lr), "313.5", "313.5", "1e-05" },
    { "critic.optim", "lr_scheduler_type",
      WHOLE(critic_optim.lr_scheduler_type), "cosine", "2", "0" },
    { "critic.optim", "lr_warmup_steps", WHOLE(critic_optim.lr_warmup_steps),
      "315", "315", "-1" },
    { "critic.optim", "lr_warmup_steps_ratio",
      REAL(critic_optim.lr_warmup_steps_ratio), "0.308594", "0.308594", "0" },
    { "critic.optim", "min_lr_ratio", REAL(critic_optim.min_lr_ratio),
      "0.30957", "0.30957", "0" },
    { "critic.optim", "num_cycles", REAL(critic_optim.num_cycles), "318.5",
      "318.5", "0.5" },
    { "sft.optim", "lr", REAL(sft_optim.lr), "319.5", "319.5", "1e-05" },
    { "sft.optim", "lr_scheduler_type", WHOLE(sft_optim.lr_scheduler_type),
      "cosine", "2", "0" },
    { "sft.optim", "lr_warmup_steps", WHOLE(sft_optim.lr_warmup_steps), "321",
      "321", "-1" },
    { "sft.optim", "lr_warmup_steps_ratio",
      REAL(sft_optim.lr_warmup_steps_ratio), "0.314453", "0.314453", "0" },
    { "sft.optim", "min_lr_ratio", REAL(sft_optim.min_lr_ratio), "0.31543",
      "0.31543", "0" },
    { "sft.optim", "num_cycles", REAL(sft_optim.num_cycles), "324.5", "324.5",
      "0.5" },
};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static void print_field(const xr_run_config *run, const struct field *f,
                        char *out, size_t cap)
{
    const unsigned char *at = (const unsigned char *)run + f->offset;
    const char *text = NULL;
    int64_t integer = 0;
    double real = 0;
    uint32_t flag = 0;
    xray_list list = { NULL, 0 };
    out[0] = '\0';
    switch (f->type) {
    case IS_TEXT:
        memcpy(&text, at, sizeof(text));
        (void)snprintf(out, cap, "%s", text);
        break;
    case IS_LIST:
        memcpy(&list, at, sizeof(list));
        for (uint64_t i = 0; i < list.count; i++)
            (void)snprintf(out + strlen(out), cap - strlen(out), "%s%s",
                           i ? "|" : "", list.items[i]);
        break;
    case IS_WHOLE:
        memcpy(&integer, at, sizeof(integer));
        (void)snprintf(out, cap, "%lld", (long long)integer);
        break;
    case IS_REAL:
        memcpy(&real, at, sizeof(real));
        (void)snprintf(out, cap, "%.15g", real);
        break;
    default:
        memcpy(&flag, at, sizeof(flag));
        (void)snprintf(out, cap, "%u", flag);
    }
}

static void expect_fields(const xr_run_config *run, int preset)
{
    for (size_t i = 0; i < FIELDS; i++) {
        char held[128];
        const struct field *f = &fields[i];
        const char *want = preset ? f->preset : f->held;
        print_field(run, f, held, sizeof(held));
        if (strcmp(held, want) != 0)
            fail_msg("[%s] %s holds %s, not %s", f->section, f->key, held,
                     want);
    }
}

static void set_key(xr_config *config, const char *section, const char *key,
                    const char *value, xr_errors *errors)
{
    char text[256];
    (void)snprintf(text, sizeof(text), "%s.%s=%s", section, key, value);
    xr_config_set(config, text, errors);
}

static void each_key_has_its_field(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    xr_run_config run;
    xr_config *config = xr_config_new();
    for (size_t i = 0; i < FIELDS; i++)
        set_key(config, fields[i].section, fields[i].key, fields[i].set,
                &errors);
    xr_run_decode(config, &run, &errors);
    xr_config_finish(config, &errors);
    expect_errors(&errors, "");
    expect_fields(&run, 0);
    xr_config_free(config);
}

static void each_key_has_its_default(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    xr_run_config run;
    size_t keys = 0;
    xr_config *config = xr_config_new();
    xr_run_decode(config, &run, &errors);
    xr_config_finish(config, &errors);
    expect_errors(&errors, "");
    expect_fields(&run, 1);
    for (size_t i = 0; xr_run_sections(i); i++)
        if (strcmp(xr_run_sections(i)->section, "reward.NAME") != 0)
            keys += xr_run_sections(i)->table.count;
    assert_int_equal(FIELDS, keys); /* none is left out above */
    xr_config_free(config);
}

/* Both ends of each range are accepted, and values beyond them are not. The
 * figures are those of docs/config.md. */
static void each_range_ends_at_its_bounds(void **state)
{
    (void)state;
    size_t ends = 0;
    for (size_t s = 0; xr_run_sections(s); s++) {
        const xr_section_info *info = xr_run_sections(s);
        for (size_t k = 0; k < info->table.count; k++) {
            const xray_option *o = &info->table.options[k];
            if (o->min > o->max || o->type == XRAY_OPT_DURATION)
                continue;
            const double values[] = { o->min, o->max, o->min - 1,
                                      o->max + (o->max > 1e15 ? 1e15 : 1) };
            for (int i = 0; i < 4; i++) {
                char text[64];
                unsigned char target[1024];
                xr_errors errors = { 0 };
                xr_config *config = xr_config_new();
                (void)snprintf(text, sizeof(text),
                               o->type == XRAY_OPT_INT ? "%.0f" : "%.17g",
                               values[i]);
                set_key(config, "s", o->name, text, &errors);
                xr_config_decode(config, "s", info->table, target, &errors);
                if ((errors.count != 0) !=
                    (values[i] < o->min || values[i] > o->max))
                    fail_msg("[%s] %s = %s", info->section, o->name, text);
                ends++;
                xr_errors_free(&errors);
                xr_config_free(config);
            }
        }
    }
    assert_true(ends > 200);
}

static const struct choice {
    const char *section;
    const char *key;
    const char *name;
    int64_t value;
    size_t offset;
} choices[] = {
    { "model", "dtype", "float32", XRAY_F32, AT(model.dtype) },
    { "model", "dtype", "float16", XRAY_F16, AT(model.dtype) },
    { "model", "init", "load", XR_INIT_LOAD, AT(model.init) },
    { "data", "truncation", "error", XR_TRUNCATE_ERROR, AT(data.truncation) },
    { "data", "truncation", "left", XR_TRUNCATE_LEFT, AT(data.truncation) },
    { "data", "apply_chat_template", "auto", XR_CHAT_AUTO,
      AT(data.apply_chat_template) },
    { "data", "apply_chat_template", "always", XR_CHAT_ALWAYS,
      AT(data.apply_chat_template) },
    { "rollout", "share_weights", "auto", XR_SHARE_AUTO,
      AT(rollout.share_weights) },
    { "actor.optim", "lr_scheduler_type", "linear", XR_SCHEDULE_LINEAR,
      AT(actor_optim.lr_scheduler_type) },
    { "actor.optim", "lr_scheduler_type", "constant", XR_SCHEDULE_CONSTANT,
      AT(actor_optim.lr_scheduler_type) },
    { "trainer", "on_nonfinite", "stop", XR_NONFINITE_STOP,
      AT(trainer.on_nonfinite) },
    { "critic", "shuffle", "false", 0, AT(critic.shuffle) },
    { "critic", "shuffle", "auto", 1, AT(critic.shuffle) },
    { "critic", "share_prompts", "false", 0, AT(critic.share_prompts) },
    { "critic", "share_prompts", "auto", 1, AT(critic.share_prompts) },
};

/* [actor] enables shuffle and share_prompts here, which auto in [critic]
 * inherits. */
static void each_choice_has_its_value(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++) {
        const struct choice *c = &choices[i];
        int64_t value;
        xr_errors errors = { 0 };
        xr_run_config run;
        xr_config *config = xr_config_new();
        set_key(config, "actor", "shuffle", "true", &errors);
        set_key(config, "actor", "share_prompts", "true", &errors);
        set_key(config, c->section, c->key, c->name, &errors);
        xr_run_decode(config, &run, &errors);
        expect_errors(&errors, "");
        memcpy(&value, (unsigned char *)&run + c->offset, sizeof(value));
        assert_int_equal(value, c->value);
        xr_config_free(config);
    }
}

static void critic_defaults_to_the_actor(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    xr_run_config run;
    xr_config *config = xr_config_new();
    set_key(config, "actor", "ppo_mini_batch_size", "6", &errors);
    set_key(config, "actor", "ppo_epochs", "7", &errors);
    set_key(config, "actor", "ppo_max_token_len_per_gpu", "80", &errors);
    set_key(config, "actor", "grad_clip", "9", &errors);
    set_key(config, "actor", "param_offload", "true", &errors);
    xr_run_decode(config, &run, &errors);
    expect_errors(&errors, "");
    assert_int_equal(run.critic.ppo_mini_batch_size, 6);
    assert_int_equal(run.critic.ppo_epochs, 7);
    assert_int_equal(run.critic.ppo_max_token_len_per_gpu, 80);
    assert_true(run.critic.grad_clip == 1);
    assert_int_equal(run.critic.param_offload, 0);
    assert_int_equal(run.ref.param_offload, 0);
    xr_config_free(config);
}

/* ---- across keys -------------------------------------------------------- */

static const struct rule {
    const char *sets[3][3];
    const char *said;
} rules[] = {
    { { { "trainer", "save_freq", "0" } },
      "--set: [trainer] save_freq: 0 is not a number of steps; -1 turns it "
      "off" },
    { { { "trainer", "test_freq", "0" } },
      "--set: [trainer] test_freq: 0 is not a number of steps; -1 turns it "
      "off" },
    { { { "trainer", "save_freq", "1" }, { "trainer", "test_freq", "-1" } },
      "" },
    { { { "trainer", "resume_mode", "never" } },
      "--set: [trainer] resume_mode: 'never' is not one of auto, disable, "
      "resume_path" },
    { { { "trainer", "resume_mode", "resume_path" },
        { "trainer", "resume_from_path", "/x" } },
      "" },
    { { { "trainer", "resume_mode", "auto" } }, "" },
    { { { "trainer", "resume_mode", "disable" } }, "" },
    { { { "trainer", "logger", "" } }, "" },
    { { { "trainer", "logger", "jsonl, jsonl, x" } }, "" },
    { { { "run", "log", "error" } }, "" },
    { { { "run", "log", "warn" } }, "" },
    { { { "run", "log", "info" } }, "" },
    { { { "run", "log", "warning" } },
      "--set: [run] log: 'warning' is not one of error, warn, info, debug" },
    { { { "rollout", "temperature", "0" } }, "" },
    { { { "rollout", "temperature", "0.00001" } }, "" },
    { { { "rollout", "temperature", "0.0000099" } },
      "--set: [rollout] temperature takes 0 (greedy) or a number from 0.00001 "
      "to 100, not 9.9e-06" },
    { { { "rollout.val", "temperature", "0.0000099" } },
      "--set: [rollout.val] temperature takes 0 (greedy) or a number from "
      "0.00001 to 100, not 9.9e-06" },
    { { { "rollout", "temperature", "100" } }, "" },
    { { { "rollout", "top_p", "1" } }, "" },
    { { { "rollout", "top_p", "1e-30" } }, "" },
    { { { "rollout", "top_p", "1e-60" } },
      "--set: [rollout] top_p takes a number above 0, up to 1, not 1e-60" },
    { { { "rollout.val", "top_p", "0" } },
      "--set: [rollout.val] top_p takes a number above 0, up to 1, not 0" },
};

static void keys_agree_or_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        xr_errors errors = { 0 };
        xr_run_config run;
        xr_config *config = xr_config_new();
        for (size_t k = 0; k < 3 && rules[i].sets[k][0]; k++)
            set_key(config, rules[i].sets[k][0], rules[i].sets[k][1],
                    rules[i].sets[k][2], &errors);
        xr_run_decode(config, &run, &errors);
        expect_errors(&errors, rules[i].said);
        xr_config_free(config);
    }
}

static void empty_folder_is_the_default_one(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    xr_run_config run;
    xr_config *config = xr_config_new();
    set_key(config, "trainer", "experiment_name", "e", &errors);
    set_key(config, "run", "seed", "x", &errors);
    set_key(config, "trainer", "total_epochs", "x", &errors);
    xr_run_decode(config, &run, &errors);
    /* The section is decoded twice, but its error is reported once. */
    expect_errors(&errors,
                  "--set: [run] seed: 'x' is not an integer\n"
                  "--set: [trainer] total_epochs: 'x' is not an integer");
    assert_string_equal(run.trainer.default_local_dir, "checkpoints/xray/e");
    assert_string_equal(
        xr_config_origin(config, "trainer", "default_local_dir"), "default");
    xr_config_free(config);
}

static void rewards_are_instances(void **state)
{
    (void)state;
    char name[130];
    xr_errors errors = { 0 };
    xr_reward_section reward;
    xr_config *config = xr_config_new();
    xr_run_reward(config, "a.b", &reward, &errors);
    assert_string_equal(reward.plugin, "");
    assert_true(reward.weight == 1);
    set_key(config, "reward.w", "weight", "-0.5", &errors);
    xr_run_reward(config, "w", &reward, &errors);
    assert_true(reward.weight == -0.5);
    memset(name, 'n', sizeof(name));
    name[42] = '\0'; /* "reward." and 42 make 49 */
    xr_run_reward(config, name, &reward, &errors);
    expect_errors(&errors, "");
    assert_true(reward.weight == 1);
    name[42] = 'n';
    name[43] = '\0';
    xr_run_reward(config, name, &reward, &errors);
    assert_int_equal(errors.count, 1);
    assert_null(reward.plugin);
    xr_errors_free(&errors);
    xr_run_reward(config, "a b", &reward, &errors);
    set_key(config, "run", "reward", "c d", &errors);
    xr_run_reward(config, "c d", &reward, &errors);
    expect_errors(
        &errors,
        "default: [run] reward: \"a b\" does not name a section [reward.NAME]: "
        "use letters, digits, '_', '-' and '.', at most 49 characters in all\n"
        "--set: [run] reward: \"c d\" does not name a section [reward.NAME]: "
        "use letters, digits, '_', '-' and '.', at most 49 characters in all");
    xr_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_key_has_its_field),
        cmocka_unit_test(each_key_has_its_default),
        cmocka_unit_test(each_range_ends_at_its_bounds),
        cmocka_unit_test(each_choice_has_its_value),
        cmocka_unit_test(critic_defaults_to_the_actor),
        cmocka_unit_test(keys_agree_or_are_refused),
        cmocka_unit_test(empty_folder_is_the_default_one),
        cmocka_unit_test(rewards_are_instances),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
