/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rl/checkpoint.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/str.h"

#define LATEST "latest_checkpointed_iteration.txt"
#define STEP_PREFIX "global_step_"
#define STATE_VERSION 1

static void put_count(xr_str *out, const char *key, uint64_t value)
{
    xr_str_printf(out, ", \"%s\": \"%llu\"", key, (unsigned long long)value);
}

/* Algorithm state as hex digits: it is small and opaque. */
static xray_status put_algo(xr_session *s, xr_str *out, xr_err *err)
{
    const xray_algo_ops *ops = xr_algo(s);
    uint64_t size = 0;
    if (!s->algo.self || !XRAY_HAS(xray_algo_ops, ops, save))
        return XRAY_OK;
    xray_status status = ops->save(s->algo.self, NULL, 0, &size);
    if (status != XRAY_OK && status != XRAY_E_RANGE)
        return xr_host_error(s->algo.host, status, "save", err);
    unsigned char *blob = xr_calloc((size_t)size + 1, 1);
    if (!blob)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for %s",
                       s->algo.instance);
    status = ops->save(s->algo.self, blob, size, &size);
    if (status != XRAY_OK)
        status = xr_host_error(s->algo.host, status, "save", err);
    else {
        xr_str_puts(out, ", \"algo\": \"");
        for (uint64_t i = 0; i < size; i++)
            xr_str_printf(out, "%02x", blob[i]);
        xr_str_puts(out, "\"");
    }
    free(blob);
    return status;
}

static xray_status write_state(xr_session *s, const xr_progress *p,
                               const char *dir, xr_err *err)
{
    xr_str out = { 0 };
    char path[XR_PATH_CAP];
    xr_str_printf(&out, "{\"version\": %d, \"kind\": \"%s\"", STATE_VERSION,
                  p->kind);
    put_count(&out, "step", p->step);
    put_count(&out, "seed", p->seed);
    put_count(&out, "rows", p->rows);
    put_count(&out, "epoch", p->sampler_epoch);
    put_count(&out, "position", p->sampler_position);
    xr_str_puts(&out, ", \"score_before\": ");
    xr_str_number(&out, p->score_before);
    xr_str_puts(&out, ", \"score_now\": ");
    xr_str_number(&out, p->score_now);
    xray_status status = put_algo(s, &out, err);
    xr_str_puts(&out, "}\n");
    if (status == XRAY_OK && out.failed)
        status = xr_fail(err, XRAY_E_NOMEM, "out of memory for state.json");
    if (status == XRAY_OK)
        status = xr_path_join(dir, "state.json", path, sizeof(path), err);
    if (status == XRAY_OK)
        status = xr_file_write(path, out.data, out.size, err);
    xr_str_free(&out);
    return status;
}

static xray_status write_config(xr_session *s, const char *dir, xr_err *err)
{
    xr_str out = { 0 };
    char path[XR_PATH_CAP];
    xr_config_print(s->config, 0, &out);
    xray_status status = xr_path_join(dir, "run.ini", path, sizeof(path), err);
    if (status == XRAY_OK && out.failed)
        status = xr_fail(err, XRAY_E_NOMEM, "out of memory for run.ini");
    if (status == XRAY_OK)
        status = xr_file_write(path, xr_str_text(&out), out.size, err);
    xr_str_free(&out);
    return status;
}

/* What a Hugging Face folder has beside its weights. */
static xray_status copy_model_files(const xr_session *s, const char *dir,
                                    xr_err *err)
{
    static const char *const names[] = {
        "config.json",        "generation_config.json",
        "tokenizer.json",     "tokenizer_config.json",
        "vocab.json",         "merges.txt",
        "tokenizer.model",    "special_tokens_map.json",
        "added_tokens.json",  "chat_template.json",
        "chat_template.jinja"
    };
    xray_status status = XRAY_OK;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char from[XR_PATH_CAP];
        char to[XR_PATH_CAP];
        const char *source = s->model_path;
        const char *tokenizer = s->run.model.tokenizer_path;
        if (i >= 2 && tokenizer && *tokenizer)
            source = tokenizer;
        status = xr_path_join(source, names[i], from, sizeof(from), err);
        if (status == XRAY_OK)
            status = xr_path_join(dir, names[i], to, sizeof(to), err);
        if (status == XRAY_OK && xr_path_exists(from))
            status = xr_file_copy(from, to, err);
        if (status != XRAY_OK)
            return status;
    }
    /* Who trained with another template wants it beside the weights. */
    const char *chat = s->run.data.chat_template;
    char to[XR_PATH_CAP];
    if (!chat || !*chat)
        return XRAY_OK;
    status = xr_path_join(dir, "chat_template.jinja", to, sizeof(to), err);
    return status == XRAY_OK ? xr_file_copy(chat, to, err) : status;
}

