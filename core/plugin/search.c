/* SPDX-License-Identifier: Apache-2.0
 *
 * Searches the plugin path, lists its files, and finds components by interface
 * and name.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "core/base/str.h"
#include "core/plugin/internal.h"

#if defined(__x86_64__)
#define TRIPLET "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define TRIPLET "aarch64-linux-gnu"
#else
#define TRIPLET ""
#endif
#define FOLDERS_MAX 64u

typedef struct found {
    xr_plugin_file file;
    const xray_plugin *plugin; /* NULL until loaded */
    xray_status failed;        /* status of the failed load; `why` is its
                                * error */
    xr_err why;
    char *path;
    char *refused;
    size_t folder; /* number of its folder; lower ones come first */
    int hidden;    /* 1: a file of an earlier folder has its name */
    xr_manifest manifest;
} found;

typedef struct folder {
    dev_t device;
    ino_t inode;
} folder;

struct xr_plugins {
    found *files;
    size_t count;
    size_t cap;
    folder folders[FOLDERS_MAX]; /* folders searched so far, so that none is
                                  * searched twice */
    size_t folder_count;
};

/* ---- one file ----------------------------------------------------------- */

/* A file hides those of the same name in later folders, so that a user can
 * replace an installed plugin. Within one folder, no file comes first. */
static xray_status check_name(const xr_plugins *plugins, found *new,
                              xr_err *err)
{
    xr_str why = { 0 };
    for (size_t i = 0; i < plugins->count && !new->refused; i++) {
        const found *old = &plugins->files[i];
        if (old->refused || strcmp(old->manifest.name, new->manifest.name) != 0)
            continue;
        if (old->folder == new->folder)
            return xr_fail(err, XRAY_E_CONFIG,
                           "plugin %s was found twice: %s and %s",
                           new->manifest.name, old->path, new->path);
        xr_str_printf(&why, "%s: hidden by %s, which comes earlier on the path",
                      new->path, old->path);
        new->hidden = 1;
        new->refused = why.failed ? NULL : xr_strdup(xr_str_text(&why));
        xr_str_free(&why);
        if (!new->refused)
            return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    }
    return XRAY_OK;
}

static void free_found(found *file)
{
    free(file->path);
    free(file->refused);
}

static xray_status add_file(xr_plugins *plugins, const char *path, xr_err *err)
{
    if (plugins->count == plugins->cap) {
        size_t cap = plugins->cap ? 2 * plugins->cap : 16;
        found *files = realloc(plugins->files, cap * sizeof(*files));
        if (!files)
            return xr_fail(err, XRAY_E_NOMEM, "out of memory");
        plugins->files = files;
        plugins->cap = cap;
    }
    xr_err why = { "" };
    found *new = &plugins->files[plugins->count];
    *new = (found){ .path = xr_strdup(path), .folder = plugins->folder_count };
    xray_status status = xr_manifest_read(path, &why, &new->manifest);
    if (status != XRAY_OK)
        new->refused = xr_strdup(why.text);
    /* A lack of memory is not a fault of the file. */
    if (!new->path || status == XRAY_E_NOMEM ||
        (status != XRAY_OK && !new->refused)) {
        free_found(new);
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    }
    status = check_name(plugins, new, err);
    if (status != XRAY_OK)
        free_found(new);
    else
        plugins->count++;
    return status;
}

/* ---- folders ------------------------------------------------------------ */

static int compare_names(const void *a, const void *b)
{
    char *const *x = a;
    char *const *y = b;
    return strcmp(*x, *y);
}

typedef struct name_list {
    char **items;
    size_t count;
    size_t cap;
} name_list;

static int add_name(name_list *list, const char *name)
{
    if (list->count == list->cap) {
        size_t cap = list->cap ? 2 * list->cap : 16;
        char **items = realloc(list->items, cap * sizeof(*items));
        if (!items)
            return -1;
        list->items = items;
        list->cap = cap;
    }
    list->items[list->count] = xr_strdup(name);
    if (!list->items[list->count])
        return -1;
    list->count++;
    return 0;
}

