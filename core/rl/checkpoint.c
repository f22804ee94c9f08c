/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the files of a checkpoint and reads them back.
 */
#include "core/rl/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/plugin/cancel.h"
#include "core/rl/checkpoint_folder.h"
#include "core/roles/plugin_results.h"
#include "core/roles/role_calls.h"
#include "core/run/inventory.h"

#define STATE_VERSION 1

static void append_count(xr_str *out, const char *key, uint64_t value)
{
    xr_str_printf(out, ", \"%s\": \"%llu\"", key, (unsigned long long)value);
}

/* Appends the algorithm's state as hexadecimal digits, since it is small and
 * opaque. */
static xray_status append_algo_state(const xr_roles *roles, xr_str *out,
                                     xr_err *err)
{
    const xr_part *part = roles->algo.part;
    const xray_algo_ops *ops = xr_algo(roles->run);
    uint64_t size = 0;
    if (!roles->algo.self || !XRAY_HAS(xray_algo_ops, ops, save))
        return XRAY_OK;
    xray_status status =
        XR_CALL(part, "save", ops->save(roles->algo.self, NULL, 0, &size));
    if (status != XRAY_OK && status != XRAY_E_RANGE)
        return xr_host_error(part->host, status, "save", err);
    if (status ==
        XRAY_E_RANGE) /* the expected answer to a call without a buffer */
        (void)xr_host_error(part->host, status, "save", NULL);
    const uint64_t cap = size;
    status = xr_check_wanted_size(part, "save", cap, err);
    if (status != XRAY_OK)
        return status;
    unsigned char *blob = xr_calloc((size_t)cap + 1, 1);
    if (!blob)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for %s",
                       part->instance);
    status =
        XR_CALL(part, "save", ops->save(roles->algo.self, blob, cap, &size));
    status = status == XRAY_OK
                 ? xr_check_written_size(part, "save", size, cap, err)
                 : xr_host_error(part->host, status, "save", err);
    if (status == XRAY_OK) {
        xr_str_puts(out, ", \"algo\": \"");
        for (uint64_t i = 0; i < size; i++)
            xr_str_printf(out, "%02x", blob[i]);
        xr_str_puts(out, "\"");
    }
    free(blob);
    return status;
}

