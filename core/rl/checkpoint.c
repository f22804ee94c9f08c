/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rl/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/rl/given.h"
#include "core/rl/inventory.h"
#include "core/rl/role.h"

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
    xray_status status =
        XR_CALL(&s->algo, "save", ops->save(s->algo.self, NULL, 0, &size));
    if (status != XRAY_OK && status != XRAY_E_RANGE)
        return xr_host_error(s->algo.host, status, "save", err);
    if (status == XRAY_E_RANGE) /* as was to be expected */
        (void)xr_host_error(s->algo.host, status, "save", NULL);
    const uint64_t cap = size;
    status = xr_given_wish(&s->algo, "save", cap, err);
    if (status != XRAY_OK)
        return status;
    unsigned char *blob = xr_calloc((size_t)cap + 1, 1);
    if (!blob)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for %s",
                       s->algo.instance);
    status =
        XR_CALL(&s->algo, "save", ops->save(s->algo.self, blob, cap, &size));
    status = status == XRAY_OK
                 ? xr_given_size(&s->algo, "save", size, cap, err)
                 : xr_host_error(s->algo.host, status, "save", err);
    if (status == XRAY_OK) {
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
static xray_status copy_model_files(const xr_session *s, const char *model,
                                    const char *dir, xr_err *err)
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
        const char *source = model;
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

/* The folder of a trained model; `from` has what is not the backend's. */
static xray_status put_model(const xr_session *s, const xr_role *role,
                             const char *from, const char *dir, xr_err *err)
{
    xray_status status = xr_dir_make(dir, err);
    if (status == XRAY_OK)
        status = copy_model_files(s, from, dir, err);
    return status == XRAY_OK ? xr_role_save(role, dir, err) : status;
}

static xray_status fill(xr_session *s, const xr_progress *p, const char *dir,
                        xr_err *err)
{
    char path[XR_PATH_CAP];
    xr_role actor = xr_role_actor(s);
    xr_role critic = xr_role_critic(s);
    xray_status status = xr_path_join(dir, "actor", path, sizeof(path), err);
    if (status == XRAY_OK)
        status = put_model(s, &actor, s->model_path, path, err);
    if (status == XRAY_OK && s->critic.self) {
        status = xr_path_join(dir, "critic", path, sizeof(path), err);
        if (status == XRAY_OK)
            status = put_model(s, &critic, s->critic_model.path, path, err);
    }
    if (status == XRAY_OK)
        status = write_config(s, dir, err);
    if (status == XRAY_OK)
        status = write_state(s, p, dir, err);
    return status == XRAY_OK ? xr_inventory_write(dir, err) : status;
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

/* The highest, or the lowest, step below `limit` that has a folder, -1 if there
 * is none, and how many there are. */
static size_t find_step(const char *root, long long limit, int highest,
                        long long *out_step)
{
    size_t count = 0;
    DIR *dir = opendir(root);
    *out_step = -1;
    if (!dir)
        return 0;
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        long long step = step_of(e->d_name);
        if (step < 0 || step >= limit)
            continue;
        count++;
        if (*out_step < 0 || (highest ? step > *out_step : step < *out_step))
            *out_step = step;
    }
    (void)closedir(dir);
    return count;
}

/* A folder's name while it is on its way out: hidden, so that a kill in between
 * leaves nothing that looks like a checkpoint. */
#define REMOVED ".removed-"
#define REPLACED ".replaced-"

static xray_status step_paths(const char *root, const char *prefix,
                              long long step, char *out_path, char *out_hidden,
                              xr_err *err)
{
    int size =
        snprintf(out_path, XR_PATH_CAP, "%s/" STEP_PREFIX "%lld", root, step);
    int more = snprintf(out_hidden, XR_PATH_CAP, "%s/%s" STEP_PREFIX "%lld",
                        root, prefix, step);
    if (size < 0 || more < 0 || more >= (int)XR_PATH_CAP)
        return xr_fail(err, XRAY_E_RANGE,
                       "[trainer] default_local_dir is too long");
    return XRAY_OK;
}

static xray_status move(const char *from, const char *to, xr_err *err)
{
    if (rename(from, to) == 0)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_IO, "%s: cannot rename to %s: %s", from, to,
                   strerror(errno));
}

