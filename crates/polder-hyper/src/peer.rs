//! [`ConnectInfo`]: the address of a request's client.

/// The address of the client, as an extension of each request, after
/// [`Serve::connect_info`](crate::Serve::connect_info).
///
/// With the feature `axum` it is an extractor, as axum's own of that name, which needs axum's
/// feature `tokio`; and the only change to a handler is the import. Without, it is
/// `request.extensions().get::<ConnectInfo<SocketAddr>>()`.
///
/// ```
/// use hyper::{Request, Response};
/// use polder::net::SocketAddr;
/// use polder_hyper::{Body, ConnectInfo};
///
/// async fn hello(request: Request<Body>) -> Result<Response<String>, std::convert::Infallible> {
///     let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
///     Ok(Response::new(format!("hello, {peer:?}")))
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ConnectInfo<A>(pub A);

/// ```
/// use axum::Router;
/// use axum::routing::get;
/// use polder::net::{SocketAddr, TcpListener};
/// use polder_hyper::ConnectInfo;
///
/// async fn hello(ConnectInfo(peer): ConnectInfo<SocketAddr>) -> String {
///     format!("hello, {peer}\n")
/// }
///
/// # async fn run() -> std::io::Result<()> {
/// let listener = TcpListener::bind("127.0.0.1:8080").await?;
/// let app = Router::new().route("/", get(hello));
/// polder_hyper::serve(listener, app).connect_info().await?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "axum")]
impl<S, A> axum_core::extract::FromRequestParts<S> for ConnectInfo<A>
where
    S: Send + Sync,
    A: Clone + Send + Sync + 'static,
{
    type Rejection = (hyper::StatusCode, &'static str);

    async fn from_request_parts(
        parts: &mut hyper::http::request::Parts,
        _: &S,
    ) -> Result<Self, Self::Rejection> {
        parts.extensions.get::<Self>().cloned().ok_or((
            hyper::StatusCode::INTERNAL_SERVER_ERROR,
            "no address of the client: the server needs `.connect_info()`, and its kind of address",
        ))
    }
}
