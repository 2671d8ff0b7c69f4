/* What an emulator of Linux's system calls (qemu-user) can do: `probe WHAT` succeeds if it does what Linux does.
 * ci/machines.sh runs this under the emulator, and leaves out the tests that need what it lacks. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* select(2) of a descriptor beyond FD_SETSIZE, as Linux's kernel takes it. qemu 7.2 aborts. */
static int far_select(void)
{
    enum { bits = 8 * sizeof(long) };
    struct rlimit limit = {2048, 2048};
    struct timespec now = {0, 0};
    unsigned long set[64] = {0};
    int ends[2], far;
    if (setrlimit(RLIMIT_NOFILE, &limit) || pipe(ends) || (far = fcntl(ends[0], F_DUPFD, 1500)) < 0)
        return 0;
    set[far / bits] = 1UL << far % bits;
    return write(ends[1], "x", 1) == 1 && syscall(SYS_pselect6, far + 1, set, NULL, NULL, &now, NULL) == 1;
}

/* A filter of system calls. qemu 7.2: EINVAL. */
static int seccomp(void)
{
    struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {1, all};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* The interface of multicast datagrams. qemu 7.2: ENOPROTOOPT. */
static int multicast(void)
{
    struct in_addr loopback = {htonl(INADDR_LOOPBACK)};
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    return !setsockopt(udp, IPPROTO_IP, IP_MULTICAST_IF, &loopback, sizeof loopback);
}

int main(int count, char **arguments)
{
    const char *what = count == 2 ? arguments[1] : "";
    return !(!strcmp(what, "select")      ? far_select()
             : !strcmp(what, "seccomp")   ? seccomp()
             : !strcmp(what, "multicast") ? multicast()
                                          : 0);
}
