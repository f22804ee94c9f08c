/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the layout of the hub's cache, as huggingface_hub documents it:
 * models--ORG--NAME/refs/REVISION holds the commit, and snapshots/COMMIT its
 * files.
 */
#include "core/base/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/str.h"

#define COMMIT_DIGITS 40u
#define ID_CAP 256u
#define SNAPSHOTS "/snapshots/"
#define MODELS "models--"

/* The parts of "ORG/NAME@REVISION". */
typedef struct hub_id {
    char name[ID_CAP]; /* ORG/NAME */
    char revision[ID_CAP];
    int given; /* 1: the text has a revision */
} hub_id;

static int is_word(const char *text, size_t size, const char *also)
{
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') &&
            !(c >= '0' && c <= '9') && !strchr(also, c))
            return 0;
    }
    return size > 0 && text[0] != '.' && text[0] != '-' && text[0] != '/';
}

/* Neither part of a name begins with a point, so no id leads out of the cache;
 * "--" separates the parts in the names of its folders. */
static int split_id(const char *text, hub_id *out)
{
    const char *at = strchr(text, '@');
    size_t size = at ? (size_t)(at - text) : strlen(text);
    const char *slash = memchr(text, '/', size);
    size_t org = slash ? (size_t)(slash - text) : 0;
    const char *name = slash ? slash + 1 : text;
    size_t rest = size - (slash ? org + 1 : 0);
    const char *revision = at ? at + 1 : "main";
    if (size >= ID_CAP || strlen(revision) >= ID_CAP ||
        (slash && !is_word(text, org, "._-")) || !is_word(name, rest, "._-") ||
        !is_word(revision, strlen(revision), "._-/") ||
        strstr(revision, "..") || revision[strlen(revision) - 1] == '/')
        return 0;
    *out = (hub_id){ .given = at != NULL };
    memcpy(out->name, text, size);
    (void)snprintf(out->revision, sizeof out->revision, "%s", revision);
    return !strstr(out->name, "--") && !strstr(out->name, "..");
}

int xr_hub_is_id(const char *text)
{
    hub_id id;
    return split_id(text, &id);
}

/* ---- the cache ---------------------------------------------------------- */

static int join_variable(const char *variable, const char *below, char *buffer,
                         size_t cap)
{
    const char *value = getenv(variable);
    if (!value || !*value)
        return 0;
    int size = snprintf(buffer, cap, "%s%s", value, below);
    return size > 0 && (size_t)size < cap;
}

static xray_status find_cache(char *buffer, size_t cap, xr_err *err)
{
    static const char *const places[][2] = {
        { "HF_HUB_CACHE", "" },
        { "HUGGINGFACE_HUB_CACHE", "" }, /* its older name */
        { "HF_HOME", "/hub" },
        { "XDG_CACHE_HOME", "/huggingface/hub" },
        { "HOME", "/.cache/huggingface/hub" },
    };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (join_variable(places[i][0], places[i][1], buffer, cap))
            return XRAY_OK;
    return xr_fail(err, XRAY_E_IO,
                   "the environment names no cache of the Hugging Face hub "
                   "(HF_HUB_CACHE, HF_HOME or HOME)");
}

/* CACHE/models--ORG--NAME */
static xray_status find_model(const hub_id *id, char *buffer, size_t cap,
                              xr_err *err)
{
    char cache[XR_PATH_CAP];
    xr_str name = { 0 };
    xray_status status = find_cache(cache, sizeof cache, err);
    if (status)
        return status;
    xr_str_puts(&name, MODELS);
    for (const char *c = id->name; *c; c++)
        xr_str_append(&name, *c == '/' ? "--" : c, *c == '/' ? 2 : 1);
    status = name.failed ? xr_fail(err, XRAY_E_NOMEM, "out of memory")
                         : xr_path_join(cache, name.data, buffer, cap, err);
    xr_str_free(&name);
    if (status || xr_path_is_dir(buffer))
        return status;
    return xr_fail(err, XRAY_E_IO,
                   "the Hugging Face cache %s has no %s; hf download %s%s%s "
                   "fetches it",
                   cache, id->name, id->name, id->given ? " --revision " : "",
                   id->given ? id->revision : "");
}

/* The commit is the revision itself, or what its file in refs/ holds. */
static void read_commit(const char *model, const hub_id *id,
                        char commit[COMMIT_DIGITS + 1])
{
    char path[XR_PATH_CAP];
    char *text = NULL;
    size_t size = 0;
    const char *from = id->revision;
    commit[0] = '\0';
    int length = snprintf(path, sizeof path, "%s/refs/%s", model, from);
    if (length > 0 && (size_t)length < sizeof path &&
        xr_file_read(path, 4096, NULL, &text, &size) == XRAY_OK)
        from = text;
    if (strspn(from, "0123456789abcdef") == COMMIT_DIGITS)
        (void)snprintf(commit, COMMIT_DIGITS + 1, "%.40s", from);
    free(text);
}

xray_status xr_hub_find(const char *text, char *buffer, size_t cap, xr_err *err)
{
    hub_id id;
    char model[XR_PATH_CAP];
    char commit[COMMIT_DIGITS + 1];
    if (!split_id(text, &id))
        return xr_fail(err, XRAY_E_ARG, "%s: is not the id of a model", text);
    xray_status status = find_model(&id, model, sizeof model, err);
    if (status)
        return status;
    read_commit(model, &id, commit);
    if (!commit[0])
        return xr_fail(err, XRAY_E_IO,
                       "%s has no revision %s; hf download %s%s%s fetches it",
                       model, id.revision, id.name,
                       id.given ? " --revision " : "",
                       id.given ? id.revision : "");
    int size = snprintf(buffer, cap, "%s" SNAPSHOTS "%s", model, commit);
    if (size < 0 || (size_t)size >= cap)
        return xr_fail(err, XRAY_E_RANGE, "%s: the path is too long", model);
    if (!xr_path_is_dir(buffer))
        return xr_fail(err, XRAY_E_IO,
                       "%s has no snapshot %s; hf download %s --revision %s "
                       "fetches it",
                       model, commit, id.name, commit);
    return XRAY_OK;
}

int xr_hub_download(const char *dir, char *buffer, size_t cap)
{
    const char *at = strstr(dir, SNAPSHOTS);
    const char *model = at;
    if (!at)
        return 0;
    while (model > dir && model[-1] != '/')
        model--;
    const char *commit = at + strlen(SNAPSHOTS);
    size_t digits = strspn(commit, "0123456789abcdef");
    if (strncmp(model, MODELS, strlen(MODELS)) != 0 ||
        digits != COMMIT_DIGITS || commit[digits + (commit[digits] == '/')])
        return 0;
    model += strlen(MODELS);
    const char *parts = strstr(model, "--");
    int split = parts && parts < at;
    int size = snprintf(buffer, cap, "hf download %.*s%s%.*s --revision %.40s",
                        (int)((split ? parts : at) - model), model,
                        split ? "/" : "", split ? (int)(at - parts - 2) : 0,
                        split ? parts + 2 : "", commit);
    return size > 0 && (size_t)size < cap;
}
