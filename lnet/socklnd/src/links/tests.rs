use lnet_lnd::protocol::Links as _;

use super::*;

const LOW: &str = "10.0.0.1@tcp";
const HIGH: &str = "10.0.0.2@tcp";
const RUN: PeerRun = PeerRun { version: Version::V3, incarnation: 7 };
const OTHER: PeerRun = PeerRun { version: Version::V3, incarnation: 8 };
const S: u64 = 1_000_000_000;

fn bounds(per_type: u8) -> Bounds {
    Bounds::new(per_type, 1000, 60_000, 50 * S)
}

fn links(own: &str, peer: &str, per_type: u8) -> Links {
    Links::new(own.parse().unwrap(), peer.parse().unwrap(), false, bounds(per_type))
}

/// Opens all missing connections; returns their types in order.
fn connect_all(links: &mut Links) -> Vec<ConnType> {
    let mut order = Vec::new();
    while let NextStep::Connect(conn_type) = links.next(0, true) {
        links.begin(conn_type, 0);
        links.established(conn_type, RUN, false, 0);
        order.push(conn_type);
    }
    order
}

/// lnet-wire 23: CONTROL first, then BULK_IN whenever there are not more of it than of BULK_OUT.
// Covers: S-206
#[test]
fn the_set_is_opened_in_the_order_of_the_specification() {
    use ConnType::{BulkIn, BulkOut, Control};
    assert_eq!(connect_all(&mut links(LOW, HIGH, 1)), [Control, BulkIn, BulkOut]);
    assert_eq!(connect_all(&mut links(LOW, HIGH, 2)), [Control, BulkIn, BulkOut, BulkIn, BulkOut]);
}

// Covers: S-204
#[test]
fn nothing_is_opened_before_something_is_to_be_sent() {
    let mut links = links(LOW, HIGH, 1);
    assert_eq!(links.next(0, false), NextStep::Nothing);
    // The passive side also does not complete the set that the other side opens.
    assert_eq!(links.offered(ConnType::Control, RUN), ConnAnswer::Accept);
    links.accepted(ConnType::Control, RUN);
    assert_eq!(links.next(0, true), NextStep::Nothing);
}

/// lnet-wire 24, row 1: while both connect, the connection opened by the higher NID wins.
#[test]
fn the_higher_nid_wins_a_race() {
    for (own, peer, answer) in [(LOW, HIGH, ConnAnswer::Accept), (HIGH, LOW, ConnAnswer::Refuse)] {
        let mut links = links(own, peer, 1);
        links.begin(ConnType::Control, 0);
        assert_eq!(links.offered(ConnType::Control, RUN), answer);
    }
}

#[test]
fn the_loser_of_a_race_uses_the_winners_connection() {
    let mut links = links(LOW, HIGH, 1);
    links.begin(ConnType::Control, 0);
    links.accepted(ConnType::Control, RUN);
    assert_eq!(links.refused(Retry::Race, 0), AttemptOutcome::GoOn);
    assert_eq!(links.next(0, true), NextStep::Wait { until_ns: S });
    // After the pause the winner should have completed the set; if it has not, the loser does so.
    links.accepted(ConnType::BulkIn, RUN);
    assert_eq!(links.next(S, false), NextStep::Connect(ConnType::BulkOut));
    links.accepted(ConnType::BulkOut, RUN);
    assert_eq!(links.next(S, true), NextStep::Nothing);
}

#[test]
fn a_refused_attempt_is_repeated_after_the_shortest_back_off_three_times_at_the_most() {
    let mut links = links(LOW, HIGH, 1);
    let mut now_ns = 0;
    for _ in 0..3 {
        assert_eq!(links.next(now_ns, true), NextStep::Connect(ConnType::Control));
        links.begin(ConnType::Control, now_ns);
        assert_eq!(links.refused(Retry::Race, now_ns), AttemptOutcome::GoOn);
        assert_eq!(links.next(now_ns, true), NextStep::Wait { until_ns: now_ns + S });
        now_ns += S;
    }
    links.begin(ConnType::Control, now_ns);
    assert_eq!(links.refused(Retry::Race, now_ns), AttemptOutcome::Failed);
    assert_eq!(links.next(now_ns, true), NextStep::Unreachable);
}

