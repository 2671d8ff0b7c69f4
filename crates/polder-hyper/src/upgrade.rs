//! [`upgrade`]: connections that leave HTTP.

use std::future::Future;
use std::io;

use hyper::Request;
use hyper::upgrade::{self, Upgraded};

use crate::Stream;
use crate::activity::Tunnel;

/// Takes the connection of a request once its response, `101 Switching Protocols`, has been sent
/// (or any successful one to `CONNECT`): for WebSocket, or another protocol.
///
/// The future is awaited in a task, since the response comes first. The stream has the traits of
/// futures-io. It counts as a connection of its server until it is dropped, and has no time limit
/// but that of a write that stalls: an HTTP/2 connection stays while it has such a stream.
///
/// A WebSocket, by async-tungstenite:
///
/// ```
/// use async_tungstenite::WebSocketStream;
/// use async_tungstenite::tungstenite::handshake::server::create_response_with_body;
/// use async_tungstenite::tungstenite::protocol::Role;
/// use axum::Router;
/// use axum::body::Body;
/// use axum::extract::Request;
/// use axum::http::StatusCode;
/// use axum::response::Response;
/// use axum::routing::any;
/// use futures_util::StreamExt;
///
/// async fn echo(mut request: Request) -> Result<Response, StatusCode> {
///     let response = create_response_with_body(&request, Body::empty);
///     let response = response.map_err(|_| StatusCode::BAD_REQUEST)?;
///     let upgraded = polder_hyper::upgrade(&mut request);
///     polder::spawn(async move {
///         let Ok(stream) = upgraded.await else { return };
///         let socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
///         let (to, from) = socket.split();
///         let _ = from.forward(to).await; // Until the client closes it.
///     })
///     .detach();
///     Ok(response)
/// }
///
/// let app: Router = Router::new().route("/echo", any(echo));
/// ```
///
/// # Errors
///
/// When awaited: if the request asked for no upgrade, or the connection ends before it.
///
/// # Cancel safety
///
/// Dropping the future closes the connection after the response.
pub fn upgrade<B>(
    request: &mut Request<B>,
) -> impl Future<Output = io::Result<Stream<Upgraded>>> + Send + use<B> {
    let tunnel = request.extensions_mut().remove::<Tunnel>();
    let upgraded = upgrade::on(request);
    async move {
        let mut stream = Stream::new(upgraded.await.map_err(io::Error::other)?);
        stream.set_tunnel(tunnel);
        Ok(stream)
    }
}
