/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves which of a host's addresses a rank tells the others, on hosts whose
 * interfaces the suite makes up.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include "plugins/comm-tcp/tcp.h"
#include "tests/testing.h"

typedef struct interface {
    const char *name;
    const char *address; /* NULL: it has none */
    uint32_t scope;
    int down;
} interface;

/* ---- the host ------------------------------------------------------------ */

static const interface *there;
static const char *route; /* the interface of the default route, or NULL */

int __wrap_getifaddrs(struct ifaddrs **out);
void __wrap_freeifaddrs(struct ifaddrs *first);
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__real_fopen(const char *path, const char *mode);

static struct sockaddr *make_address(const interface *at)
{
    struct sockaddr_in *four = calloc(1, sizeof(*four));
    struct sockaddr_in6 *six = calloc(1, sizeof(*six));
    assert_true(four && six);
    four->sin_family = AF_INET;
    six->sin6_family = AF_INET6;
    six->sin6_scope_id = at->scope;
    if (inet_pton(AF_INET, at->address, &four->sin_addr) == 1) {
        free(six);
        return (struct sockaddr *)(void *)four;
    }
    free(four);
    assert_int_equal(inet_pton(AF_INET6, at->address, &six->sin6_addr), 1);
    return (struct sockaddr *)(void *)six;
}

int __wrap_getifaddrs(struct ifaddrs **out)
{
    for (const interface *at = there; at->name; at++) {
        struct ifaddrs *one = calloc(1, sizeof(*one));
        assert_non_null(one);
        one->ifa_name = strdup(at->name);
        one->ifa_flags = at->down ? 0 : IFF_UP;
        one->ifa_addr = at->address ? make_address(at) : NULL;
        *out = one;
        out = &one->ifa_next;
    }
    return 0;
}

void __wrap_freeifaddrs(struct ifaddrs *first)
{
    while (first) {
        struct ifaddrs *next = first->ifa_next;
        free(first->ifa_name);
        free(first->ifa_addr);
        free(first);
        first = next;
    }
}

FILE *__wrap_fopen(const char *path, const char *mode)
{
    static char text[300];
    if (strcmp(path, "/proc/net/route") != 0)
        return __real_fopen(path, mode);
    (void)snprintf(text, sizeof(text),
                   "Iface\tDestination\tGateway\n"
                   "eth7\t0000010A\t00000000\n%s%s",
                   route ? route : "", route ? "\t00000000\t0100000A\n" : "");
    return fmemopen(text, strlen(text), "r");
}

/* ---- cases --------------------------------------------------------------- */

#define LO                      \
    {                           \
        "lo", "127.0.0.1", 0, 0 \
    }
#define NONE             \
    {                    \
        NULL, NULL, 0, 0 \
    }
static const interface alone[] = { LO, { "lo", "::1", 0, 0 }, NONE };
static const interface plain[] = { LO,
                                   { "down0", "10.9.0.1", 0, 1 },
                                   { "tun0", NULL, 0, 0 },
                                   { "eth0", "10.0.0.2", 0, 0 },
                                   { "ib0", "10.1.0.2", 0, 0 },
                                   { "ib1", "10.31.255.9", 0, 0 },
                                   { "ib2", "10.32.0.1", 0, 0 },
                                   NONE };
static const interface mixed[] = { LO,
                                   { "eth0", "fe80::1", 2, 0 },
                                   { "eth0", "fd00::1", 0, 0 },
                                   { "eth1", "192.168.3.4", 0, 0 },
                                   NONE };
static const interface turned[] = {
    LO, { "eth1", "192.168.3.4", 0, 0 }, { "eth0", "fd00::1", 0, 0 }, NONE
};
static const interface sixes[] = { { "lo", "::1", 0, 0 },
                                   { "eth0", "fe80::1", 2, 0 },
                                   { "eth1", "fd00::7", 0, 0 },
                                   NONE };
static const interface linked[] = { LO, { "eth0", "fe80::1", 2, 0 }, NONE };