#[test]
fn refused_bulk_connections_are_done_without_once_there_is_one_of_each_type() {
    let mut links = links(LOW, HIGH, 2);
    for conn_type in [ConnType::Control, ConnType::BulkIn, ConnType::BulkOut] {
        links.begin(conn_type, 0);
        links.established(conn_type, RUN, false, 0);
    }
    for retry in 0..4 {
        assert_eq!(links.next(100 * S * retry, false), NextStep::Connect(ConnType::BulkIn));
        links.begin(ConnType::BulkIn, 0);
        assert_eq!(
            links.refused(Retry::Version { version: Version::V3, incarnation: 7 }, 0),
            AttemptOutcome::GoOn
        );
    }
    assert_eq!(links.next(1000 * S, true), NextStep::Nothing);
    // A new connection, or a newly set number, leads to a new request.
    links.complete();
    assert_eq!(links.next(1000 * S, false), NextStep::Connect(ConnType::BulkIn));
    links.begin(ConnType::BulkIn, 1000 * S);
    assert_eq!(links.refused(Retry::Race, 1000 * S), AttemptOutcome::GoOn);
    assert_eq!(
        links.next(1000 * S, false),
        NextStep::Wait { until_ns: 1001 * S },
        "all retries are there again"
    );
}

/// The side that has opened no connection leaves new requests to the other side.
#[test]
fn a_number_that_is_set_opens_no_first_connection() {
    let mut links = links(LOW, HIGH, 1);
    links.accepted(ConnType::Control, RUN);
    links.set_per_type(4);
    links.complete();
    assert_eq!(links.next(0, true), NextStep::Nothing);
    links.closed_all(0);
    links.complete();
    assert_eq!(links.next(0, false), NextStep::Nothing);
}

/// lnet-wire 24: a whole attempt, all types, is bounded by the timeout.
#[test]
fn the_connections_of_a_set_share_one_timeout() {
    let mut links = links(LOW, HIGH, 1);
    assert_eq!(links.begin(ConnType::Control, 0), 50 * S);
    links.established(ConnType::Control, RUN, false, 30 * S);
    // Pauses between attempts do not count against the time limit.
    assert_eq!(links.begin(ConnType::BulkIn, 100 * S), 120 * S);
    assert_eq!(links.refused(Retry::Race, 105 * S), AttemptOutcome::GoOn);
    assert_eq!(links.begin(ConnType::BulkIn, 106 * S), 121 * S);
    // The next set has a new time limit: after a failure, after the end of the connections, after a
    // complete set.
    links.failed(121 * S);
    assert_eq!(links.begin(ConnType::BulkIn, 200 * S), 250 * S);
    links.established(ConnType::BulkIn, RUN, false, 240 * S);
    links.closed_all(240 * S);
    assert_eq!(links.begin(ConnType::Control, 300 * S), 350 * S);
    links.established(ConnType::Control, RUN, false, 340 * S);
    links.accepted(ConnType::BulkIn, RUN);
    links.accepted(ConnType::BulkOut, RUN);
    links.set_per_type(2);
    links.complete();
    assert_eq!(links.begin(ConnType::BulkIn, 400 * S), 450 * S);
}

/// lnet-wire 24: row 1 goes before row 2. The attempt under way detects by itself that the peer has
/// restarted.
#[test]
fn a_race_is_decided_before_another_life() {
    for (own, peer, answer) in [(LOW, HIGH, ConnAnswer::CloseAllAndRefuse), (HIGH, LOW, ConnAnswer::Refuse)] {
        let mut links = links(own, peer, 1);
        links.accepted(ConnType::Control, RUN);
        links.begin(ConnType::BulkIn, 0);
        assert_eq!(links.offered(ConnType::Control, OTHER), answer);
    }
}

