//! redis with its real server: on smol's threads, as its feature `smol-comp` has it, and on
//! polder's own streams.

use polder::future::zip;
use polder::net::TcpStream;
use polder::net::unix::UnixStream;
use polder::stream::StreamExt;
use polder::unblock;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig, Client, RedisConnectionInfo};
use tokio_util::compat::FuturesAsyncReadCompatExt;

use crate::everywhere;
use crate::shared::{LIMIT, Redis};

/// A hundred tasks increment over one connection; then the test subscribes to a channel.
async fn used(connection: MultiplexedConnection, client: &Client) {
    let tasks = (0..100).map(|number: u32| {
        let mut connection = connection.clone();
        polder::spawn(async move {
            let key = format!("key {number}");
            let _: () = connection.set(&key, number).await.expect("it is stored");
            let _: u64 = connection.incr("sum", number).await.expect("it counts");
            let back: u32 = connection.get_del(&key).await.expect("it is there");
            assert_eq!(back, number);
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await;
    }
    let mut connection = connection;
    let sum: u64 = connection.get_del("sum").await.expect("it is there");
    assert_eq!(sum, 4_950);

    let mut channel = client.get_async_pubsub().await.expect("another connection");
    channel
        .subscribe("channel")
        .await
        .expect("it is subscribed");
    let mut messages = channel.into_on_message();
    let say = async {
        for number in 0..100_u32 {
            let heard: u32 = connection.publish("channel", number).await.expect("said");
            assert_eq!(heard, 1);
        }
    };
    let hear = async {
        for number in 0..100_u32 {
            let message = messages.next().await.expect("the connection is there");
            assert_eq!(message.get_payload::<u32>().expect("a number"), number);
        }
    };
    zip(say, hear).await;
}

/// On a loaded machine, an answer may take longer than the half second that is the default.
fn patient() -> AsyncConnectionConfig {
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(LIMIT));
    config.set_connection_timeout(Some(LIMIT))
}

/// Redis is used by polders tasks on the threads of smol.
#[test]
fn redis_on_smol_threads() {
    everywhere(|backend| async move {
        let test = format!("smol-{backend}");
        let Some(redis) = unblock(move || Redis::start(&test)).await else {
            return;
        };
        let client = Client::open(format!("redis://{}/", redis.address)).expect("an address");
        let patient = patient();
        let connection = client.get_multiplexed_async_connection_with_config(&patient);
        used(connection.await.expect("a connection"), &client).await;
    });
}

#[test]
fn redis_is_used_over_polders_streams() {
    everywhere(|backend| async move {
        let test = format!("own-{backend}");
        let Some(redis) = unblock(move || Redis::start(&test)).await else {
            return;
        };
        let info = RedisConnectionInfo::default();
        let client = Client::open(format!("redis://{}/", redis.address)).expect("an address");
        let tcp = TcpStream::connect(redis.address).await.expect("it listens");
        let made = MultiplexedConnection::new_with_config(&info, tcp.compat(), patient()).await;
        let (connection, driver) = made.expect("a connection");
        let driver = polder::spawn(driver);
        used(connection, &client).await;
        driver.await;

        let unix = UnixStream::connect(&redis.socket)
            .await
            .expect("it listens");
        let made = MultiplexedConnection::new_with_config(&info, unix.compat(), patient()).await;
        let (mut connection, driver) = made.expect("a connection");
        let driver = polder::spawn(driver);
        let back: String = connection.ping().await.expect("an answer");
        assert_eq!(back, "PONG");
        drop(connection);
        driver.await;
    });
}