static void addresses_are_chosen_by_rule(void **state)
{
    (void)state;
    static const struct {
        const interface *there;
        const char *route;
        const char *option;
        const char *name; /* NULL: none is found */
        const char *address;
    } cases[] = {
        /* Others do not reach the loopback, which has to be asked for. */
        { alone, NULL, "", NULL, "no interface but the loopback" },
        { alone, "lo", "", NULL, "no interface but the loopback" },
        { alone, NULL, "lo", "lo", "127.0.0.1" },
        { alone, NULL, "127.0.0.0/8", "lo", "127.0.0.1" },
        { alone, NULL, "::1", "lo", "::1" },
        { alone, NULL, "::1/128", "lo", "::1" },
        { alone, NULL, "::1/129", NULL, "no interface that is up" },
        { plain, NULL, "", "eth0", "10.0.0.2" },
        { plain, "ib0", "", "ib0", "10.1.0.2" },
        { plain, "ib2", "", "ib2", "10.32.0.1" },
        { plain, "down0", "", "eth0", "10.0.0.2" },
        { plain, "eth0", "ib0", "ib0", "10.1.0.2" },
        { plain, NULL, "10.1.0.2", "ib0", "10.1.0.2" },
        { plain, NULL, "10.1.0.0/16", "ib0", "10.1.0.2" },
        { plain, NULL, "10.0.0.0/15", "eth0", "10.0.0.2" },
        { plain, NULL, "10.16.0.0/12", "ib1", "10.31.255.9" },
        { plain, NULL, "10.32.0.0/31", "ib2", "10.32.0.1" },
        { plain, NULL, "10.32.0.1/32", "ib2", "10.32.0.1" },
        { plain, NULL, "10.32.0.0/32", NULL, "no interface that is up" },
        { plain, NULL, "10.32.0.1/33", NULL, "no interface that is up" },
        { plain, NULL, "10.32.0.1/", NULL, "no interface that is up" },
        { plain, NULL, "10.32.0.1/3x", NULL, "no interface that is up" },
        { plain, NULL, "down0", NULL, "no interface that is up" },
        { plain, NULL, "10.9.0.0/16", NULL, "no interface that is up" },
        { plain, NULL, "eth", NULL, "no interface that is up" },
        { plain, NULL, "tun0", NULL, "no interface that is up" },
        /* IPv4 before IPv6, the default route before both. */
        { mixed, NULL, "", "eth1", "192.168.3.4" },
        { mixed, "eth0", "", "eth0", "fd00::1" },
        { turned, NULL, "", "eth1", "192.168.3.4" },
        { turned, "eth0", "", "eth0", "fd00::1" },
        { mixed, NULL, "eth0", "eth0", "fd00::1" },
        { mixed, NULL, "fe80::/16", "eth0", "fe80::1" },
        { mixed, NULL, "0.0.0.0/0", "lo", "127.0.0.1" },
        { sixes, NULL, "", "eth1", "fd00::7" },
        { sixes, NULL, "fd00::/8", "eth1", "fd00::7" },
        { linked, NULL, "", "eth0", "fe80::1" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tcp_card card = { .family = 0 };
        char name[IF_NAMESIZE] = "";
        char address[INET6_ADDRSTRLEN] = "";
        there = cases[i].there;
        route = cases[i].route;
        const char *fault =
            tcp_choose_address(cases[i].option, &card, name, sizeof(name));
        if (!cases[i].name) {
            if (!fault || !strstr(fault, cases[i].address))
                fail_msg("case %zu: %s, %s", i, fault ? fault : "none", name);
            continue;
        }
        (void)inet_ntop((int)card.family, card.address, address,
                        sizeof(address));
        if (fault || strcmp(name, cases[i].name) != 0 ||
            strcmp(address, cases[i].address) != 0)
            fail_msg("case %zu: %s, %s %s", i, fault ? fault : "", name,
                     address);
        assert_int_equal(card.scope, strncmp(address, "fe80", 4) == 0 ? 2 : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_chosen_by_rule),
    };
    return cmocka_run_group_tests_name("tcp.address", tests, NULL, NULL);
}