static xray_status write_state_file(const xr_roles *roles, const xr_progress *p,
                                    const char *dir, xr_err *err)
{
    xr_str out = { 0 };
    char path[XR_PATH_CAP];
    xr_str_printf(&out, "{\"version\": %d, \"kind\": \"%s\"", STATE_VERSION,
                  p->kind);
    append_count(&out, "step", p->step);
    append_count(&out, "seed", p->seed);
    append_count(&out, "rows", p->rows);
    append_count(&out, "epoch", p->sampler_epoch);
    append_count(&out, "position", p->sampler_position);
    xr_str_puts(&out, ", \"score_before\": ");
    xr_str_number(&out, p->score_before);
    xr_str_puts(&out, ", \"score_now\": ");
    xr_str_number(&out, p->score_now);
    xray_status status = append_algo_state(roles, &out, err);
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

static xray_status write_config_file(const xr_run *run, const char *dir,
                                     xr_err *err)
{
    xr_str out = { 0 };
    char path[XR_PATH_CAP];
    xr_config_print(run->config, 0, &out);
    xray_status status = xr_path_join(dir, "run.ini", path, sizeof(path), err);
    if (status == XRAY_OK && out.failed)
        status = xr_fail(err, XRAY_E_NOMEM, "out of memory for run.ini");
    if (status == XRAY_OK)
        status = xr_file_write(path, xr_str_text(&out), out.size, err);
    xr_str_free(&out);
    return status;
}

/* Copies the files that a Hugging Face folder holds besides its weights. */
static xray_status copy_model_files(const xr_run *run, const char *model,
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
        const char *tokenizer = run->ini.model.tokenizer_path;
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
    /* A chat template given in the INI is the one that the model was trained
     * with, so it goes beside the weights. */
    const char *chat = run->ini.data.chat_template;
    char to[XR_PATH_CAP];
    if (!chat || !*chat)
        return XRAY_OK;
    status = xr_path_join(dir, "chat_template.jinja", to, sizeof(to), err);
    return status == XRAY_OK ? xr_file_copy(chat, to, err) : status;
}

/* Writes the folder of a trained model. Files that are not the backend's are
 * copied from the folder that the model was read from. */
static xray_status write_model_folder(xr_roles *roles, uint32_t role,
                                      const char *checkpoint, xr_err *err)
{
    const char *from = xr_run_model(roles->run, role)->path;
    char dir[XR_PATH_CAP];
    xray_status status =
        xr_path_join(checkpoint, xr_role_name(role), dir, sizeof(dir), err);
    if (status != XRAY_OK)
        return status;
    status = xr_dir_make(dir, err);
    if (status != XRAY_OK)
        return status;
    status = copy_model_files(roles->run, from, dir, err);
    if (status != XRAY_OK)
        return status;
    return xr_role_save(roles, role, dir, err);
}

static xray_status fill_checkpoint(xr_roles *roles, const xr_progress *p,
                                   const xr_history *history, const char *dir,
                                   xr_err *err)
{
    xray_status status = write_model_folder(roles, XRAY_ROLE_ACTOR, dir, err);
    if (status != XRAY_OK)
        return status;
    if (roles->critic.self)
        status = write_model_folder(roles, XRAY_ROLE_CRITIC, dir, err);
    if (status != XRAY_OK)
        return status;
    status = write_config_file(roles->run, dir, err);
    if (status != XRAY_OK)
        return status;
    status = write_state_file(roles, p, dir, err);
    if (status != XRAY_OK)
        return status;
    status = xr_history_write(dir, history, err);
    if (status != XRAY_OK)
        return status;
    return xr_inventory_write(dir, err);
}

xray_status xr_checkpoint_save(xr_roles *roles, const xr_progress *p,
                               const xr_history *history, char *out_path,
                               xr_err *err)
{
    const char *root = roles->run->ini.trainer.default_local_dir;
    char temporary[XR_PATH_CAP + 8];
    char path[XR_PATH_CAP];
    xray_status status = xr_step_path(root, "", p->step, path, err);
    if (status != XRAY_OK)
        return status;
    (void)snprintf(temporary, sizeof(temporary), "%s.tmp", path);
    status = xr_dir_remove(temporary, err);
    if (status == XRAY_OK)
        status = xr_dir_make(temporary, err);
    if (status == XRAY_OK)
        status = fill_checkpoint(roles, p, history, temporary, err);
    if (status == XRAY_OK)
        status = xr_cancel_check(err);
    if (status == XRAY_OK)
        status = xr_step_install(root, temporary, p->step, err);
    if (status != XRAY_OK)
        (void)xr_dir_remove(temporary, NULL);
    if (status == XRAY_OK)
        status = xr_steps_prune(roles->run, history->run, p->step, err);
    if (status != XRAY_OK)
        return xr_fail_in(err, status, "checkpoint of step %llu",
                          (unsigned long long)p->step);
    memcpy(out_path, path, strlen(path) + 1);
    return XRAY_OK;
}

/* ---- reading ------------------------------------------------------------ */

static xray_status read_count(const cJSON *json, const char *key,
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

static xray_status read_progress(const cJSON *json, const char *where,
                                 xr_progress *out, const char **out_kind,
                                 xr_err *err)
{
    int64_t version = 0;
    xray_status status = xr_json_int(json, "version", where, err, &version);
    if (status != XRAY_OK)
        return status;
    if (version != STATE_VERSION)
        status =
            xr_fail(err, XRAY_E_IO, "%s: version is %lld, this xray reads %d",
                    where, (long long)version, STATE_VERSION);
    if (status != XRAY_OK)
        return status;
    status = xr_json_string(json, "kind", where, err, out_kind);
    if (status != XRAY_OK)
        return status;
    status = read_count(json, "step", where, &out->step, err);
    if (status != XRAY_OK)
        return status;
    status = read_count(json, "seed", where, &out->seed, err);
    if (status != XRAY_OK)
        return status;
    status = read_count(json, "rows", where, &out->rows, err);
    if (status != XRAY_OK)
        return status;
    status = read_count(json, "epoch", where, &out->sampler_epoch, err);
    if (status != XRAY_OK)
        return status;
    status = read_count(json, "position", where, &out->sampler_position, err);
    if (status != XRAY_OK)
        return status;
    status = xr_json_real_or(json, "score_before", NAN, where, err,
                             &out->score_before);
    if (status != XRAY_OK)
        return status;
    return xr_json_real_or(json, "score_now", NAN, where, err, &out->score_now);
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
        status = read_progress(json, where, &read, &kind, err);
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
    else if (status == XRAY_OK && expect->rows && read.rows != expect->rows)
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

static int parse_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static xray_status restore_algo_state(const xr_roles *roles, const char *hex,
                                      const char *where, xr_err *err)
{
    size_t size = strlen(hex) / 2;
    unsigned char *blob = xr_calloc(size + 1, 1);
    if (!blob)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for %s", where);
    for (size_t i = 0; i < size; i++) {
        int high = parse_hex_digit(hex[2 * i]);
        int low = parse_hex_digit(hex[2 * i + 1]);
        if (high < 0 || low < 0) {
            free(blob);
            return xr_fail(err, XRAY_E_IO, "%s: algo is not hexadecimal",
                           where);
        }
        blob[i] = (unsigned char)(high * 16 + low);
    }
    xray_status status =
        XR_CALL(roles->algo.part, "load",
                xr_algo(roles->run)->load(roles->algo.self, blob, size));
    free(blob);
    return status == XRAY_OK
               ? XRAY_OK
               : xr_host_error(roles->algo.part->host, status, "load", err);
}

static xray_status restore_model(xr_roles *roles, uint32_t role,
                                 const char *path, xr_err *err)
{
    char where[XR_PATH_CAP];
    const char *leaf = xr_role_name(role);
    xray_status status = xr_path_join(path, leaf, where, sizeof(where), err);
    if (status == XRAY_OK && !xr_path_is_dir(where))
        return xr_fail(err, XRAY_E_IO,
                       "%s: the checkpoint has no %s, which this run trains",
                       where, leaf);
    return status == XRAY_OK ? xr_role_load(roles, role, where, err) : status;
}

xray_status xr_checkpoint_restore(xr_roles *roles, const char *path,
                                  int with_algo, xr_err *err)
{
    char where[XR_PATH_CAP];
    cJSON *json = NULL;
    const char *hex = "";
    xray_status status = restore_model(roles, XRAY_ROLE_ACTOR, path, err);
    if (status == XRAY_OK && roles->critic.self)
        status = restore_model(roles, XRAY_ROLE_CRITIC, path, err);
    if (status != XRAY_OK)
        return status;
    if (!with_algo || !roles->algo.self ||
        !XRAY_HAS(xray_algo_ops, xr_algo(roles->run), load))
        return XRAY_OK;
    status = xr_path_join(path, "state.json", where, sizeof(where), err);
    if (status == XRAY_OK)
        status = xr_json_file(where, err, &json);
    if (status == XRAY_OK)
        status = xr_json_string_or(json, "algo", "", where, err, &hex);
    if (status == XRAY_OK && *hex)
        status = restore_algo_state(roles, hex, where, err);
    cJSON_Delete(json);
    return status;
}