/// lnet-wire 24, rows 2 and 3.
#[test]
fn another_life_closes_all_and_a_duplicate_type_is_refused() {
    let mut links = links(LOW, HIGH, 1);
    links.accepted(ConnType::Control, RUN);
    assert_eq!(links.offered(ConnType::Control, RUN), ConnAnswer::Refuse);
    assert_eq!(links.offered(ConnType::BulkIn, RUN), ConnAnswer::Accept);
    assert_eq!(links.offered(ConnType::BulkIn, OTHER), ConnAnswer::CloseAllAndRefuse);
    let other_version = PeerRun { version: Version::V2, ..RUN };
    assert_eq!(links.offered(ConnType::BulkIn, other_version), ConnAnswer::CloseAllAndRefuse);
    links.closed_all(0);
    assert_eq!(links.offered(ConnType::BulkIn, OTHER), ConnAnswer::Accept);
}

#[test]
fn another_version_is_learnt_and_tried_at_once() {
    let mut links = links(LOW, HIGH, 1);
    links.begin(ConnType::Control, 0);
    assert_eq!(links.proposal(), (Version::V3, None));
    let retry = Retry::Version { version: Version::V2, incarnation: 7 };
    assert_eq!(links.refused(retry, 0), AttemptOutcome::GoOn);
    assert_eq!(links.next(0, true), NextStep::Connect(ConnType::Control));
    assert_eq!(links.proposal(), (Version::V2, None));
    links.begin(ConnType::Control, 0);
    links.established(ConnType::Control, PeerRun { version: Version::V2, incarnation: 7 }, false, 0);
    assert_eq!(links.proposal(), (Version::V2, Some(7)));
    // The version is forgotten with the last connection.
    links.closed_all(0);
    assert_eq!(links.proposal(), (Version::V3, None));
}

#[test]
fn a_restarted_peer_loses_its_connections_and_is_connected_to_again() {
    let mut links = links(LOW, HIGH, 1);
    links.begin(ConnType::Control, 0);
    links.established(ConnType::Control, RUN, false, 0);
    links.begin(ConnType::BulkIn, 0);
    assert_eq!(
        links.refused(Retry::Stale { version: Version::V3, incarnation: 8 }, 0),
        AttemptOutcome::CloseAll
    );
    links.closed_all(0);
    assert_eq!(links.next(0, false), NextStep::Nothing);
    assert_eq!(links.next(0, true), NextStep::Connect(ConnType::Control));
}

/// lnet-wire 24: 1 s, doubled with each failure, 60 s at the most; a success resets it.
#[test]
fn the_back_off_doubles_up_to_its_limit() {
    let mut links = links(LOW, HIGH, 1);
    let mut now_ns = 0;
    for expected_s in [1, 2, 4, 8, 16, 32, 60, 60] {
        assert_eq!(links.next(now_ns, true), NextStep::Connect(ConnType::Control));
        links.begin(ConnType::Control, now_ns);
        assert_eq!(links.failed(now_ns), AttemptOutcome::Failed);
        let until_ns = now_ns + expected_s * S;
        assert_eq!(links.next(until_ns - 1, true), NextStep::Unreachable);
        assert!(!links.is_forgettable(until_ns - 1) && links.is_forgettable(until_ns));
        now_ns = until_ns;
    }
    links.begin(ConnType::Control, now_ns);
    links.established(ConnType::Control, RUN, false, 0);
    links.closed_all(0);
    links.begin(ConnType::Control, now_ns);
    links.failed(now_ns);
    assert_eq!(links.next(now_ns + S, true), NextStep::Connect(ConnType::Control));
}

