#!/usr/bin/env bash
# What the compiler says of likely mistakes: a program of each is compiled, with warnings denied, and must fail with
# words that name the cure: the library's (`#[must_use]`, `#[diagnostic::on_unimplemented]`, a comment at the bound
# that the compiler quotes), or the compiler's own. What a program says while it runs is in tests/error_messages.rs.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
# The dependencies are compiled once, for all programs.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$root/target}/messages"

mkdir "$work/src"
cat >"$work/Cargo.toml" <<END
[package]
name = "mistake"
version = "0.0.0"
edition = "2024"

[dependencies]
polder = { path = "$root" }

[workspace]
END

# mistake EXPRESSION WORDS…: the expression, in an async function, does not compile, for these reasons.
mistake() {
    local expression=$1 output words
    shift
    cat >"$work/src/main.rs" <<END
#![deny(warnings)]
#![allow(dead_code, unused_variables)]

async fn mistake() -> std::io::Result<()> {
    $expression;
    Ok(())
}

fn main() {}
END
    if output=$(cargo check --quiet --manifest-path "$work/Cargo.toml" 2>&1); then
        echo "ci/messages.sh: this compiles: $expression" >&2
        exit 1
    fi
    for words in "$@"; do
        if ! grep -qF -- "$words" <<<"$output"; then
            printf 'ci/messages.sh: of «%s» the compiler does not say «%s», but:\n%s\n' \
                "$expression" "$words" "$output" >&2
            exit 1
        fi
    done
}

mistake 'polder::net::TcpStream::connect(8080).await' \
    '`{integer}` is not a socket address' 'an address is text such as'
mistake 'polder::net::UdpSocket::bind(([127, 0, 0, 1], 80)).await' \
    'is not a socket address' '`SocketAddr::from(([127, 0, 0, 1], 80))`'
mistake 'polder::net::UdpSocket::bind("127.0.0.1".to_owned().into_bytes()).await' \
    '`Vec<u8>` is not a socket address'
mistake 'polder::net::serve("127.0.0.1:80", |_, _| async {}).await' \
    '`str` cannot be listened on' 'TcpListener::bind(address).await?'
mistake 'polder::test! { start_paused = true; async fn passes() {} }' \
    'a paused clock is that of a simulated world: `polder_sim::test!`'
mistake 'polder::test! { record = true; async fn passes() {} }' \
    'a test that keeps the tape of a failure is one of `polder_replay::test!`'
mistake 'polder::spawn(async {})' \
    'dropping a task cancels it; use `.detach()` to let it run'
not_send='// Not `Send`? Drop it before the `.await`, or `spawn_local`.'
mistake 'polder::spawn(async { let shared = std::rc::Rc::new(1); std::future::ready(()).await; drop(shared) }).detach()' \
    'has type `Rc<i32>` which is not `Send`' "$not_send"
mistake 'let lock = std::sync::Mutex::new(1);
    polder::Runtime::new()?.spawn(async move {
        let guard = lock.lock().unwrap();
        std::future::ready(()).await;
        drop(guard)
    }).detach()' \
    'with `guard` maybe used later' "$not_send"
mistake 'polder::time::sleep(std::time::Duration::ZERO)' \
    'futures do nothing unless they are polled'
mistake 'polder::net::TcpListener::bind("127.0.0.1:80")' \
    'futures do nothing unless you `.await` or poll them'
mistake 'let listener = polder::net::TcpListener::bind("127.0.0.1:80")?' \
    'consider `await`ing on the `Future`'
mistake 'let listener = polder::net::TcpListener::bind("127.0.0.1:80").await?;
    polder::net::serve(listener, |_stream, _peer| async {})' \
    'nothing is served unless this is awaited'
echo "every mistake is told with its cure"
