// Boost.Asio with C++20's coroutines, one thread: an echo server, and pairs. See measure.h.

// Boost 1.74 uses std::exchange without saying so.
#include <utility>

#include <boost/asio.hpp>
#include <boost/version.hpp>

#include <array>
#include <vector>

#include "measure.h"

namespace asio = boost::asio;
using asio::awaitable;
using asio::co_spawn;
using asio::detached;
using asio::use_awaitable;
using asio::ip::tcp;
using local = asio::local::stream_protocol;

static const char *version() { return "Boost " BOOST_LIB_VERSION; }

static asio::io_context context(1);  // One thread: it may leave out what others would need.

template <typename Socket>
static awaitable<void> echo(Socket &socket, char *buffer, size_t size) {
    for (;;) {
        size_t length = co_await socket.async_read_some(asio::buffer(buffer, size), use_awaitable);
        co_await asio::async_write(socket, asio::buffer(buffer, length), use_awaitable);
    }
}

// The server.

static awaitable<void> client(tcp::socket socket, size_t size) {
    try {
        socket.set_option(tcp::no_delay(true));
        std::vector<char> buffer(size);
        co_await echo(socket, buffer.data(), size);
    } catch (const boost::system::system_error &) {
        // It closed.
    }
}

static awaitable<void> accept(tcp::acceptor acceptor, size_t size) {
    for (;;) {
        tcp::socket socket = co_await acceptor.async_accept(use_awaitable);
        co_spawn(context, client(std::move(socket), size), detached);
    }
}

static tcp::acceptor listen() {
    return tcp::acceptor(context, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
}

static void serve(size_t size) {
    tcp::acceptor acceptor = listen();
    announce(acceptor.local_endpoint().port());
    co_spawn(context, accept(std::move(acceptor), size), detached);
    context.run();
}

// Pairs: a coroutine for each end.

static size_t asking;

template <typename Socket>
static awaitable<void> answer(Socket socket) {
    std::array<char, BUFFER> buffer;
    co_await echo(socket, buffer.data(), buffer.size());
}

template <typename Socket>
static awaitable<void> ask(Socket &socket, uint64_t count) {
    std::array<char, BUFFER> buffer;
    buffer.fill(7);
    for (; count > 0; count--) {
        co_await asio::async_write(socket, asio::buffer(buffer.data(), MESSAGE), use_awaitable);
        size_t received = 0;
        while (received < MESSAGE) {
            auto room = asio::buffer(buffer.data() + received, buffer.size() - received);
            received += co_await socket.async_read_some(room, use_awaitable);
        }
    }
    if (--asking == 0) context.stop();
}

static std::vector<tcp::socket> tcp_ends;
static std::vector<local::socket> local_ends;

static void rethrow(std::exception_ptr failure) {
    if (failure) std::rethrow_exception(failure);
}

static void prepare(int is_unix, size_t pairs) {
    tcp::acceptor acceptor = listen();
    for (size_t pair = 0; pair < pairs; pair++) {
        if (is_unix) {
            local::socket near(context), far(context);
            asio::local::connect_pair(near, far);
            co_spawn(context, answer(std::move(far)), rethrow);
            local_ends.push_back(std::move(near));
        } else {
            tcp::socket near(context), far(context);
            near.connect(acceptor.local_endpoint());
            acceptor.accept(far);
            near.set_option(tcp::no_delay(true));
            far.set_option(tcp::no_delay(true));
            co_spawn(context, answer(std::move(far)), rethrow);
            tcp_ends.push_back(std::move(near));
        }
    }
}

static void run(uint64_t count) {
    asking = tcp_ends.size() + local_ends.size();
    uint64_t each = count / asking;
    for (auto &near : tcp_ends) co_spawn(context, ask(near, each), rethrow);
    for (auto &near : local_ends) co_spawn(context, ask(near, each), rethrow);
    context.restart();
    context.run();
}