/// Connections are opened by the side that has something to send (lnet-wire 23): no attempts go to
/// a peer that is gone.
#[test]
fn an_attempt_that_failed_is_repeated_for_messages_alone() {
    let mut links = links(LOW, HIGH, 1);
    links.begin(ConnType::Control, 0);
    links.failed(0);
    assert_eq!(links.next(0, false), NextStep::Nothing);
    assert_eq!(links.next(100 * S, false), NextStep::Nothing);
    assert_eq!(links.next(100 * S, true), NextStep::Connect(ConnType::Control));
}

#[test]
fn a_failed_bulk_connection_is_tried_again_later_while_control_serves() {
    let mut links = links(LOW, HIGH, 1);
    links.begin(ConnType::Control, 0);
    links.established(ConnType::Control, RUN, false, 0);
    links.begin(ConnType::BulkIn, 0);
    links.failed(0);
    assert_eq!(links.next(0, true), NextStep::Wait { until_ns: S });
    assert_eq!(links.next(S, false), NextStep::Connect(ConnType::BulkIn));
}

/// A userspace peer gets one CONTROL connection, and is never connected to (lnet-wire 27).
#[test]
fn userspace_peers_get_one_control_connection_and_are_never_connected_to() {
    let mut links = links(LOW, HIGH, 1);
    links.begin(ConnType::Control, 0);
    links.established(ConnType::Control, RUN, true, 0);
    assert_eq!(links.next(0, true), NextStep::Nothing);

    let mut incoming = Links::new(LOW.parse().unwrap(), HIGH.parse().unwrap(), true, bounds(1));
    assert_eq!(incoming.next(0, true), NextStep::Unreachable);
    incoming.accepted(ConnType::Control, RUN);
    assert_eq!(incoming.next(0, true), NextStep::Nothing);
    incoming.closed_all(0);
    assert_eq!(incoming.next(0, true), NextStep::Unreachable);
}

/// Hellos and answers under way between two nodes that connect to each other.
#[derive(Debug, Clone, Copy)]
enum OnTheWay {
    Hello { from: usize, conn_type: ConnType },
    Answer { to: usize, conn_type: ConnType, answer: ConnAnswer },
}

/// Two nodes of which one or both have something to send, and a network that delivers in any order.
struct World {
    nodes: [Links; 2],
    sends: [bool; 2],
    on_the_way: Vec<OnTheWay>,
    refusals: u32,
    now_ns: u64,
}

impl World {
    fn new(per_type: [u8; 2], sends: [bool; 2]) -> World {
        let nodes = [links(LOW, HIGH, per_type[0]), links(HIGH, LOW, per_type[1])];
        World { nodes, sends, on_the_way: Vec::new(), refusals: 0, now_ns: 0 }
    }

    /// Sets the number of connections per type at a node.
    fn set(&mut self, node: usize, per_type: u8) {
        self.nodes[node].set_per_type(per_type);
        self.nodes[node].complete();
    }

    /// Returns whether both nodes have the same connections: `per_type` of each bulk type.
    fn agrees_on(&self, per_type: u8) -> bool {
        let [low, high] = &self.nodes;
        let types = [(ConnType::Control, 1), (ConnType::BulkIn, per_type), (ConnType::BulkOut, per_type)];
        types.into_iter().all(|(conn_type, count)| {
            low.count(conn_type) == count && high.count(conn_type.inverse()) == count
        })
    }

    /// Runs the step that `choice` selects among the possible ones; `false` if there is none.
    fn step(&mut self, choice: usize) -> bool {
        let next = [0, 1].map(|node| self.nodes[node].next(self.now_ns, self.sends[node]));
        let ready: Vec<usize> = (0..2).filter(|node| matches!(next[*node], NextStep::Connect(_))).collect();
        let choices = ready.len() + self.on_the_way.len();
        if choices == 0 {
            let later = next.iter().filter_map(|next| match next {
                NextStep::Wait { until_ns } => Some(*until_ns),
                _ => None,
            });
            let Some(until_ns) = later.min() else { return false };
            self.now_ns = until_ns;
            return true;
        }
        match choice % choices {
            place if place < ready.len() => self.connect(ready[place], next[ready[place]]),
            place => {
                let message = self.on_the_way.swap_remove(place - ready.len());
                self.deliver(message);
            }
        }
        true
    }

