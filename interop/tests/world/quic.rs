//! quinn: QUIC, over polder's UDP sockets.

use std::rc::Rc;
use std::sync::Arc;

use futures_concurrency::prelude::*;
use polder::net::resolve;
use quinn::{
    ClientConfig, Connection, EndpointConfig, Incoming, ServerConfig, TransportConfig, VarInt,
};

use crate::{Account, Identity, PATIENCE, Result, expect_same, payload, persist};

/// More than the contents of a stream.
const MAX_LENGTH: usize = 1 << 20;

/// A peer that is silent for the idle timeout is considered gone.
fn transport() -> Result<Arc<TransportConfig>> {
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(Some(PATIENCE.try_into()?));
    transport.keep_alive_interval(Some(PATIENCE / 3));
    Ok(Arc::new(transport))
}

pub async fn serve(identity: Identity) -> Result {
    let mut config = ServerConfig::with_single_cert(identity.chain(), identity.key())?;
    config.transport_config(transport()?);
    let own = EndpointConfig::default();
    let endpoint = polder_quinn::endpoint(own, Some(config), "0.0.0.0:443").await?;
    while let Some(incoming) = endpoint.accept().await {
        // The client must first prove its address.
        if incoming.may_retry() && !incoming.remote_address_validated() {
            let _ = incoming.retry();
            continue;
        }
        polder::spawn(async move { drop(connection(incoming).await) }).detach();
    }
    Ok(())
}

async fn connection(incoming: Incoming) -> Result {
    let connection = incoming.await?;
    loop {
        let (mut to, mut from) = connection.accept_bi().await?;
        polder::spawn(async move {
            if let Ok(bytes) = from.read_to_end(MAX_LENGTH).await {
                let _ = to.write_all(&bytes).await;
                let _ = to.finish();
            }
        })
        .detach();
    }
}

async fn exchange(connection: &Connection, number: u64) -> Result {
    let (mut to, mut from) = connection.open_bi().await?;
    to.write_all(payload(number)).await?;
    to.finish()?;
    expect_same(&from.read_to_end(MAX_LENGTH).await?, payload(number));
    Ok(())
}

/// Uses several streams concurrently. Every few exchanges it connects again, with cached state.
pub async fn ask(identity: Identity, account: Rc<Account>) -> Result {
    let mut config = ClientConfig::with_root_certificates(Arc::new(identity.roots()?))?;
    config.transport_config(transport()?);
    let endpoint = polder_quinn::endpoint(EndpointConfig::default(), None, "0.0.0.0:0").await?;
    let connect = async || {
        let addresses = resolve("quic:443").await?;
        let address = addresses.into_iter().next().ok_or("no address")?;
        let connecting = endpoint.connect_with(config.clone(), address, "quic")?;
        Ok(connecting.await?)
    };
    persist(account, &connect, async |connection, number| {
        let all = [0, 1, 2].map(|more| exchange(connection, number + more));
        all.try_join().await?;
        if number % 4 == 3 {
            connection.close(VarInt::from_u32(0), b"until later");
            *connection = connect().await?;
        }
        Ok(())
    })
    .await?;
    endpoint.close(VarInt::from_u32(0), b"goodbye");
    endpoint.wait_idle().await;
    Ok(())
}
