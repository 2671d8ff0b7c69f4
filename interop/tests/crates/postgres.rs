//! tokio-postgres on polder's streams, with a real server: psql reads what was written.

use std::sync::Arc;

use polder::net::unix::UnixStream;
use polder::unblock;
use tokio_postgres::{Config, NoTls};
use tokio_util::compat::FuturesAsyncReadCompatExt;

use crate::everywhere;
use crate::shared::{Postgres, client};

const TABLE: &str = "drop table if exists numbers; create table numbers (number int primary key)";
const INSERT: &str = "insert into numbers values ($1), ($1 + 20)";

/// Rows written by 20 tasks over tokio-postgres are read by psql.
#[test]
fn tokio_postgres_writes_psql_reads() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let postgres = Arc::new(postgres);
    everywhere(move |_| used(postgres.clone()));
}

async fn used(postgres: Arc<Postgres>) {
    let mut config = Config::new();
    config.user("test").dbname("postgres");
    let stream = UnixStream::connect(&postgres.socket).await;
    let stream = stream.expect("it listens");
    let made = config.connect_raw(stream.compat(), NoTls).await;
    let (database, connection) = made.expect("it is let in");
    let connection = polder::spawn(connection);

    database.batch_execute(TABLE).await.expect("a table");
    let database = Arc::new(database);
    let tasks = (0..20_i32).map(|number| {
        let database = database.clone();
        polder::spawn(async move { database.execute(INSERT, &[&number]).await })
    });
    for task in tasks.collect::<Vec<_>>() {
        assert_eq!(task.await.expect("it is written"), 2);
    }
    let again = database.execute(INSERT, &[&7]).await;
    let error = again.expect_err("it is there");
    let is_unique = error.code().map(|code| code.code());
    assert_eq!(is_unique, Some("23505"), "{error}");
    drop(database);
    connection.await.expect("it ends well");

    if let Some(mut psql) = client("psql") {
        psql.args(["-U", "test", "-d", "postgres", "-At"]);
        psql.args(["-c", "select count(*), sum(number) from numbers"]);
        psql.env("PGHOST", postgres.folder.path());
        let output = unblock(move || psql.output()).await.expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said.trim(), "40|780", "{output:?}");
    }
}