    fn connect(&mut self, from: usize, next: NextStep) {
        let NextStep::Connect(conn_type) = next else { unreachable!("the node is ready to connect") };
        self.nodes[from].begin(conn_type, self.now_ns);
        self.on_the_way.push(OnTheWay::Hello { from, conn_type });
    }

    fn deliver(&mut self, message: OnTheWay) {
        match message {
            OnTheWay::Hello { from, conn_type } => {
                let node = &mut self.nodes[1 - from];
                let answer = node.offered(conn_type.inverse(), RUN);
                if answer == ConnAnswer::Accept {
                    node.accepted(conn_type.inverse(), RUN);
                }
                self.on_the_way.push(OnTheWay::Answer { to: from, conn_type, answer });
            }
            OnTheWay::Answer { to, conn_type, answer: ConnAnswer::Accept } => {
                self.nodes[to].established(conn_type, RUN, false, self.now_ns);
            }
            OnTheWay::Answer { to, answer, .. } => {
                assert_eq!(answer, ConnAnswer::Refuse, "neither closes its connections");
                self.refusals += 1;
                assert_eq!(
                    self.nodes[to].refused(Retry::Race, self.now_ns),
                    AttemptOutcome::GoOn,
                    "neither side gives up"
                );
            }
        }
    }
}

proptest::proptest! {
    /// However their hellos cross, two nodes that connect to each other end with the same set of
    /// connections, of the size that both allow.
    #[test]
    fn two_nodes_that_race_agree(per_type in [1u8..4, 1u8..4], choices in proptest::collection::vec(0usize..64, 400)) {
        let mut world = World::new(per_type, [true; 2]);
        let mut left = choices.into_iter();
        while world.step(left.next().expect("400 steps are enough")) {}
        proptest::prop_assert!(world.agrees_on(per_type[0].min(per_type[1])));
    }

    /// A number raised on both sides, one after the other, comes into force if the second side
    /// follows soon.
    #[test]
    fn a_number_raised_on_both_sides_comes_into_force(
        first in 0usize..2,
        sends in 1usize..4,
        refusals in 0u32..4,
        choices in proptest::collection::vec(0usize..64, 400),
    ) {
        let mut world = World::new([1; 2], [sends & 1 == 1, sends & 2 == 2]);
        let mut left = choices.into_iter();
        while world.step(left.next().expect("400 steps are enough")) {}
        world.set(first, 3);
        let most = world.refusals + refusals;
        while world.refusals < most && world.step(left.next().expect("400 steps are enough")) {}
        world.set(1 - first, 3);
        while world.step(left.next().expect("400 steps are enough")) {}
        proptest::prop_assert!(world.agrees_on(3));
    }

    /// If the numbers are raised while both nodes connect, the one with the higher NID never has
    /// more connections of a type than it allows. The other has at most one more than it allows, if
    /// the higher NID allows more. Both sides have the same connections.
    #[test]
    fn connections_that_cross_are_one_too_many_at_the_most(
        raised in proptest::collection::vec((0usize..2, 0u8..3, 1usize..12), 1..6),
        choices in proptest::collection::vec(0usize..64, 600),
    ) {
        let mut world = World::new([1; 2], [true; 2]);
        let mut allowed = [1u8; 2];
        let mut left = choices.into_iter();
        let mut step = |world: &mut World| world.step(left.next().expect("600 steps are enough"));
        for (node, more, steps) in raised {
            allowed[node] += more;
            world.set(node, allowed[node]);
            (0..steps).for_each(|_| _ = step(&mut world));
        }
        while step(&mut world) {}
        let [low, high] = &world.nodes;
        for conn_type in [ConnType::BulkIn, ConnType::BulkOut] {
            let there = low.count(conn_type);
            proptest::prop_assert_eq!(there, high.count(conn_type.inverse()));
            proptest::prop_assert!(there <= allowed[1]);
            proptest::prop_assert!(there <= allowed[0] + u8::from(allowed[1] > allowed[0]));
        }
        proptest::prop_assert_eq!((low.count(ConnType::Control), high.count(ConnType::Control)), (1, 1));
    }
}