static xray_status fill(xr_session *s, const xr_progress *p, const char *dir,
                        xr_err *err)
{
    char actor[XR_PATH_CAP];
    xray_status status = xr_path_join(dir, "actor", actor, sizeof(actor), err);
    if (status == XRAY_OK)
        status = xr_dir_make(actor, err);
    if (status == XRAY_OK)
        status = copy_model_files(s, actor, err);
    if (status != XRAY_OK)
        return status;
    status = xr_train(s)->save(s->train.self, actor);
    if (status != XRAY_OK)
        return xr_host_error(s->train.host, status, "save", err);
    status = write_config(s, dir, err);
    return status == XRAY_OK ? write_state(s, p, dir, err) : status;
}

/* Step of a folder named global_step_N, or -1. */
static long long step_of(const char *name)
{
    int64_t step = -1;
    if (strncmp(name, STEP_PREFIX, strlen(STEP_PREFIX)) != 0 ||
        xr_parse_int(name + strlen(STEP_PREFIX), &step) != 0)
        return -1;
    return step;
}

/* The oldest checkpoint and how many there are. */
static size_t oldest(const char *root, long long *out_step)
{
    size_t count = 0;
    DIR *dir = opendir(root);
    *out_step = -1;
    if (!dir)
        return 0;
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        long long step = step_of(e->d_name);
        if (step < 0)
            continue;
        count++;
        if (*out_step < 0 || step < *out_step)
            *out_step = step;
    }
    (void)closedir(dir);
    return count;
}

