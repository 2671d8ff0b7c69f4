#!/usr/bin/env bash
# What the compiler says of likely mistakes: a program of each is compiled, and must fail with the
# words that the library has for it (`#[diagnostic::on_unimplemented]`).
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

# mistake EXPRESSION WORDS…: the expression, in an async block, does not compile, for these reasons.
mistake() {
    local expression=$1 output words
    shift
    cat >"$work/src/main.rs" <<END
fn main() {
    let _ = async { $expression };
}
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
mistake 'polder::net::UdpSocket::bind("127.0.0.1".to_owned().into_bytes()).await' \
    '`Vec<u8>` is not a socket address'
mistake 'polder::net::serve("127.0.0.1:80", |_, _| async {}).await' \
    '`str` cannot be listened on' 'TcpListener::bind(address).await?'
mistake 'polder::test! { start_paused = true; async fn passes() {} }' \
    '`start_paused` needs the feature `sim` of polder'
echo "every mistake is told in the library's words"
