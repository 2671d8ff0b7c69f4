/* libuv: an echo server, and pairs. See measure.h. What cannot be written at once is written when
 * there is room, and nothing more is read until then. */

#include <sys/socket.h>
#include <uv.h>

#include "measure.h"

static const char *version(void) { return uv_version_string(); }

static uv_loop_t *loop;

struct connection {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } socket;
    uv_write_t request;
    void (*read)(struct connection *, ssize_t);
    /* Of an end that asks. */
    size_t received;
    uint64_t left;
    size_t size;
    char buffer[];
};

static void check(int result, const char *what) {
    if (result >= 0) return;
    fprintf(stderr, "%s: %s\n", what, uv_strerror(result));
    exit(1);
}

static struct connection *make(size_t size) {
    struct connection *connection = calloc(1, sizeof *connection + size);
    if (connection == NULL) die("no memory");
    connection->size = size;
    connection->socket.handle.data = connection;
    return connection;
}

static void room(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer) {
    struct connection *connection = handle->data;
    (void)suggested;
    *buffer = uv_buf_init(connection->buffer + connection->received,
                          (unsigned)(connection->size - connection->received));
}

static void has_read(uv_stream_t *stream, ssize_t length, const uv_buf_t *buffer) {
    struct connection *connection = stream->data;
    (void)buffer;
    if (length != 0) connection->read(connection, length);
}

static void is_closed(uv_handle_t *handle) { free(handle->data); }

static void close_it(struct connection *connection) {
    if (!uv_is_closing(&connection->socket.handle)) uv_close(&connection->socket.handle, is_closed);
}

static void is_written(uv_write_t *request, int status) {
    struct connection *connection = request->data;
    if (status < 0) {
        if (status != UV_ECANCELED) close_it(connection);
        return;
    }
    check(uv_read_start(&connection->socket.stream, room, has_read), "read");
}

static void send_it(struct connection *connection, size_t length) {
    uv_stream_t *stream = &connection->socket.stream;
    uv_buf_t bytes = uv_buf_init(connection->buffer, (unsigned)length);
    int sent = uv_try_write(stream, &bytes, 1);
    if (sent == (int)length) return;
    if (sent < 0 && sent != UV_EAGAIN) return close_it(connection);
    if (sent < 0) sent = 0;
    uv_read_stop(stream);
    connection->request.data = connection;
    bytes = uv_buf_init(connection->buffer + sent, (unsigned)(length - (size_t)sent));
    check(uv_write(&connection->request, stream, &bytes, 1, is_written), "write");
}

static void echo(struct connection *connection, ssize_t length) {
    if (length < 0) return close_it(connection);
    send_it(connection, (size_t)length);
}

/* The server. */

static size_t server_buffer;

static void has_connection(uv_stream_t *listener, int status) {
    check(status, "listen");
    struct connection *connection = make(server_buffer);
    connection->read = echo;
    check(uv_tcp_init(loop, &connection->socket.tcp), "socket");
    connection->socket.handle.data = connection;
    if (uv_accept(listener, &connection->socket.stream) < 0) return close_it(connection);
    uv_tcp_nodelay(&connection->socket.tcp, 1);
    check(uv_read_start(&connection->socket.stream, room, has_read), "read");
}

static void serve(size_t buffer) {
    static uv_tcp_t listener;
    struct sockaddr_in address;
    int length = sizeof address;
    loop = uv_default_loop();
    server_buffer = buffer;
    check(uv_tcp_init(loop, &listener), "socket");
    check(uv_ip4_addr("127.0.0.1", 0, &address), "address");
    check(uv_tcp_bind(&listener, (struct sockaddr *)&address, 0), "bind");
    check(uv_listen((uv_stream_t *)&listener, 128, has_connection), "listen");
    check(uv_tcp_getsockname(&listener, (struct sockaddr *)&address, &length), "address");
    announce(ntohs(address.sin_port));
    uv_run(loop, UV_RUN_DEFAULT);
}

/* Pairs. */

static struct connection **nears;
static size_t pair_count, asking;

static void ask(struct connection *connection, ssize_t length) {
    check((int)length, "read");
    connection->received += (size_t)length;
    if (connection->received < MESSAGE) return;
    connection->received = 0;
    if (--connection->left > 0) return send_it(connection, MESSAGE);
    if (--asking == 0) uv_stop(loop);
}

static struct connection *end(int is_unix, int descriptor,
                              void (*read)(struct connection *, ssize_t)) {
    struct connection *connection = make(BUFFER);
    if (is_unix) {
        check(uv_pipe_init(loop, &connection->socket.pipe, 0), "socket");
        check(uv_pipe_open(&connection->socket.pipe, descriptor), "socket");
    } else {
        check(uv_tcp_init(loop, &connection->socket.tcp), "socket");
        check(uv_tcp_open(&connection->socket.tcp, descriptor), "socket");
        check(uv_tcp_nodelay(&connection->socket.tcp, 1), "nodelay");
    }
    connection->socket.handle.data = connection;
    connection->read = read;
    check(uv_read_start(&connection->socket.stream, room, has_read), "read");
    return connection;
}

static void tcp_pair(int ends[2]) {
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    check(uv_ip4_addr("127.0.0.1", 0, &address), "address");
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0 ||
        connect(ends[0], (struct sockaddr *)&address, length) != 0 ||
        (ends[1] = accept(listener, NULL, NULL)) < 0)
        die("cannot connect over loopback");
    close(listener);
}

static void prepare(int is_unix, size_t pairs) {
    loop = uv_default_loop();
    pair_count = pairs;
    nears = calloc(pairs, sizeof *nears);
    if (nears == NULL) die("no memory");
    for (size_t pair = 0; pair < pairs; pair++) {
        int ends[2];
        if (!is_unix)
            tcp_pair(ends);
        else if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
            die("no pair of sockets");
        nears[pair] = end(is_unix, ends[0], ask);
        end(is_unix, ends[1], echo);
    }
}

static void run(uint64_t count) {
    asking = pair_count;
    for (size_t pair = 0; pair < pair_count; pair++) {
        nears[pair]->left = count / pair_count;
        memset(nears[pair]->buffer, 7, MESSAGE);
        send_it(nears[pair], MESSAGE);
    }
    uv_run(loop, UV_RUN_DEFAULT);
}
