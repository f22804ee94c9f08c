/* SPDX-License-Identifier: Apache-2.0
 *
 * At which address of this host the other ranks reach this one.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugins/comm-tcp/tcp.h"

/* ---- the address --------------------------------------------------------- */

/* An address of an interface, with the bits of its network. */
typedef struct found_address {
    const char *name;
    uint32_t family;
    uint32_t scope;
    uint8_t bytes[16];
} found_address;

static uint32_t address_bytes(uint32_t family)
{
    return family == AF_INET ? 4 : 16;
}

static int read_address(const struct ifaddrs *a, found_address *out)
{
    *out = (found_address){ .name = a->ifa_name };
    if (!a->ifa_addr || !(a->ifa_flags & IFF_UP))
        return 0;
    out->family = a->ifa_addr->sa_family;
    if (out->family == AF_INET) {
        const struct sockaddr_in *in =
            (const struct sockaddr_in *)(const void *)a->ifa_addr;
        memcpy(out->bytes, &in->sin_addr, 4);
        return 1;
    }
    if (out->family != AF_INET6)
        return 0;
    const struct sockaddr_in6 *in6 =
        (const struct sockaddr_in6 *)(const void *)a->ifa_addr;
    memcpy(out->bytes, &in6->sin6_addr, 16);
    out->scope = in6->sin6_scope_id;
    return 1;
}

/* Reads "10.1.0.0/16" or "10.1.2.3". Returns 0 if it is no address. */
static int parse_prefix(const char *text, found_address *out, uint32_t *bits)
{
    char address[64];
    size_t n = strcspn(text, "/");
    char *end = NULL;
    if (n >= sizeof(address))
        return 0;
    memcpy(address, text, n);
    address[n] = '\0';
    out->family = strchr(address, ':') ? AF_INET6 : AF_INET;
    if (inet_pton((int)out->family, address, out->bytes) != 1)
        return 0;
    *bits = 8 * address_bytes(out->family);
    if (!text[n])
        return 1;
    unsigned long given = strtoul(text + n + 1, &end, 10);
    if (!text[n + 1] || *end || given > *bits)
        return 0;
    *bits = (uint32_t)given;
    return 1;
}

static int is_in_prefix(const found_address *a, const found_address *prefix,
                        uint32_t bits)
{
    if (a->family != prefix->family)
        return 0;
    for (uint32_t i = 0; i < bits; i++)
        if (((a->bytes[i / 8] ^ prefix->bytes[i / 8]) >> (7 - i % 8)) & 1)
            return 0;
    return 1;
}

/* Name of the interface of the default route, or "". */
static void find_default_route(char *name, uint32_t cap)
{
    char line[256];
    FILE *f = fopen("/proc/net/route", "re");
    name[0] = '\0';
    while (f && !name[0] && fgets(line, sizeof(line), f)) {
        char *rest = NULL;
        const char *first = strtok_r(line, "\t ", &rest);
        const char *to = strtok_r(NULL, "\t ", &rest);
        if (first && to && strcmp(to, "00000000") == 0)
            (void)snprintf(name, cap, "%s", first);
    }
    if (f)
        (void)fclose(f);
}

static int is_loopback(const found_address *a)
{
    static const uint8_t six[16] = { [15] = 1 };
    return a->family == AF_INET ? a->bytes[0] == 127
                                : memcmp(a->bytes, six, 16) == 0;
}

/* How well an address fits the option; 0: not at all. IPv4 comes before IPv6,
 * and addresses of one link last. */
static uint32_t rate_address(const found_address *a, const char *interface,
                             const char *route)
{
    found_address prefix = { .name = NULL };
    uint32_t bits = 0;
    uint32_t rate = a->family == AF_INET ? 3 : a->scope ? 1 : 2;
    if (!*interface)
        return is_loopback(a)                ? 0
               : strcmp(a->name, route) == 0 ? rate + 3
                                             : rate;
    if (strcmp(a->name, interface) == 0)
        return rate;
    return parse_prefix(interface, &prefix, &bits) &&
                   is_in_prefix(a, &prefix, bits)
               ? rate
               : 0;
}

const char *tcp_choose_address(const char *interface, tcp_card *card,
                               char *out_name, uint32_t cap)
{
    struct ifaddrs *all = NULL;
    char route[IF_NAMESIZE] = "";
    uint32_t best = 0;
    found_address a;
    if (getifaddrs(&all) != 0)
        return "the system does not list its network interfaces";
    find_default_route(route, sizeof(route));
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        uint32_t rate =
            read_address(i, &a) ? rate_address(&a, interface, route) : 0;
        if (rate <= best)
            continue;
        best = rate;
        card->family = a.family;
        card->scope = a.scope;
        memcpy(card->address, a.bytes, sizeof(card->address));
        (void)snprintf(out_name, cap, "%s", a.name);
    }
    freeifaddrs(all);
    if (best)
        return NULL;
    return *interface ? "no interface that is up has this name, or an address "
                        "in this network"
                      : "no interface but the loopback has an address";
}

void tcp_loopback_address(tcp_card *card)
{
    static const uint8_t four[4] = { 127, 0, 0, 1 };
    card->family = AF_INET;
    card->scope = 0;
    memset(card->address, 0, sizeof(card->address));
    memcpy(card->address, four, sizeof(four));
}

void tcp_print_address(const tcp_card *card, char *out, uint32_t cap)
{
    char text[INET6_ADDRSTRLEN] = "?";
    (void)inet_ntop((int)card->family, card->address, text, sizeof(text));
    (void)snprintf(out, cap, card->family == AF_INET6 ? "[%s]:%u" : "%s:%u",
                   text, card->port);
}