/// The hello of the node with the lower NID has been accepted; the node with the higher NID, which
/// allows more connections, offers one before the answer arrives. Closing either connection would
/// end all connections of both nodes.
#[test]
fn a_connection_that_crosses_another_is_kept() {
    let mut low = links(LOW, HIGH, 1);
    low.begin(ConnType::Control, 0);
    low.established(ConnType::Control, RUN, false, 0);
    low.begin(ConnType::BulkIn, 0);
    assert_eq!(low.offered(ConnType::BulkIn, RUN), ConnAnswer::Accept, "lnet-wire 24, row 1");
    low.accepted(ConnType::BulkIn, RUN);
    low.established(ConnType::BulkIn, RUN, false, 0);
    assert_eq!(low.count(ConnType::BulkIn), 2);
    // No further connection of this type is accepted, and the missing type is still opened.
    assert_eq!(low.offered(ConnType::BulkIn, RUN), ConnAnswer::Refuse);
    assert_eq!(low.next(0, false), NextStep::Connect(ConnType::BulkOut));
}

/// The second side is late: the first has accepted the refusals as final until its number is set
/// again.
#[test]
fn a_number_raised_too_late_on_the_other_side_must_be_set_again() {
    let mut world = World::new([1; 2], [true, false]);
    while world.step(0) {}
    world.set(0, 2);
    while world.step(0) {}
    assert_eq!((world.refusals, world.now_ns), (4, 3 * S), "at once, and three times a second later");
    world.set(1, 2);
    assert!(!world.step(0) && world.agrees_on(1));
    world.set(0, 2);
    while world.step(0) {}
    assert!(world.agrees_on(2));
}

/// A peer that accepts each connection and drops it.
#[test]
fn connections_that_never_last_are_opened_less_and_less_often() {
    let mut links = links(LOW, HIGH, 1);
    let (mut now_ns, mut opened) = (0, Vec::new());
    while now_ns < 100 * S {
        match links.next(now_ns, true) {
            NextStep::Connect(conn_type) => {
                links.begin(conn_type, now_ns);
                links.established(conn_type, RUN, false, now_ns);
                links.closed_all(now_ns);
                opened.push(now_ns / S);
            }
            NextStep::Wait { until_ns } => now_ns = until_ns,
            next => unreachable!("{next:?}: something is to be sent"),
        }
    }
    assert_eq!(opened, [0, 0, 1, 3, 7, 15, 31, 63]);
    // A connection that has lasted resets the pause.
    links.begin(ConnType::Control, now_ns);
    links.established(ConnType::Control, RUN, false, now_ns);
    links.closed_all(now_ns + S);
    assert_eq!(links.next(now_ns + S, true), NextStep::Connect(ConnType::Control));
}

/// Without the pause the two sides would connect as fast as they can without end, because an
/// attempt under way completes the set.
#[test]
fn connections_of_which_only_the_last_is_kept_are_opened_at_the_pace_of_the_shortest_pause() {
    let mut links = links(LOW, HIGH, 1);
    links.begin(ConnType::Control, 0);
    links.established(ConnType::Control, RUN, false, 0);
    links.begin(ConnType::BulkIn, 0);
    links.closed_all(0);
    links.established(ConnType::BulkIn, RUN, false, 0);
    let mut opened = 0;
    let mut now_ns = 0;
    while now_ns < 100 * S {
        match links.next(now_ns, false) {
            NextStep::Connect(conn_type) => {
                links.begin(conn_type, now_ns);
                links.closed_all(now_ns);
                links.established(conn_type, RUN, false, now_ns);
                opened += 1;
            }
            NextStep::Wait { until_ns } => now_ns = until_ns,
            next => unreachable!("{next:?}: the set is never complete"),
        }
        assert!(opened <= 3 * (now_ns / S + 1), "{opened} connections in {} s", now_ns / S);
    }
}