static int has_module_suffix(const char *name)
{
    size_t size = strlen(name);
    return size > 3 && strcmp(name + size - 3, ".so") == 0;
}

/* Lists the names in a folder that end in ".so", sorted, because the order of a
 * listing must not depend on the file system. */
static xray_status list_names(const char *path, xr_err *err, name_list *out)
{
    xray_status status = XRAY_OK;
    DIR *dir = opendir(path);
    if (!dir)
        return xr_fail(err, XRAY_E_IO, "plugin folder %s cannot be read: %s",
                       path, strerror(errno));
    for (const char *name;
         status == XRAY_OK && (name = xr_dir_next(dir, path, err, &status));)
        if (has_module_suffix(name) && add_name(out, name) != 0)
            status = xr_fail(err, XRAY_E_NOMEM,
                             "plugin folder %s: out of memory", path);
    (void)closedir(dir);
    if (out->count)
        qsort(out->items, out->count, sizeof(*out->items), compare_names);
    return status;
}

static int is_already_added(xr_plugins *plugins, const struct stat *st)
{
    for (size_t i = 0; i < plugins->folder_count; i++)
        if (plugins->folders[i].device == st->st_dev &&
            plugins->folders[i].inode == st->st_ino)
            return 1;
    plugins->folders[plugins->folder_count++] =
        (folder){ st->st_dev, st->st_ino };
    return 0;
}

static xray_status add_files(xr_plugins *plugins, const char *path, xr_err *err)
{
    name_list list = { 0 };
    xray_status status = list_names(path, err, &list);
    for (size_t i = 0; i < list.count; i++) {
        char file[XR_PATH_CAP];
        if (status == XRAY_OK)
            status = xr_path_join(path, list.items[i], file, sizeof(file), err);
        if (status == XRAY_OK)
            status = add_file(plugins, file, err);
        free(list.items[i]);
    }
    free(list.items);
    return status;
}

/* `must`: the user named the folder, so it has to exist. */
static xray_status add_folder(xr_plugins *plugins, const char *path, int must,
                              xr_err *err)
{
    struct stat st;
    int bad = stat(path, &st) != 0 ? errno : 0;
    if (bad == ENOENT || bad == ENOTDIR || (!bad && !S_ISDIR(st.st_mode)))
        return must ? xr_fail(err, XRAY_E_CONFIG,
                              "plugin folder %s: the folder does not exist",
                              path)
                    : XRAY_OK;
    if (bad)
        return xr_fail(err, XRAY_E_IO, "plugin folder %s cannot be read: %s",
                       path, strerror(bad));
    if (plugins->folder_count == FOLDERS_MAX)
        return xr_fail(err, XRAY_E_CONFIG, "plugin path: more than %u folders",
                       FOLDERS_MAX);
    return is_already_added(plugins, &st) ? XRAY_OK
                                          : add_files(plugins, path, err);
}

/* Adds a relative folder by its absolute path, because messages and other
 * processes must mean the same file. */
static xray_status add_named_folder(xr_plugins *plugins, const char *path,
                                    xr_err *err)
{
    char here[XR_PATH_CAP];
    char full[XR_PATH_CAP];
    if (*path == '/')
        return add_folder(plugins, path, 1, err);
    if (!getcwd(here, sizeof(here)))
        return xr_fail(err, XRAY_E_IO,
                       "plugin folder %s: the working directory is unknown: %s",
                       path, strerror(errno));
    xray_status status = xr_path_join(here, path, full, sizeof(full), err);
    return status == XRAY_OK ? add_folder(plugins, full, 1, err) : status;
}

