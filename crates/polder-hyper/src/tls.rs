//! [`RustlsConfig`]: certificates, by the names of axum-server.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use futures_rustls::TlsAcceptor;
use futures_rustls::pki_types::pem::PemObject;
use futures_rustls::pki_types::{CertificateDer, PrivateKeyDer};
use futures_rustls::rustls::ServerConfig;
use futures_rustls::rustls::crypto::CryptoProvider;

/// A server's certificate and key, for [`Serve::tls`](crate::Serve::tls). A clone is another handle
/// of the same: a certificate that is loaded again is that of all, for new connections.
///
/// ```no_run
/// use polder::net::TcpListener;
/// use polder_hyper::RustlsConfig;
///
/// # async fn run() -> std::io::Result<()> {
/// let tls = RustlsConfig::from_pem_file("certificate.pem", "key.pem").await?;
/// let listener = TcpListener::bind("127.0.0.1:8443").await?;
/// polder_hyper::serve(listener, axum::Router::new()).tls(tls).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RustlsConfig {
    config: Arc<Mutex<Arc<ServerConfig>>>,
}

impl RustlsConfig {
    /// With rustls's own configuration, of which `alpn_protocols` should name what is served: `h2`
    /// with the feature `http2`, and `http/1.1`.
    ///
    /// ```no_run
    /// use futures_rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
    /// use futures_rustls::rustls::ServerConfig;
    /// use polder_hyper::RustlsConfig;
    /// use std::sync::Arc;
    ///
    /// # fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let certificate = CertificateDer::from_pem_file("certificate.pem")?;
    /// let key = PrivateKeyDer::from_pem_file("key.pem")?;
    /// let config = ServerConfig::builder().with_no_client_auth();
    /// let mut config = config.with_single_cert(vec![certificate], key)?;
    /// config.alpn_protocols = vec![b"http/1.1".into()];
    /// let tls = RustlsConfig::from_config(Arc::new(config));
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_config(config: Arc<ServerConfig>) -> RustlsConfig {
        let config = Arc::new(Mutex::new(config));
        RustlsConfig { config }
    }

    /// With a chain of certificates and a key in PEM. Clients choose between the versions of HTTP
    /// by ALPN. The cryptography is that of the program's
    /// [`CryptoProvider`](CryptoProvider::install_default), otherwise ring's.
    ///
    /// ```
    /// use polder_hyper::RustlsConfig;
    ///
    /// let error = RustlsConfig::from_pem(b"nothing", b"").unwrap_err();
    /// assert_eq!(error.to_string(), "there is no certificate");
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidData`](io::ErrorKind::InvalidData) if they are not in PEM, or do not belong
    /// together. [`Unsupported`](io::ErrorKind::Unsupported) if there is no `CryptoProvider`:
    /// without the feature `rustls` the program has to install one.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> io::Result<RustlsConfig> {
        let config = config(chain_of(certificates)?, key_of(key)?)?;
        Ok(RustlsConfig::from_config(config))
    }

    /// As [`from_pem`](Self::from_pem), from files.
    ///
    /// # Errors
    ///
    /// Those of reading the files and of [`from_pem`](Self::from_pem), with the file's name, or
    /// with both names if the files do not belong together.
    pub async fn from_pem_file(
        certificates: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> io::Result<RustlsConfig> {
        let config = config_of_files(certificates.as_ref(), key.as_ref()).await?;
        Ok(RustlsConfig::from_config(config))
    }

    /// Replaces the configuration, for connections that come from now on.
    pub fn reload_from_config(&self, config: Arc<ServerConfig>) {
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
    }

    /// Reads certificates and a key again, for connections that come from now on.
    ///
    /// ```no_run
    /// use polder::signal::{Signal, Signals};
    /// use polder::stream::StreamExt;
    ///
    /// # async fn run(tls: polder_hyper::RustlsConfig) -> std::io::Result<()> {
    /// let mut hangups = Signals::new([Signal::Hup])?;
    /// while hangups.next().await.is_some() {
    ///     if let Err(error) = tls.reload_from_pem_file("certificate.pem", "key.pem").await {
    ///         eprintln!("the old certificate stays: {error}");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`from_pem_file`](Self::from_pem_file). The old certificate stays.
    pub async fn reload_from_pem_file(
        &self,
        certificates: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> io::Result<()> {
        let config = config_of_files(certificates.as_ref(), key.as_ref()).await?;
        self.reload_from_config(config);
        Ok(())
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        config.clone().into()
    }
}

async fn config_of_files(certificates: &Path, key: &Path) -> io::Result<Arc<ServerConfig>> {
    let bytes = polder::fs::read(certificates.to_owned()).await;
    let chain = bytes.and_then(|bytes| chain_of(&bytes));
    let chain = chain.map_err(|error| named(certificates.display(), error))?;
    let bytes = polder::fs::read(key.to_owned()).await;
    let private = bytes.and_then(|bytes| key_of(&bytes));
    let private = private.map_err(|error| named(key.display(), error))?;
    config(chain, private).map_err(|error| {
        let both = format_args!("{} and {}", certificates.display(), key.display());
        named(both, error)
    })
}

fn named(file: impl Display, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{file}: {error}"))
}

fn chain_of(certificates: &[u8]) -> io::Result<Vec<CertificateDer<'static>>> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificates)
        .collect::<Result<_, _>>()
        .map_err(invalid)?;
    if chain.is_empty() {
        return Err(invalid("there is no certificate"));
    }
    Ok(chain)
}

fn key_of(key: &[u8]) -> io::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(key).map_err(|error| invalid(format!("key: {error}")))
}

fn config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> io::Result<Arc<ServerConfig>> {
    let config = ServerConfig::builder_with_provider(provider()?)
        .with_safe_default_protocol_versions()
        .map_err(invalid)?;
    let config = config.with_no_client_auth();
    let mut config = config.with_single_cert(chain, key).map_err(invalid)?;
    config.alpn_protocols = vec![b"http/1.1".into()];
    if cfg!(feature = "http2") {
        config.alpn_protocols.insert(0, b"h2".into());
    }
    Ok(Arc::new(config))
}

/// rustls's own choice panics if its features name two providers, or none; and any crate of a
/// program may add one.
fn provider() -> io::Result<Arc<CryptoProvider>> {
    #[cfg(feature = "rustls")]
    let otherwise = Ok(Arc::new(
        futures_rustls::rustls::crypto::ring::default_provider(),
    ));
    #[cfg(not(feature = "rustls"))]
    let otherwise = Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "rustls has no provider of cryptography: CryptoProvider::install_default sets one",
    ));
    CryptoProvider::get_default().cloned().map_or(otherwise, Ok)
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
