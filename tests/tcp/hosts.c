/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes and removes network namespaces by the program `ip`, and starts the
 * cable between them. The names hold the process that made them, ranks find
 * namespaces and cable by the environment, and no other program sees them.
 */
#define _GNU_SOURCE
#include "tests/tcp/hosts.h"

#include "tests/testing.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

extern char **environ;

/* Runs a program with words that are separated by spaces. */
static int run_program(const char *line)
{
    char text[256];
    char *argv[24] = { NULL };
    char *rest = NULL;
    int status = -1;
    pid_t pid = 0;
    posix_spawn_file_actions_t files;
    size_t count = 0;
    (void)snprintf(text, sizeof(text), "%s", line);
    for (char *w = strtok_r(text, " ", &rest); w && count < 23;
         w = strtok_r(NULL, " ", &rest))
        argv[count++] = w;
    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    int bad = posix_spawnp(&pid, argv[0], &files, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&files);
    return !bad && waitpid(pid, &status, 0) == pid && status == 0;
}

static const char *find_base_name(void)
{
    static char name[32];
    const char *set = getenv("XRAY_TEST_HOSTS");
    (void)snprintf(name, sizeof(name), "%s", set ? set : "");
    return name;
}

int hosts_ip(char letter, const char *arguments)
{
    char line[256];
    (void)snprintf(line, sizeof(line), "ip netns exec %s%c ip %s",
                   find_base_name(), letter, arguments);
    return run_program(line);
}

/* Gives the ends of the line their addresses. */
static int set_up_line(void)
{
    char line[64];
    int good = 1;
    for (char c = 'a'; good && c <= 'b'; c++) {
        (void)snprintf(line, sizeof(line), "addr add 10.77.0.%d/24 dev wire",
                       c - 'a' + 1);
        good = hosts_ip(c, line) && hosts_ip(c, "link set wire up");
    }
    return good;
}

static int set_up_hosts(const char *base)
{
    char line[128];
    int good = 1;
    for (char c = 'a'; c <= 'b'; c++) {
        (void)snprintf(line, sizeof(line), "ip netns add %s%c", base, c);
        good = good && run_program(line);
    }
    (void)snprintf(line, sizeof(line),
                   "ip -n %sa link add wire type veth peer name wire netns %sb",
                   base, base);
    good = good && run_program(line);
    return good && hosts_ip('a', "link set lo up") &&
           hosts_ip('b', "link set lo up") && set_up_line();
}

/* Names are files. Where nobody else sees them they end with this program,
 * however that ends, and so do the namespaces. */
static int hide_names(void)
{
    (void)mkdir("/run/netns", 0755);
    return unshare(CLONE_NEWNS) == 0 &&
           mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", "/run/netns", "tmpfs", 0, NULL) == 0;
}

const char *hosts_make(void)
{
    char base[32];
    if (geteuid() != 0)
        return "only root makes network namespaces";
    if (!run_program("ip -V"))
        return "there is no program ip";
    (void)snprintf(base, sizeof(base), "xray%d", (int)getpid());
    (void)setenv("XRAY_TEST_HOSTS", base, 1);
    if (hide_names() && set_up_hosts(base))
        return NULL;
    hosts_remove();
    return "this system makes no network namespaces with virtual interfaces";
}

/* ---- the cable -----------------------------------------------------------
 */

static pid_t find_cable(void)
{
    const char *set = getenv("XRAY_TEST_CABLE");
    return set ? (pid_t)strtol(set, NULL, 10) : 0;
}

int hosts_have_cable(void)
{
    return find_cable() != 0;
}

static void end_cable(void)
{
    pid_t pid = find_cable();
    if (!pid)
        return;
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    (void)unsetenv("XRAY_TEST_CABLE");
}

static pid_t start_cable(const char *arguments)
{
    char program[512];
    char names[2][64];
    char wire[] = "wire";
    char text[128];
    char *rest = NULL;
    pid_t pid = 0;
    (void)snprintf(program, sizeof(program), "%s/tests/fakes/cable",
                   getenv("XRAY_BUILD"));
    for (int i = 0; i < 2; i++)
        (void)snprintf(names[i], sizeof(names[i]), "/run/netns/%s%c",
                       find_base_name(), 'a' + i);
    char *argv[16] = { program, names[0], wire, names[1], wire };
    (void)snprintf(text, sizeof(text), "%s", arguments);
    size_t count = 5;
    for (char *w = strtok_r(text, " ", &rest); w && count < 15;
         w = strtok_r(NULL, " ", &rest))
        argv[count++] = w;
    return posix_spawn(&pid, program, NULL, NULL, argv, environ) ? 0 : pid;
}

int hosts_cable(const char *arguments)
{
    char text[16];
    int status = 0;
    int there = 0;
    if (hosts_have_cable())
        end_cable();
    else
        (void)hosts_ip('a', "link del wire");
    pid_t pid = start_cable(arguments);
    assert_true(pid > 0);
    (void)snprintf(text, sizeof(text), "%d", (int)pid);
    (void)setenv("XRAY_TEST_CABLE", text, 1);
    /* Its interfaces are there soon after it has started. */
    for (int i = 0; i < 1000 && !there; i++) {
        if (waitpid(pid, &status, WNOHANG) == pid) {
            (void)unsetenv("XRAY_TEST_CABLE");
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 77);
            return 0;
        }
        there = hosts_ip('b', "link set wire up");
        ranks_sleep_ms(5);
    }
    assert_true(there && set_up_line());
    return 1;
}

int hosts_cut(void)
{
    pid_t cable = find_cable();
    return cable ? kill(cable, SIGUSR1) == 0
                 : hosts_ip('b', "link set wire down");
}

int hosts_mend(void)
{
    pid_t cable = find_cable();
    return cable ? kill(cable, SIGUSR2) == 0
                 : hosts_ip('b', "link set wire up");
}

void hosts_remove(void)
{
    char line[128];
    end_cable();
    for (char c = 'a'; c <= 'b'; c++) {
        (void)snprintf(line, sizeof(line), "ip netns del %s%c",
                       find_base_name(), c);
        (void)run_program(line);
    }
    (void)unsetenv("XRAY_TEST_HOSTS");
}

int hosts_are_there(void)
{
    return getenv("XRAY_TEST_HOSTS") != NULL;
}

void hosts_place(const char *placement)
{
    if (placement)
        (void)setenv("XRAY_TEST_PLACES", placement, 1);
    else
        (void)unsetenv("XRAY_TEST_PLACES");
}

int hosts_enter_by_letter(char letter)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/run/netns/%s%c", find_base_name(),
                   letter);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int good = fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
    if (fd >= 0)
        (void)close(fd);
    return good;
}

void hosts_enter(ranks_env *e)
{
    const char *places = getenv("XRAY_TEST_PLACES");
    if (places)
        CHECK(e, e->rank < strlen(places) &&
                     hosts_enter_by_letter(places[e->rank]));
}