static xray_status add_path(xr_plugins *plugins, const char *path, xr_err *err)
{
    while (path && *path) {
        char one[XR_PATH_CAP];
        size_t size = strcspn(path, ":");
        if (size >= sizeof(one))
            return xr_fail(err, XRAY_E_CONFIG,
                           "plugin path: a folder's name is too long");
        memcpy(one, path, size);
        one[size] = '\0';
        xray_status status =
            size ? add_named_folder(plugins, one, err) : XRAY_OK;
        if (status != XRAY_OK)
            return status;
        path += size + (path[size] == ':');
    }
    return XRAY_OK;
}

xray_status xr_own_folder(size_t i, char *buffer, size_t cap, xr_err *err)
{
    static const char *const folders[] = {
        "plugins",
        "../lib/xray/plugins",
        "../lib64/xray/plugins",
        "../lib/" TRIPLET "/xray/plugins",
    };
    char self[XR_PATH_CAP];
    ssize_t size = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (i >= sizeof(folders) / sizeof(folders[0]))
        return XRAY_END;
    if (size <= 0)
        return xr_fail(err, XRAY_E_IO,
                       "the program's own folder, where its plugins are, is "
                       "unknown: /proc/self/exe: %s",
                       strerror(errno));
    self[size] = '\0';
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    return xr_path_join(self, folders[i], buffer, cap, err);
}

static xray_status add_own_folders(xr_plugins *plugins, xr_err *err)
{
    for (size_t i = 0;; i++) {
        char path[XR_PATH_CAP];
        xray_status status = xr_own_folder(i, path, sizeof(path), err);
        if (status == XRAY_END)
            return XRAY_OK;
        if (status == XRAY_OK)
            status = add_folder(plugins, path, 0, err);
        if (status != XRAY_OK)
            return status;
    }
}

/* ---- the list ----------------------------------------------------------- */

xray_status xr_plugins_open(const char *path, xr_err *err, xr_plugins **out)
{
    xr_plugins *plugins = calloc(1, sizeof(*plugins));
    if (!plugins)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    xray_status status = add_path(plugins, path, err);
    if (status == XRAY_OK)
        status = add_path(plugins, getenv("XRAY_PLUGIN_PATH"), err);
    if (status == XRAY_OK)
        status = add_own_folders(plugins, err);
    if (status != XRAY_OK) {
        xr_plugins_close(plugins);
        return status;
    }
    /* The array does not move after this point. */
    for (size_t i = 0; i < plugins->count; i++) {
        found *f = &plugins->files[i];
        f->file = (xr_plugin_file){ .path = f->path,
                                    .name = f->manifest.name,
                                    .version = f->manifest.version,
                                    .provides = f->manifest.provides,
                                    .refused = f->refused,
                                    .hidden = f->hidden };
        if (f->refused)
            f->file.name = f->file.version = f->file.provides = "";
    }
    *out = plugins;
    return XRAY_OK;
}

void xr_plugins_close(xr_plugins *plugins)
{
    if (!plugins)
        return;
    for (size_t i = 0; i < plugins->count; i++)
        free_found(&plugins->files[i]);
    free(plugins->files);
    free(plugins);
}

size_t xr_plugins_count(const xr_plugins *plugins)
{
    return plugins->count;
}

const xr_plugin_file *xr_plugins_at(const xr_plugins *plugins, size_t i)
{
    return i < plugins->count ? &plugins->files[i].file : NULL;
}

/* ---- finding ------------------------------------------------------------ */

/* Visits the words of `provides` that belong to an interface: returns the name
 * after ':' of the next one, or NULL. */
static const char *next_name(const char **at, const char *iface, size_t *size)
{
    size_t prefix = strlen(iface);
    while (**at) {
        *at += strspn(*at, " ");
        const char *word = *at;
        size_t length = strcspn(word, " ");
        *at += length;
        if (length > prefix && memcmp(word, iface, prefix) == 0 &&
            word[prefix] == ':') {
            *size = length - prefix - 1;
            return word + prefix + 1;
        }
    }
    return NULL;
}

