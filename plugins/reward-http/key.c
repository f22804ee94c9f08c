/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the key of a server from the environment or a file that only its owner
 * can read, and keeps it out of messages.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/system_error.h"
#include "plugins/reward-http/http.h"

#define KEY_CAP 8192u
#define SHORTEST_KEY 8u

/* Drops white space at the end. The rest must be fit for a header. */
static xray_status check_key(const char *option, const char *name, char *key,
                             xr_err *err)
{
    size_t size = strlen(key);
    while (size && strchr(" \t\r\n", key[size - 1]))
        key[--size] = '\0';
    if (size < SHORTEST_KEY) /* a shorter one would be covered in any text */
        return xr_fail_key(err, XRAY_E_CONFIG, NULL, option,
                           " = %s: expected a key of at least %u characters",
                           name, SHORTEST_KEY);
    for (size_t i = 0; i < size; i++)
        if (key[i] < 0x21 || key[i] > 0x7e)
            return xr_fail_key(err, XRAY_E_CONFIG, NULL, option,
                               " = %s: byte %zu of the key is no visible "
                               "character of ASCII",
                               name, i + 1);
    return XRAY_OK;
}

static xray_status read_open_file(int fd, const char *path, xr_err *err,
                                  char *key)
{
    struct stat file;
    size_t size = 0;
    ssize_t got = 1;
    if (fstat(fd, &file))
        return xr_fail_key(err, XRAY_E_CONFIG, NULL, "key_file", " = %s: %s",
                           path, XR_SYSTEM_ERROR(errno));
    if (file.st_mode & 077)
        return xr_fail_key(err, XRAY_E_CONFIG, NULL, "key_file",
                           " = %s: others may read or write it (mode %04o); "
                           "expected 0600, as after chmod 600",
                           path, (unsigned)(file.st_mode & 07777));
    while (size < KEY_CAP && got > 0) {
        got = read(fd, key + size, KEY_CAP - size);
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got > 0)
            size += (size_t)got;
    }
    if (got < 0)
        return xr_fail_key(err, XRAY_E_CONFIG, NULL, "key_file", " = %s: %s",
                           path, XR_SYSTEM_ERROR(errno));
    if (size == KEY_CAP)
        return xr_fail_key(err, XRAY_E_CONFIG, NULL, "key_file",
                           " = %s: a key has less than %u bytes", path,
                           KEY_CAP);
    key[size] = '\0';
    return XRAY_OK;
}

static xray_status read_file(const char *path, xr_err *err, char **out)
{
    int fd = -1;
    uint64_t size = 0;
    xray_status status = xr_file_open(path, err, &fd, &size);
    if (status != XRAY_OK)
        return xr_fail_in(err, XRAY_E_CONFIG, "key_file");
    char *key = xr_calloc(1, KEY_CAP + 1);
    status = key ? read_open_file(fd, path, err, key)
                 : xr_fail(err, XRAY_E_NOMEM, "out of memory");
    (void)close(fd);
    *out = key;
    return status;
}

xray_status http_key_read(const http_config *config, xr_err *err, char **out)
{
    const char *name = config->key_env;
    const char *option = *name ? "key_env" : "key_file";
    char *key = NULL;
    xray_status status = XRAY_OK;
    *out = NULL;
    if (*name && *config->key_file)
        return xr_fail_key(err, XRAY_E_CONFIG, NULL, "key_file",
                           " and key_env are both set; expected one of them");
    if (*name) {
        const char *value = getenv(name);
        if (!value)
            return xr_fail_key(err, XRAY_E_CONFIG, NULL, option,
                               " = %s: the environment has no such variable",
                               name);
        key = xr_strdup(value);
        if (!key)
            status = xr_fail(err, XRAY_E_NOMEM, "out of memory");
    } else if (*config->key_file) {
        name = config->key_file;
        status = read_file(name, err, &key);
    }
    if (status == XRAY_OK && key)
        status = check_key(option, name, key, err);
    if (status != XRAY_OK) {
        free(key);
        return status;
    }
    *out = key;
    return XRAY_OK;
}

static int read_hex(const char *text, size_t digits)
{
    int value = 0;
    for (size_t i = 0; i < digits; i++) {
        static const char all[] = "0123456789abcdef0123456789ABCDEF";
        const char *at = text[i] ? strchr(all, text[i]) : NULL;
        if (!at)
            return -1;
        value = 16 * value + (int)((at - all) % 16);
    }
    return value;
}

/* Returns the bytes at `text` that stand for the character `c` as JSON or an
 * address may write it, or 0. */
static size_t measure_character(const char *text, size_t size, char c)
{
    if (size >= 6 && text[0] == '\\' && text[1] == 'u' &&
        read_hex(text + 2, 4) == c)
        return 6;
    if (size >= 3 && text[0] == '%' && read_hex(text + 1, 2) == c)
        return 3;
    if (size >= 2 && text[0] == '\\' && text[1] == c && strchr("\"\\/", c))
        return 2;
    return size && *text == c;
}

/* Returns the bytes at `text` that spell the key, or 0. */
static size_t measure_key(const char *key, const char *text, size_t size)
{
    size_t length = strlen(key);
    size_t at = 0;
    if (length <= size && memcmp(text, key, length) == 0)
        return length;
    for (; *key; key++) {
        size_t step = measure_character(text + at, size - at, *key);
        if (!step)
            return 0;
        at += step;
    }
    return at;
}

void http_key_cover(const char *key, char *text, size_t size)
{
    for (size_t i = 0; key && *key && i < size; i++) {
        size_t spelled = measure_key(key, text + i, size - i);
        if (spelled)
            memset(text + i, '*', spelled);
    }
}
