//! Futures whose buffers come from a pool, and return to it.

use nlx::{BufferPool, BufferPoolOptions, Colour, Provision};

use super::*;

const BUFFERS: usize = 8;

fn pool(domain: &Domain) -> BufferPool {
    let pool = domain.pool(BufferPoolOptions::new(4096).colours(2)).unwrap();
    assert_eq!(pool.provision(BUFFERS).unwrap_or_default(), BUFFERS);
    pool
}

/// Waits for the last events of dropped futures, which have no fixed time.
fn await_home(pool: &BufferPool) {
    until("all buffers are back", || pool.counts().free == BUFFERS);
}

#[test]
fn the_buffer_of_a_dropped_future_goes_home() {
    let Pair { a, .. } = Pair::over_loopback();
    let pool = pool(&a.domain);
    for _ in 0..3 * BUFFERS {
        let buffer = pool.get_wait(Colour::Of(1), HUNG).unwrap().unwrap();
        let offered = a.machine.start(Op::passive_receive(buffer));
        drop(offered);
    }
    await_home(&pool);
}

#[test]
fn messages_come_as_long_as_they_are_let_go_of() {
    let pair = Pair::over_loopback();
    let domain = pair.b.domain.clone();
    let pool = pool(&domain);
    let provision = Provision { min_receive_size: 4096, max_messages: 1, buffers: 2, colour: Colour::Of(0) };
    let receiver = domain.machine().pool(&pool, provision).start_async("0@lo:12345:31:*").unwrap();
    let to = pair.a.machine.end_point(&receiver.address().to_string()).unwrap();
    for number in 0..3 * BUFFERS {
        let sending = pair.a.machine.start(Op::send(pair.a.filled(&[number as u8; 9]), &to).timeout(HUNG));
        assert_eq!(*block_on(receiver.next_message()).unwrap().message, [number as u8; 9]);
        block_on(sending).unwrap();
    }
    let (mut waiting, offered) = (
        receiver.next_message(),
        receiver.start(Op::passive_receive(pool.get(Colour::Any).unwrap().unwrap())),
    );
    assert!(poll_once(&mut waiting).is_pending());
    drop((waiting, offered));
    drop(receiver);
    await_home(&pool);
}