/* Only steps up to `newest` count: those behind it are of a run that was given
 * up, and go when this one gets there. */
static xray_status prune(const xr_session *s, uint64_t newest, xr_err *err)
{
    const char *root = s->run.trainer.default_local_dir;
    int64_t keep = s->run.trainer.max_actor_ckpt_to_keep;
    long long step = -1;
    while (keep > 0 &&
           find_step(root, (long long)newest + 1, 0, &step) > (size_t)keep) {
        char path[XR_PATH_CAP];
        char hidden[XR_PATH_CAP];
        xray_status status = step_paths(root, REMOVED, step, path, hidden, err);
        if (status == XRAY_OK)
            status = move(path, hidden, err);
        if (status == XRAY_OK)
            status = xr_dir_remove(hidden, err);
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}

/* Puts a finished folder in its place. One of that step that is there already
 * stays whole under a hidden name until the new one stands. */
static xray_status put_in_place(const char *from, const char *path,
                                const char *hidden, xr_err *err)
{
    int replaces = xr_path_exists(path);
    xray_status status = xr_dir_remove(hidden, err);
    if (status == XRAY_OK && replaces)
        status = move(path, hidden, err);
    if (status != XRAY_OK)
        return status;
    status = xr_dir_commit(from, path, err);
    if (status != XRAY_OK && replaces && !xr_path_exists(path))
        (void)rename(hidden, path);
    return status;
}

static xray_status write_latest(const char *root, uint64_t step, xr_err *err)
{
    char latest[XR_PATH_CAP];
    char number[32];
    int size =
        snprintf(number, sizeof(number), "%llu\n", (unsigned long long)step);
    xray_status status =
        xr_path_join(root, LATEST, latest, sizeof(latest), err);
    return status == XRAY_OK ? xr_file_write(latest, number, (size_t)size, err)
                             : status;
}

xray_status xr_checkpoint_save(xr_session *s, const xr_progress *p,
                               char *out_path, xr_err *err)
{
    const char *root = s->run.trainer.default_local_dir;
    char temporary[XR_PATH_CAP + 8];
    char path[XR_PATH_CAP];
    char hidden[XR_PATH_CAP];
    xray_status status =
        step_paths(root, REPLACED, (long long)p->step, path, hidden, err);
    if (status != XRAY_OK)
        return status;
    (void)snprintf(temporary, sizeof(temporary), "%s.tmp", path);
    status = xr_dir_remove(temporary, err);
    if (status == XRAY_OK)
        status = xr_dir_make(temporary, err);
    if (status == XRAY_OK)
        status = fill(s, p, temporary, err);
    if (status == XRAY_OK)
        status = put_in_place(temporary, path, hidden, err);
    if (status != XRAY_OK)
        (void)xr_dir_remove(temporary, NULL);
    if (status == XRAY_OK)
        status = write_latest(root, p->step, err);
    if (status == XRAY_OK)
        status = xr_dir_remove(hidden, err);
    if (status == XRAY_OK)
        status = prune(s, p->step, err);
    if (status != XRAY_OK)
        return xr_fail_in(err, status, "checkpoint of step %llu",
                          (unsigned long long)p->step);
    memcpy(out_path, path, strlen(path) + 1);
    return XRAY_OK;
}

/* ---- after a kill ------------------------------------------------------- */

static int starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* global_step_N.tmp, and what a file is written as. */
static int is_unfinished(const char *name)
{
    const char *end = strrchr(name, '.');
    return (starts_with(name, STEP_PREFIX) && end &&
            strcmp(end, ".tmp") == 0) ||
           starts_with(name, LATEST ".tmp-") || starts_with(name, REMOVED);
}

static xray_status tidy_entry(const char *root, const char *name, xr_err *err)
{
    char path[XR_PATH_CAP];
    char place[XR_PATH_CAP];
    int replaced = starts_with(name, REPLACED STEP_PREFIX);
    if (!replaced && !is_unfinished(name))
        return XRAY_OK;
    xray_status status = xr_path_join(root, name, path, sizeof(path), err);
    if (status == XRAY_OK && replaced)
        status = xr_path_join(root, name + strlen(REPLACED), place,
                              sizeof(place), err);
    if (status != XRAY_OK)
        return status;
    if (replaced && !xr_path_exists(place))
        return move(path, place, err);
    if (xr_path_is_dir(path))
        return xr_dir_remove(path, err);
    return remove(path) == 0 ? XRAY_OK
                             : xr_fail(err, XRAY_E_IO, "%s: cannot remove: %s",
                                       path, strerror(errno));
}

xray_status xr_checkpoint_tidy(const xr_session *s, xr_err *err)
{
    const char *root = s->run.trainer.default_local_dir;
    xray_status status = XRAY_OK;
    DIR *dir = opendir(root);
    if (!dir)
        return errno == ENOENT ? XRAY_OK
                               : xr_fail(err, XRAY_E_IO, "cannot list %s: %s",
                                         root, strerror(errno));
    for (struct dirent *e = readdir(dir); e && status == XRAY_OK;
         e = readdir(dir))
        status = tidy_entry(root, e->d_name, err);
    (void)closedir(dir);
    return status;
}

/* ---- reading ------------------------------------------------------------ */

xray_status xr_checkpoint_verify(const xr_session *s, const char *path,
                                 xr_err *err)
{
    const char *root = s->run.trainer.default_local_dir;
    char other[XR_PATH_CAP];
    char hidden[XR_PATH_CAP];
    xr_err why = { "" };
    long long step = INT64_MAX;
    xray_status status = xr_inventory_verify(path, &why);
    if (status == XRAY_OK)
        return XRAY_OK;
    while (find_step(root, step, 1, &step) > 0) {
        if (step_paths(root, REMOVED, step, other, hidden, NULL) != XRAY_OK ||
            strcmp(other, path) == 0 ||
            xr_inventory_verify(other, NULL) != XRAY_OK)
            continue;
        return xr_fail(err, status,
                       "%s; %s is whole, go on from it with --set "
                       "trainer.resume_from_path=%s",
                       why.text, other, other);
    }
    return xr_fail(err, status, "%s; no other checkpoint in %s is whole",
                   why.text, root);
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
    xray_status status =
        XR_CALL(&s->algo, "load", xr_algo(s)->load(s->algo.self, blob, size));
    free(blob);
    return status == XRAY_OK ? XRAY_OK
                             : xr_host_error(s->algo.host, status, "load", err);
}

static xray_status get_model(const xr_role *role, const char *path,
                             const char *leaf, xr_err *err)
{
    char where[XR_PATH_CAP];
    xray_status status = xr_path_join(path, leaf, where, sizeof(where), err);
    if (status == XRAY_OK && !xr_path_is_dir(where))
        return xr_fail(err, XRAY_E_IO,
                       "%s: the checkpoint has no %s, which this run trains",
                       where, leaf);
    return status == XRAY_OK ? xr_role_load(role, where, err) : status;
}

xray_status xr_checkpoint_restore(xr_session *s, const char *path, xr_err *err)
{
    char where[XR_PATH_CAP];
    cJSON *json = NULL;
    const char *hex = "";
    xr_role actor = xr_role_actor(s);
    xr_role critic = xr_role_critic(s);
    xray_status status = get_model(&actor, path, "actor", err);
    if (status == XRAY_OK && s->critic.self)
        status = get_model(&critic, path, "critic", err);
    if (status != XRAY_OK)
        return status;
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
