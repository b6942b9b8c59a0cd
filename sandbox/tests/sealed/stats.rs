//! The figures of the pools.

use std::sync::Arc;
use std::time::Duration;

use sandbox::{Job, JobLimits, JobPool, Limits, Pool, PoolConfig};
use tokio_util::sync::CancellationToken;

use crate::jobs::JOBS;
use crate::support::{Tools, eventually, program, trials};

trials![
    a_pool_counts_what_ends_its_programs,
    a_job_pool_counts_its_jobs,
    children_for_callers_that_left_are_ended,
];

async fn a_pool_counts_what_ends_its_programs() {
    let pool = Pool::new(PoolConfig { warm: 1, max_running: 1, ..PoolConfig::default() }).unwrap();
    let short = Limits {
        cpu: Duration::from_millis(200),
        wall: Duration::from_millis(400),
        ..Limits::server()
    };
    let run = |source: &str, limits: Limits| {
        let (pool, program) = (&pool, program(source));
        async move {
            pool.run(program, &limits, Arc::<Tools>::default(), CancellationToken::new()).await
        }
    };
    run("return 1", Limits::server()).await.result.unwrap();
    run("throw new Error('its own')", Limits::server()).await.result.unwrap_err();
    let quiet = pool.stats();
    let ended = |it: &sandbox::PoolStats| {
        [it.ended_by_cpu, it.ended_by_wall, it.ended_by_memory, it.crashed]
    };
    assert_eq!(ended(&quiet), [0; 4], "{quiet:?}");
    run("for (;;) {}", Limits { wall: Duration::from_secs(30), ..short }).await.result.unwrap_err();
    run("await new Promise(() => setTimeout(() => {}, 1e6))", short).await.result.unwrap_err();
    let memory = "const all = []; for (;;) all.push(new ArrayBuffer(1e6))";
    run(memory, Limits::server()).await.result.unwrap_err();
    let stats = pool.stats();
    assert_eq!(ended(&stats), [1, 1, 1, 0], "{stats:?}");
    assert!(stats.started >= 5 && stats.failed_starts == 0, "{stats:?}");
    assert!(stats.cpu >= Duration::from_millis(200), "{stats:?}");
    // One runs, and the others wait for their turn.
    let sleep = || run("await new Promise((done) => setTimeout(done, 2_000))", Limits::server());
    let mut all = Box::pin(futures::future::join3(sleep(), sleep(), sleep()));
    let is_busy = async {
        eventually("one to run and two to wait", || {
            let now = pool.stats();
            (now.busy, now.waiting) == (1, 2)
        })
        .await;
    };
    tokio::select! {
        _ = &mut all => panic!("all ended before two were seen to wait"),
        () = is_busy => {}
    }
    drop(all);
    eventually("none to run or wait", || {
        let now = pool.stats();
        (now.busy, now.waiting) == (0, 0)
    })
    .await;
}

async fn a_job_pool_counts_its_jobs() {
    let Job { name, run } = JOBS[0];
    let limits = JobLimits { cpu: Duration::from_millis(300), ..JobLimits::default() };
    let pool = JobPool::new(Job { name, run }, limits, 1).unwrap();
    pool.run(b"hello".to_vec()).await.unwrap();
    let before = pool.stats();
    assert_eq!((before.started, before.ended_by_cpu, before.crashed), (1, 0, 0), "{before:?}");
    for job in ["loop", "memory", "stack"] {
        pool.run(job.into()).await.unwrap_err();
    }
    let stats = pool.stats();
    let ended = [stats.ended_by_cpu, stats.ended_by_memory, stats.crashed, stats.ended_by_wall];
    assert_eq!(ended, [1, 1, 1, 0], "{stats:?}");
    assert!(stats.cpu >= Duration::from_millis(200), "{stats:?}");
}

/// Many callers that give up while they wait leave no more children behind than the stock keeps.
async fn children_for_callers_that_left_are_ended() {
    let pool = Pool::new(PoolConfig { warm: 2, max_running: 64, ..PoolConfig::default() }).unwrap();
    let run = || {
        let (limits, never) = (Limits::server(), CancellationToken::new());
        let pool = &pool;
        async move { pool.run(program("return 1"), &limits, Arc::<Tools>::default(), never).await }
    };
    run().await.result.unwrap();
    let mut rounds = 0;
    // A busy machine starts few children before their callers leave.
    while rounds < 8 || pool.stats().started <= 32 {
        rounds += 1;
        assert!(rounds < 1_000, "too few are started to tell: {:?}", pool.stats());
        let mut all = Box::pin(futures::future::join_all((0..64).map(|_| run())));
        let wait = eventually("many to wait for a child", || pool.stats().waiting > 16);
        tokio::select! {
            done = &mut all => assert!(done.iter().all(|one| one.result.is_ok()), "{done:?}"),
            () = wait => {}
        }
    }
    eventually("the surplus to end", || {
        let now = pool.stats();
        now.starting == 0 && now.warm <= 2
    })
    .await;
    run().await.result.unwrap();
}
