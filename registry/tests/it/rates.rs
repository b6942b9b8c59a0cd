//! Token buckets: shared by all gateways, never overdrawn.

use std::time::Duration;

use registry::Rate;
use sqlx::Executor as _;

use crate::database::{Database, act_as};

/// Slow enough that no token is added while a test runs.
const SLOW: Rate = Rate { per_second: 0.001, capacity: 100.0 };

/// GW-30: two gateways that take from one bucket concurrently get no more than it holds.
#[tokio::test]
async fn gateways_share_a_bucket() {
    let database = Database::migrated().await;
    let gateways = [database.registry().await, database.registry().await];
    let draws: Vec<_> = (0..60)
        .map(|draw| {
            let registry = gateways[draw % 2].clone();
            tokio::spawn(async move { registry.take_tokens("key a", 3, SLOW).await.unwrap() })
        })
        .collect();
    let mut granted = 0;
    for draw in draws {
        granted += draw.await.unwrap().granted;
    }
    assert_eq!(granted, 100);
    let empty = gateways[0].take_tokens("key a", 1, SLOW).await.unwrap();
    assert_eq!(empty.granted, 0);
    assert!(empty.wait > Duration::from_secs(900), "{:?}", empty.wait);
    let other = gateways[0].take_tokens("key b", 1, SLOW).await.unwrap();
    assert_eq!((other.granted, other.wait), (1, Duration::ZERO));
}

#[tokio::test]
async fn a_bucket_refills_over_time() {
    let database = Database::migrated().await;
    let registry = database.registry().await;
    registry.take_tokens("a", 100, SLOW).await.unwrap();
    let mut superuser = database.superuser().await;
    let earlier = "update rate_buckets set filled_at = filled_at - interval '10 seconds'";
    superuser.execute(earlier).await.unwrap();
    let fast = Rate { per_second: 2.0, capacity: 100.0 };
    let drawn = registry.take_tokens("a", 100, fast).await.unwrap().granted;
    assert!((20..=100).contains(&drawn), "{drawn}");
    // The bucket never exceeds its capacity, and a clock that is set back does not empty it.
    superuser
        .execute("update rate_buckets set filled_at = filled_at - interval '1 day'")
        .await
        .unwrap();
    assert_eq!(registry.take_tokens("a", 1_000, fast).await.unwrap().granted, 100);
    superuser
        .execute("update rate_buckets set tokens = 5, filled_at = now() + interval '1 day'")
        .await
        .unwrap();
    assert_eq!(registry.take_tokens("a", 5, SLOW).await.unwrap().granted, 5);
}

/// A bucket can be read, emptied or filled only through its name.
#[tokio::test]
async fn buckets_are_accessible_only_by_name() {
    let database = Database::migrated().await;
    let registry = database.registry().await;
    database.tenants(["acme.web"]).await;
    registry.take_tokens("a", 100, SLOW).await.unwrap();
    let mut app = database.app().await;
    act_as(&mut app, "acme.web", "alice").await;
    let seen: i64 =
        sqlx::query_scalar("select count(*) from rate_buckets").fetch_one(&mut app).await.unwrap();
    assert_eq!(seen, 0);
    for statement in ["delete from rate_buckets", "update rate_buckets set tokens = 100"] {
        assert_eq!(app.execute(statement).await.unwrap().rows_affected(), 0, "{statement}");
    }
    // An idle bucket is full, the same as none, so it may be deleted.
    app.execute("rollback").await.unwrap();
    let idle = "update rate_buckets set filled_at = now() - interval '2 hours'";
    database.superuser().await.execute(idle).await.unwrap();
    act_as(&mut app, "acme.web", "alice").await;
    assert_eq!(app.execute("delete from rate_buckets").await.unwrap().rows_affected(), 1);
}