static xray_status prune(const xr_session *s, xr_err *err)
{
    const char *root = s->run.trainer.default_local_dir;
    int64_t keep = s->run.trainer.max_actor_ckpt_to_keep;
    long long step = -1;
    while (keep > 0 && oldest(root, &step) > (size_t)keep) {
        char path[XR_PATH_CAP];
        (void)snprintf(path, sizeof(path), "%s/" STEP_PREFIX "%lld", root,
                       step);
        xray_status status = xr_dir_remove(path, err);
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}

xray_status xr_checkpoint_save(xr_session *s, const xr_progress *p,
                               char *out_path, xr_err *err)
{
    const char *root = s->run.trainer.default_local_dir;
    char temporary[XR_PATH_CAP + 8];
    char latest[XR_PATH_CAP];
    char number[32];
    int size = snprintf(out_path, XR_PATH_CAP, "%s/" STEP_PREFIX "%llu", root,
                        (unsigned long long)p->step);
    if (size < 0 || size >= (int)XR_PATH_CAP)
        return xr_fail(err, XRAY_E_RANGE,
                       "[trainer] default_local_dir is too long");
    (void)snprintf(temporary, sizeof(temporary), "%s.tmp", out_path);
    xray_status status = xr_dir_remove(temporary, err);
    if (status == XRAY_OK)
        status = xr_dir_make(temporary, err);
    if (status == XRAY_OK)
        status = fill(s, p, temporary, err);
    if (status == XRAY_OK)
        status = xr_dir_remove(out_path, err);
    if (status == XRAY_OK)
        status = xr_dir_commit(temporary, out_path, err);
    if (status != XRAY_OK) {
        (void)xr_dir_remove(temporary, NULL);
        return xr_fail_in(err, status, "checkpoint of step %llu",
                          (unsigned long long)p->step);
    }
    status = xr_path_join(root, LATEST, latest, sizeof(latest), err);
    size =
        snprintf(number, sizeof(number), "%llu\n", (unsigned long long)p->step);
    if (status == XRAY_OK)
        status = xr_file_write(latest, number, (size_t)size, err);
    return status == XRAY_OK ? prune(s, err) : status;
}

xray_status xr_checkpoint_find(const xr_session *s, char *out_path, xr_err *err)
{
    const xr_trainer_section *t = &s->run.trainer;
    char latest[XR_PATH_CAP];
    char *text = NULL;
    size_t size = 0;
    int64_t step = -1;
    out_path[0] = '\0';
    if (t->resume_from_path && *t->resume_from_path) {
        (void)snprintf(out_path, XR_PATH_CAP, "%s", t->resume_from_path);
        return XRAY_OK;
    }
    if (strcmp(t->resume_mode, "disable") == 0)
        return XRAY_OK;
    xray_status status =
        xr_path_join(t->default_local_dir, LATEST, latest, sizeof(latest), err);
    if (status != XRAY_OK || !xr_path_exists(latest))
        return status;
    status = xr_file_read(latest, 64, err, &text, &size);
    if (status != XRAY_OK)
        return status;
    text[strcspn(text, "\n")] = '\0';
    if (xr_parse_int(text, &step) != 0 || step < 0)
        status = xr_fail(err, XRAY_E_IO, "%s: \"%s\" is no step number", latest,
                         text);
    else
        (void)snprintf(out_path, XR_PATH_CAP, "%s/" STEP_PREFIX "%lld",
                       t->default_local_dir, (long long)step);
    free(text);
    return status;
}

static xray_status get_count(const cJSON *json, const char *key,
                             const char *where, uint64_t *out, xr_err *err)
{
    const char *text = NULL;
    int64_t value = 0;
    xray_status status = xr_json_string(json, key, where, err, &text);
    if (status != XRAY_OK)
        return status;
    if (xr_parse_int(text, &value) != 0 || value < 0)
        return xr_fail(err, XRAY_E_IO, "%s: %s is \"%s\", expected a count",
                       where, key, text);
    *out = (uint64_t)value;
    return XRAY_OK;
}

static xray_status get_progress(const cJSON *json, const char *where,
                                xr_progress *out, const char **out_kind,
                                xr_err *err)
{
    int64_t version = 0;
    xray_status status = xr_json_int(json, "version", where, err, &version);
    if (status == XRAY_OK && version != STATE_VERSION)
        status =
            xr_fail(err, XRAY_E_IO, "%s: version is %lld, this xray reads %d",
                    where, (long long)version, STATE_VERSION);
    if (status == XRAY_OK)
        status = xr_json_string(json, "kind", where, err, out_kind);
    if (status == XRAY_OK)
        status = get_count(json, "step", where, &out->step, err);
    if (status == XRAY_OK)
        status = get_count(json, "seed", where, &out->seed, err);
    if (status == XRAY_OK)
        status = get_count(json, "rows", where, &out->rows, err);
    if (status == XRAY_OK)
        status = get_count(json, "epoch", where, &out->sampler_epoch, err);
    if (status == XRAY_OK)
        status =
            get_count(json, "position", where, &out->sampler_position, err);
    if (status == XRAY_OK)
        status = xr_json_real_or(json, "score_before", NAN, where, err,
                                 &out->score_before);
    if (status == XRAY_OK)
        status = xr_json_real_or(json, "score_now", NAN, where, err,
                                 &out->score_now);
    return status;
}

xray_status xr_checkpoint_read(const char *path, const xr_progress *expect,
                               xr_progress *out, xr_err *err)
{
    char where[XR_PATH_CAP];
    cJSON *json = NULL;
    const char *kind = "";
    xr_progress read = *expect;
    xray_status status =
        xr_path_join(path, "state.json", where, sizeof(where), err);
    if (status == XRAY_OK)
        status = xr_json_file(where, err, &json);
    if (status == XRAY_OK)
        status = get_progress(json, where, &read, &kind, err);
    if (status == XRAY_OK && strcmp(kind, expect->kind) != 0)
        status = xr_fail(err, XRAY_E_CONFIG,
                         "%s: a checkpoint of xray %s, this run is xray %s",
                         where, kind, expect->kind);
    else if (status == XRAY_OK && read.seed != expect->seed)
        status = xr_fail(err, XRAY_E_CONFIG,
                         "%s: the checkpoint's seed is %llu, this run's is "
                         "%llu; resume needs the same",
                         where, (unsigned long long)read.seed,
                         (unsigned long long)expect->seed);
    else if (status == XRAY_OK && read.rows != expect->rows)
        status = xr_fail(err, XRAY_E_CONFIG,
                         "%s: the checkpoint was made with %llu data rows, "
                         "this run has %llu; resume needs the same",
                         where, (unsigned long long)read.rows,
                         (unsigned long long)expect->rows);
    if (status == XRAY_OK)
        *out = read;
    cJSON_Delete(json);
    return status;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static xray_status restore_algo(xr_session *s, const char *hex,
                                const char *where, xr_err *err)
{
    size_t size = strlen(hex) / 2;
    unsigned char *blob = xr_calloc(size + 1, 1);
    if (!blob)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for %s", where);
    for (size_t i = 0; i < size; i++) {
        int high = hex_digit(hex[2 * i]);
        int low = hex_digit(hex[2 * i + 1]);
        if (high < 0 || low < 0) {
            free(blob);
            return xr_fail(err, XRAY_E_IO, "%s: algo is not hexadecimal",
                           where);
        }
        blob[i] = (unsigned char)(high * 16 + low);
    }
    xray_status status = xr_algo(s)->load(s->algo.self, blob, size);
    free(blob);
    return status == XRAY_OK ? XRAY_OK
                             : xr_host_error(s->algo.host, status, "load", err);
}

xray_status xr_checkpoint_restore(xr_session *s, const char *path, xr_err *err)
{
    char where[XR_PATH_CAP];
    cJSON *json = NULL;
    const char *hex = "";
    xray_status status = xr_path_join(path, "actor", where, sizeof(where), err);
    if (status != XRAY_OK)
        return status;
    status = xr_train(s)->load(s->train.self, where);
    if (status != XRAY_OK)
        return xr_host_error(s->train.host, status, "load", err);
    if (!s->algo.self || !XRAY_HAS(xray_algo_ops, xr_algo(s), load))
        return XRAY_OK;
    status = xr_path_join(path, "state.json", where, sizeof(where), err);
    if (status == XRAY_OK)
        status = xr_json_file(where, err, &json);
    if (status == XRAY_OK)
        status = xr_json_string_or(json, "algo", "", where, err, &hex);
    if (status == XRAY_OK && *hex)
        status = restore_algo(s, hex, where, err);
    cJSON_Delete(json);
    return status;
}