/// The pause after a failure is not cut short when connections that have lasted end.
#[test]
fn a_pause_outlasts_the_connections_that_there_were() {
    let mut links = links(LOW, HIGH, 1);
    links.begin(ConnType::Control, 0);
    links.established(ConnType::Control, RUN, false, 0);
    links.begin(ConnType::BulkIn, 0);
    links.failed(10 * S);
    links.closed_all(10 * S);
    assert_eq!(links.next(11 * S - 1, true), NextStep::Unreachable);
    assert_eq!(links.next(11 * S, true), NextStep::Connect(ConnType::Control));
}

/// A peer that allows fewer connections than this side, and shows it by closing one: measured with
/// a kernel node.
#[test]
fn a_surplus_connection_that_ends_alone_is_asked_for_again_after_the_longest_pause() {
    let mut links = links(LOW, HIGH, 2);
    connect_all(&mut links);
    assert_eq!(links.next(0, false), NextStep::Nothing);
    links.closed_one(ConnType::BulkOut, S);
    assert_eq!(links.next(S, true), NextStep::Wait { until_ns: 61 * S });
    assert_eq!(links.next(61 * S, false), NextStep::Connect(ConnType::BulkOut));
    // A reset during the handshake has the same effect as a surplus connection that ends alone.
    links.begin(ConnType::BulkOut, 61 * S);
    links.failed(61 * S);
    assert_eq!(links.next(61 * S, true), NextStep::Wait { until_ns: 121 * S });
    // A newly set number leads to a request at once, and so does a new connection set.
    links.complete();
    assert_eq!(
        links.next(62 * S, false),
        NextStep::Connect(ConnType::BulkOut),
        "after the pause of a failure"
    );
    links.closed_one(ConnType::BulkIn, 62 * S);
    links.closed_all(62 * S);
    for conn_type in [ConnType::Control, ConnType::BulkIn, ConnType::BulkOut, ConnType::BulkIn] {
        assert_eq!(links.next(62 * S, true), NextStep::Connect(conn_type));
        links.begin(conn_type, 62 * S);
        links.established(conn_type, RUN, false, 62 * S);
    }
}

/// The only connection of its type is opened again, at a pace that does not keep a peer busy that
/// accepts it each time.
#[test]
fn the_first_of_its_type_that_ends_alone_is_opened_again_at_growing_pauses() {
    let mut links = links(LOW, HIGH, 2);
    connect_all(&mut links);
    links.closed_one(ConnType::BulkOut, 0);
    let (mut now_ns, mut opened) = (0, Vec::new());
    while now_ns < 150 * S {
        links.closed_one(ConnType::BulkOut, now_ns);
        let NextStep::Wait { until_ns } = links.next(now_ns, false) else { panic!("at {now_ns}: no pause") };
        now_ns = until_ns;
        assert_eq!(links.next(now_ns, false), NextStep::Connect(ConnType::BulkOut));
        links.begin(ConnType::BulkOut, now_ns);
        links.established(ConnType::BulkOut, RUN, false, now_ns);
        opened.push(now_ns / S);
    }
    assert_eq!(opened, [1, 3, 7, 15, 31, 63, 123, 183]);
    // If all others end too, the peer has restarted: this side connects at once.
    links.closed_one(ConnType::BulkOut, now_ns);
    links.closed_all(now_ns);
    assert_eq!(links.next(now_ns, true), NextStep::Connect(ConnType::Control));
}