static int file_provides(const found *file, const char *iface, const char *name)
{
    const char *at = file->file.provides;
    size_t size = 0;
    for (const char *n = next_name(&at, iface, &size); n;
         n = next_name(&at, iface, &size))
        if (strlen(name) == size && memcmp(n, name, size) == 0)
            return 1;
    return 0;
}

/* The available names, and the one that may have been meant. */
typedef struct offers {
    const char *name; /* that was not found */
    xr_str names;
    char near[128];
    unsigned best; /* edit distance that `near` is below */
} offers;

static void add_offers(const char *provides, const char *iface, offers *o)
{
    size_t size = 0;
    for (const char *n = next_name(&provides, iface, &size); n;
         n = next_name(&provides, iface, &size)) {
        char one[128];
        (void)snprintf(one, sizeof(one), "%.*s", (int)size, n);
        xr_str_printf(&o->names, "%s%s", o->names.size ? ", " : "", one);
        unsigned distance = xr_edit_distance(o->name, one, 2);
        if (distance < o->best) {
            o->best = distance;
            memcpy(o->near, one, sizeof(o->near));
        }
    }
}

static xray_status fail_not_found(const xr_plugins *plugins, const char *iface,
                                  const char *name, xr_err *err)
{
    /* [run] runtime takes these without a plugin, and names of launchers. */
    static const char own[] = XRAY_IFACE_RUNTIME
        ":auto " XRAY_IFACE_RUNTIME ":hosts " XRAY_IFACE_RUNTIME ":local";
    offers o = { .name = name };
    o.best = strlen(name) < 5 ? 2 : 3;
    size_t refused = 0;
    const char *why = "";
    add_offers(own, iface, &o);
    for (size_t i = 0; i < plugins->count; i++) {
        if (plugins->files[i].refused && !plugins->files[i].hidden) {
            refused++;
            why = plugins->files[i].refused;
        }
        add_offers(plugins->files[i].file.provides, iface, &o);
        if (strcmp(iface, XRAY_IFACE_RUNTIME) == 0)
            add_offers(plugins->files[i].file.provides, XRAY_IFACE_LAUNCHER,
                       &o);
    }
    char note[512] = "";
    if (refused == 1)
        (void)snprintf(note, sizeof(note), "; a file was refused: %s", why);
    else if (refused)
        (void)snprintf(note, sizeof(note),
                       "; %zu files were refused, see `xray plugin list`",
                       refused);
    (void)xr_fail(
        err, XRAY_E_CONFIG, "no plugin provides %s:%s; available: %s%s%s%s%s",
        iface, name, o.names.size ? xr_str_text(&o.names) : "none",
        *o.near ? "; did you mean " : "", o.near, *o.near ? "?" : "", note);
    xr_str_free(&o.names);
    return XRAY_E_CONFIG;
}

xray_status xr_plugins_find(xr_plugins *plugins, const char *iface,
                            const char *name, xr_err *err,
                            const xray_component **out)
{
    found *file = NULL;
    for (size_t i = 0; i < plugins->count; i++) {
        found *f = &plugins->files[i];
        if (!file_provides(f, iface, name))
            continue;
        if (file)
            return xr_fail(err, XRAY_E_CONFIG,
                           "%s:%s is provided twice, by %s and %s", iface, name,
                           file->path, f->path);
        file = f;
    }
    if (!file)
        return fail_not_found(plugins, iface, name, err);
    /* A file that hung or crashed in its trial is not tried again. */
    if (!file->plugin && file->failed == XRAY_OK)
        file->failed = xr_plugin_load(file->path, &file->why, &file->plugin);
    if (!file->plugin)
        return xr_fail(err, file->failed, "%s", file->why.text);
    for (uint32_t i = 0; i < file->plugin->component_count; i++) {
        const xray_component *c = file->plugin->components[i];
        if (strcmp(c->iface, iface) == 0 && strcmp(c->name, name) == 0) {
            *out = c;
            return XRAY_OK;
        }
    }
    return xr_fail(err, XRAY_E_BUG, "%s: lost %s:%s", file->path, iface, name);
}
