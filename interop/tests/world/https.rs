//! rustls: HTTP/1.1 over TLS, with sessions that are resumed.

use std::rc::Rc;
use std::sync::Arc;

use futures_rustls::pki_types::ServerName;
use futures_rustls::rustls::{ClientConfig, ServerConfig};
use futures_rustls::{TlsAcceptor, TlsConnector};
use polder::net::TcpStream;
use polder::time::timeout;

use crate::http::{connect_1, connection, exchange_1, serve as serve_port};
use crate::{Account, Identity, PATIENCE, Result, persist};

pub async fn serve(identity: Identity) -> Result {
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(identity.chain(), identity.key())?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    serve_port(443, move |stream| {
        let greeting = acceptor.accept(stream);
        async move { connection(timeout(PATIENCE, greeting).await??).await }
    })
    .await
}

pub async fn ask(identity: Identity, account: Rc<Account>) -> Result {
    let config = ClientConfig::builder()
        .with_root_certificates(identity.roots()?)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let connect = async || {
        let stream = TcpStream::connect("https:443").await?;
        let name = ServerName::try_from("https")?;
        connect_1(connector.connect(name, stream).await?).await
    };
    persist(account, connect, async |client, number| {
        exchange_1(client, "https", number).await
    })
    .await
}
