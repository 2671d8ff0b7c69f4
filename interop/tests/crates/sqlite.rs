//! sqlx, with its runtime `smol` and SQLite: another program reads what polder's tasks have
//! written.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use polder::time::sleep;
use polder::unblock;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};

use crate::everywhere;
use crate::shared::{LIMIT, client};

const READ: &str = "import sqlite3, sys
print(sqlite3.connect(sys.argv[1]).execute('select count(*), sum(number) from numbers').fetchone())";

/// Rows written by 20 tasks over sqlx are read by Python.
#[test]
fn sqlx_writes_python_reads() {
    everywhere(|backend| async move {
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("sqlite-{backend}"));
        for suffix in ["", "-wal", "-shm"] {
            let mut file = file.clone().into_os_string();
            file.push(suffix);
            let _ = std::fs::remove_file(file);
        }
        let options = SqliteConnectOptions::new()
            .filename(&file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(LIMIT);
        let pool = SqlitePoolOptions::new().max_connections(3);
        let pool = pool.acquire_timeout(LIMIT).connect_with(options).await;
        let pool = pool.expect("a database");
        let create = "create table numbers (number integer primary key, task integer not null)";
        sqlx::query(create).execute(&pool).await.expect("a table");
        // More tasks than connections, so most wait for one.
        let tasks = (0..20_i64).map(|task| {
            let pool = pool.clone();
            polder::spawn(async move {
                for number in task * 20..task * 20 + 20 {
                    let mut transaction = pool.begin_with("begin immediate").await?;
                    let insert = sqlx::query("insert into numbers values (?, ?)");
                    let insert = insert.bind(number).bind(task);
                    insert.execute(&mut *transaction).await?;
                    match number % 2 {
                        0 => transaction.commit().await?,
                        // Rolled back as it is dropped.
                        _ => sleep(Duration::from_micros(100)).await,
                    }
                }
                Ok::<_, sqlx::Error>(())
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("it is written");
        }
        let sum = sqlx::query_scalar::<_, i64>("select sum(number) from numbers");
        let sum = sum.fetch_one(&pool).await.expect("a sum");
        assert_eq!(sum, (0..400).step_by(2).sum::<i64>());
        pool.close().await;

        if client("python3").is_some() {
            let mut python = Command::new("python3");
            python.args(["-c", READ]).arg(&file);
            let output = unblock(move || python.output()).await.expect("it runs");
            let said = String::from_utf8_lossy(&output.stdout);
            assert_eq!(said.trim(), format!("(200, {sum})"), "{output:?}");
        }
    });
}
