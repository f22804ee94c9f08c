/* SPDX-License-Identifier: Apache-2.0
 *
 * Wraps working plugins into components that fail on demand, and loads them for
 * the suites of the zoo.
 */
#include "tests/zoo/sick.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int sick_is(const char *fault)
{
    const char *name = getenv("SICK");
    return name && strcmp(name, fault) == 0;
}

int sick_now(const char *fault)
{
    static long calls;
    const char *at = getenv("SICK_AT");
    if (!sick_is(fault))
        return 0;
    calls++;
    return !at || calls == strtol(at, NULL, 10);
}

void sick_table(const char *who, xray_weights *table, xray_tensor *tensor)
{
    const char *name = getenv("SICK");
    size_t size = strlen(who);
    if (!name || strncmp(name, who, size) != 0 ||
        strncmp(name + size, "-table-", 7) != 0)
        return;
    name += size + 7;
    *tensor = table->tensors[0];
    if (strcmp(name, "null") == 0)
        table->tensors = NULL;
    else if (strcmp(name, "many") == 0)
        table->tensor_count = UINT32_MAX;
    else if (strcmp(name, "stride") == 0)
        table->tensor_stride = 4;
    else if (strcmp(name, "header") == 0)
        table->header.size = 0;
    else {
        table->tensors = tensor;
        table->tensor_count = 1;
        table->tensor_stride = sizeof(*tensor);
    }
    if (strcmp(name, "name") == 0)
        tensor->name = NULL;
    else if (strcmp(name, "dims") == 0)
        tensor->dims = 9;
    else if (strcmp(name, "shape") == 0)
        tensor->shape[0] = tensor->shape[1] = UINT64_MAX / 2;
    else if (strcmp(name, "shard") == 0)
        tensor->lo[0] = UINT64_MAX - 1;
    else if (strcmp(name, "data") == 0)
        tensor->data = NULL;
}

/* Creates the file $SICK_FLAG`tail`; returns 0 if it exists already. */
static int raise_flag(const char *tail)
{
    char path[4096];
    const char *flag = getenv("SICK_FLAG");
    (void)snprintf(path, sizeof(path), "%s%s", flag ? flag : "", tail);
    int fd = flag ? open(path, O_WRONLY | O_CREAT | O_EXCL, 0600) : -1;
    if (fd < 0)
        return 0;
    (void)!write(fd, "here\n", 5);
    (void)close(fd);
    return 1;
}

void sick_wait(void)
{
    char go[4096];
    struct timespec pause = { 0, 10000000 };
    if (!raise_flag(""))
        return;
    (void)snprintf(go, sizeof(go), "%s.go", getenv("SICK_FLAG"));
    for (int i = 0; i < 6000 && access(go, F_OK) != 0; i++)
        (void)nanosleep(&pause, NULL);
}

xray_status sick_hold(const xray_host *host, const char *fault)
{
    const xray_call_service *calls = host->service(host, XRAY_SERVICE_CALLS);
    struct timespec pause = { 0, 10000000 };
    if (!sick_now(fault) || !raise_flag(""))
        return XRAY_OK;
    for (int i = 0; i < 6000; i++) {
        if (calls->stopping(calls)) {
            (void)raise_flag(".canceled");
            return host->fail(host, XRAY_E_CANCELED, fault, "canceled");
        }
        (void)nanosleep(&pause, NULL);
    }
    return XRAY_OK;
}

int sick_wrapped(const char *file, xray_component *out)
{
    char path[4096];
    const char *build = getenv("XRAY_BUILD");
    xray_plugin_query_fn query = NULL;
    (void)snprintf(path, sizeof(path), "%s/plugins/%s.so", build ? build : ".",
                   file);
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = object ? dlsym(object, XRAY_PLUGIN_QUERY) : NULL;
    memcpy(&query, &symbol, sizeof(query));
    if (!query)
        return 0;
    *out = *query(XRAY_ABI)->components[0];
    return 1;
}

XRAY_NOTE_("{\"manifest\":1,\"abi\":\"" XRAY_STR(XRAY_ABI_MAJOR_N) "." XRAY_STR(
    XRAY_ABI_MINOR_N) "\",\"name\":\"zoo-sick\",\"version\":\"1.0\","
                      "\"provides\":\"xray.train/0:sick xray.infer/0:sick "
                      "xray.reward/0:sick xray.algo/0:sick "
                      "xray.device/0:sick\"}");

XRAY_EXPORT const xray_plugin *xray_plugin_query(uint32_t host_abi);
const xray_plugin *xray_plugin_query(uint32_t host_abi)
{
    static const xray_component *components[5];
    static const xray_plugin plugin = {
        .header = XRAY_HEADER(xray_plugin),
        .abi_needed = XRAY_ABI_NEEDED,
        .component_count = 5,
        .name = "zoo-sick",
        .version = "1.0",
        .vendor = "tests",
        .license = "Apache-2.0",
        .components = components,
    };
    components[0] = sick_train();
    components[1] = sick_infer();
    components[2] = sick_reward();
    components[3] = sick_algo();
    components[4] = sick_device();
    return host_abi == XRAY_ABI ? &plugin : NULL;
}
