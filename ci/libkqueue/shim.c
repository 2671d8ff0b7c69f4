/* What ci/kqueue.sh compiles together with libkqueue, where that differs from a kernel's kqueue in what a
 * backend may rely on. libkqueue's own sources are compiled with getsockopt and epoll_wait defined as the
 * functions below. */
#undef getsockopt
#undef epoll_wait

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "private.h"

/* An event's fflags are the socket's error, which libkqueue asks for by SO_ERROR: that takes it away, and the
 * operation that comes to see it finds none. A kernel's kqueue looks only. So here is an error, whichever. */
int polder_getsockopt(int fd, int level, int option, void *value, socklen_t *length)
{
    if (level == SOL_SOCKET && option == SO_ERROR) {
        *(int *)value = EIO;
        return 0;
    }
    return getsockopt(fd, level, option, value, length);
}

/* One event of epoll can be two of a kqueue, one for each filter, and libkqueue asks for as many as the caller
 * has room for: it drops those that then find none, edges too. */
int polder_epoll_wait(int epoll, struct epoll_event *events, int most, int timeout)
{
    return epoll_wait(epoll, events, most > 1 ? most / 2 : 1, timeout);
}

/* A kqueue can be polled; what libkqueue returns for one is an end of a pipe. */
int polder_libkqueue_epoll(int queue)
{
    int epoll = -1;
    struct kqueue *kq;

    tracing_mutex_lock(&kq_mtx);
    kq = kqueue_lookup(queue);
    if (kq)
        epoll = kq->epollfd;
    tracing_mutex_unlock(&kq_mtx);
    return epoll;
}
