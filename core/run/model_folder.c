/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks at the folder of a model: finds the newest checkpoint that a path
 * stands for, compares checkpoints with their manifest, checks for weights, and
 * advises on weights in another format.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/file.h"
#include "core/base/hub.h"
#include "core/base/str.h"
#include "core/run/inventory.h"
#include "core/run/run_setup.h"

const char *xr_run_model_dir(const char *path, const char *leaf, char *buffer,
                             size_t cap)
{
    char file[XR_PATH_CAP];
    char *text = NULL;
    size_t size = 0;
    if (xr_path_join(path, "latest_checkpointed_iteration.txt", file,
                     sizeof(file), NULL) != XRAY_OK ||
        !xr_path_exists(file) ||
        xr_file_read(file, 64, NULL, &text, &size) != XRAY_OK)
        return path;
    (void)snprintf(buffer, cap, "%s/global_step_%ld/%s", path,
                   strtol(text, NULL, 10), leaf);
    free(text);
    return buffer;
}

/* ---- checkpoints -------------------------------------------------------- */

static int is_same_folder(const char *a, const char *b)
{
    struct stat x;
    struct stat y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

static int has_file(const char *dir, const char *name)
{
    char path[XR_PATH_CAP];
    return xr_path_join(dir, name, path, sizeof(path), NULL) == XRAY_OK &&
           xr_path_exists(path);
}

/* Returns 1 if this program wrote the folder as a checkpoint, even if it was
 * damaged since. */
static int is_checkpoint_folder(const char *dir)
{
    char path[XR_PATH_CAP];
    char *text = NULL;
    size_t size = 0;
    if (has_file(dir, "state.json") && has_file(dir, "run.ini"))
        return 1;
    if (xr_path_join(dir, XR_INVENTORY_FILE, path, sizeof(path), NULL) !=
            XRAY_OK ||
        xr_file_read(path, (size_t)64 << 20, NULL, &text, &size) != XRAY_OK)
        return 0;
    int is = strstr(text, "\"xray.checkpoint/") != NULL;
    free(text);
    return is;
}

/* Replaces `up` (dir/..) by the parent's own path if both are the same folder,
 * since that reads better in an error. */
static void shorten_parent_path(const char *dir, char *up)
{
    char text[XR_PATH_CAP];
    size_t size = strlen(dir);
    while (size > 1 && dir[size - 1] == '/')
        size--;
    while (size && dir[size - 1] != '/')
        size--;
    while (size > 1 && dir[size - 1] == '/')
        size--;
    (void)snprintf(text, sizeof(text), "%.*s", (int)size, dir);
    if (!size)
        (void)snprintf(text, sizeof(text), ".");
    if (is_same_folder(text, up))
        (void)snprintf(up, XR_PATH_CAP, "%s", text);
}

xray_status xr_run_verify_folder(const char *dir, int sums, xr_err *err)
{
    static const char *const leaves[] = { "actor", "critic" };
    char up[XR_PATH_CAP];
    char there[XR_PATH_CAP];
    /* Compares the folders themselves and not their names, since one may be a
     * link. */
    if (xr_path_join(dir, "..", up, sizeof(up), err) != XRAY_OK)
        return XRAY_E_RANGE;
    for (size_t i = 0; i < 2; i++) {
        if (xr_path_join(up, leaves[i], there, sizeof(there), NULL) !=
                XRAY_OK ||
            !is_same_folder(there, dir) || !is_checkpoint_folder(up))
            continue;
        shorten_parent_path(dir, up);
        return xr_inventory_verify_model(up, leaves[i], sums, err);
    }
    return XRAY_OK;
}

xray_status xr_run_verify_models(const xr_run *run, xr_err *err)
{
    const xr_model_slot *const slots[] = { &run->actor, &run->critic,
                                           &run->reward_model };
    xray_status status = XRAY_OK;
    for (size_t i = 0; i < 3 && status == XRAY_OK; i++)
        if (slots[i]->path && !slots[i]->model.random_init &&
            (i == 0 || strcmp(slots[i]->path, run->actor.path) != 0))
            status = xr_run_verify_folder(slots[i]->path, 1, err);
    return status;
}

/* ---- weights ------------------------------------------------------------ */

int xr_run_has_weights(const char *dir)
{
    static const char *const names[] = { "model.safetensors",
                                         "model.safetensors.index.json" };
    char path[XR_PATH_CAP];
    for (size_t i = 0; i < 2; i++)
        if (xr_path_join(dir, names[i], path, sizeof(path), NULL) == XRAY_OK &&
            xr_path_exists(path))
            return 1;
    return 0;
}

/* A format of weights, recognized by the name of a file, and a command that
 * converts it to safetensors: @ stands for the folder and # for the file. The
 * class comes from config.json, so that the command works for classifiers as
 * well. */
typedef struct form {
    const char *prefix;
    const char *suffix;
    const char *does; /* text before the command */
    const char *line;
} form;

#define PYTHON "python3 -c \"import transformers as t; d='@'; "
#define CLASS "getattr(t, t.AutoConfig.from_pretrained(d).architectures[0])"
#define CONVERTS ", which this line converts: "

/* The first format that fits a name is used. */
static const form forms[] = {
    { "pytorch_model", ".bin", CONVERTS, "xray convert '@' '@-safetensors'" },
    { "", ".gguf", CONVERTS,
      PYTHON "t.AutoModelForCausalLM.from_pretrained(d, gguf_file='#')"
             ".save_pretrained(d)\"" },
    { "consolidated.", ".pth", ", Llama's own form, which this line converts: ",
      "python3 -m transformers.models.llama.convert_llama_weights_to_hf "
      "--input_dir '@' --output_dir '@-hf'" },
    { "", ".msgpack", ", which this line converts with transformers 4: ",
      PYTHON CLASS ".from_pretrained(d, from_flax=True).save_pretrained(d)\"" },
    { "", ".h5", ", which this line converts with transformers 4: ",
      PYTHON CLASS ".from_pretrained(d, from_tf=True).save_pretrained(d)\"" },
    { "model-", ".safetensors",
      " without the model.safetensors.index.json that belongs to it", "" },
    { "", ".safetensors", " under a name that this xray does not read", "" },
    { "", ".pt", CONVERTS, "xray convert '@/#' '@-safetensors'" },
    { "", ".pth", CONVERTS, "xray convert '@/#' '@-safetensors'" },
};
#define FORMS (sizeof(forms) / sizeof(forms[0]))

/* Returns 1 for files that transformers' Trainer writes besides a model. */
static int is_trainer_state(const char *name)
{
    static const char *const prefixes[] = { "optimizer", "scheduler",
                                            "rng_state", "scaler" };
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return 1;
    return 0;
}

static size_t find_weights_form(const char *name)
{
    size_t size = strlen(name);
    if (is_trainer_state(name))
        return FORMS;
    for (size_t i = 0; i < FORMS; i++) {
        size_t prefix = strlen(forms[i].prefix);
        size_t suffix = strlen(forms[i].suffix);
        if (size >= prefix + suffix &&
            strncmp(name, forms[i].prefix, prefix) == 0 &&
            strcmp(name + size - suffix, forms[i].suffix) == 0)
            return i;
    }
    return FORMS;
}

static void put_convert_line(const char *line, const char *dir,
                             const char *name, xr_str *out)
{
    for (; *line; line++)
        if (*line == '@')
            xr_str_puts(out, dir);
        else if (*line == '#')
            xr_str_puts(out, name);
        else
            xr_str_append(out, line, 1);
}

/* The weights found in a folder: their format (the first in the table), the
 * lowest file name of that format, and the number of its files. */
typedef struct found {
    size_t form;
    size_t count;
    char name[256];
} found;

static void note_weights_file(const char *name, found *f)
{
    size_t is = find_weights_form(name);
    if (is == FORMS || is > f->form)
        return;
    if (is < f->form)
        f->count = 0;
    if (!f->count || strcmp(name, f->name) < 0)
        (void)snprintf(f->name, sizeof(f->name), "%s", name);
    f->form = is;
    f->count++;
}

void xr_run_report_no_weights(const xr_run *run, const char *section,
                              const char *key, const char *dir,
                              xr_errors *errors)
{
    found f = { .form = FORMS };
    char line[XR_PATH_CAP];
    xr_str text = { 0 };
    DIR *open = opendir(dir);
    xray_status status = XRAY_OK; /* what it holds is only a hint */
    for (const char *name;
         open && (name = xr_dir_next(open, dir, NULL, &status));)
        note_weights_file(name, &f);
    if (open)
        (void)closedir(open);
    if (f.form < FORMS) {
        xr_str_printf(&text, "it holds %s", f.name);
        if (f.count > 1)
            xr_str_printf(&text, " and %zu more of that kind", f.count - 1);
        xr_str_puts(&text, forms[f.form].does);
        put_convert_line(forms[f.form].line, dir, f.name, &text);
        xr_str_puts(&text, "; ");
    }
    /* Weights in another format are complete; nothing is to be downloaded. */
    if ((f.form == FORMS || !*forms[f.form].line) &&
        xr_hub_download(dir, line, sizeof line)) {
        xr_str_printf(
            &text, "its download did not finish, which %s completes; ", line);
    }
    xr_errors_add(errors,
                  "%s: [%s] %s: %s holds no weights, expected "
                  "model.safetensors or model.safetensors.index.json; "
                  "%s[model] init = random initializes them",
                  xr_config_location(run->config, section, key), section, key,
                  dir, xr_str_text(&text));
    xr_str_free(&text);
}
