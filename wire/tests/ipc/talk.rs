//! A host and a client that talk to each other.

use std::collections::BTreeMap;

use proptest::prelude::*;
use prost::Message as _;
use watershed_wire::ipc::{
    ClientConnection, ConsumerMethod, Event, HostConnection, Method, ProducerMethod, ReplyTo,
};
use watershed_wire::protos::ActivateTriggersRequest;

use crate::{End as _, drain};

/// One call of a script: which method, what it says, how often it is answered (0: rejected),
/// whether a reply is wanted and something is attached.
type Step = (usize, String, usize, bool, bool);

fn step() -> impl Strategy<Value = Step> {
    (0_usize..99, "[a-z]{0,9}", 0_usize..4, any::<bool>(), any::<bool>())
}

/// What came of a call: its replies, and whether it was rejected.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    replies: Vec<Vec<u8>>,
    has_ended: bool,
    is_rejected: bool,
}

/// Answers a call as its script says.
fn answer<M: Method>(host: &mut HostConnection<M, usize>, reply_to: ReplyTo, args: &[u8], answers: usize) {
    if answers == 0 {
        return host.reject(reply_to);
    }
    for nth in 1..=answers {
        let reply = [args, &[nth as u8]].concat();
        host.reply_bytes(reply_to, &reply, nth < answers).unwrap();
    }
}

/// Runs a script, every transfer in pieces of at most `piece` bytes.
fn talk<M: Method>(script: &[Step], piece: usize) {
    let mut host = HostConnection::<M, usize>::new();
    let mut client = ClientConnection::<M, usize>::bind();
    let mut outcomes = BTreeMap::<u64, Outcome>::new();
    let (mut calls, mut attachments, mut is_bound) = (Vec::new(), Vec::new(), false);
    let method = |step: &Step| M::ALL[step.0 % M::ALL.len()];
    let args = |step: &Step| ActivateTriggersRequest { trigger_names: vec![step.1.clone()] };

    let mut ids = Vec::new();
    for (nth, step) in script.iter().enumerate() {
        ids.push(match step.4 {
            true => client.invoke_with(method(step), &args(step), step.3, nth),
            false => client.invoke(method(step), &args(step), step.3),
        });
        // Some calls come before the port is bound, some after.
        if nth % 3 == 2 || nth + 1 == script.len() {
            for _ in 0..2 {
                let (bytes, attached) = drain(client.out_mut());
                attachments.extend(attached);
                for piece in bytes.chunks(piece) {
                    host.take_all(piece);
                    while let Some(call) = host.poll().unwrap() {
                        answer(&mut host, call.reply_to, &call.args, script[calls.len()].2);
                        calls.push((call.method, call.args));
                    }
                }
                for piece in drain(host.out_mut()).0.chunks(piece) {
                    client.take_all(piece);
                    while let Some(event) = client.poll().unwrap() {
                        match event {
                            Event::Bound => is_bound = true,
                            Event::Reply { request_id, has_more, reply, .. } => {
                                let outcome = outcomes.entry(request_id).or_default();
                                assert!(!outcome.has_ended, "nothing follows the end");
                                outcome.replies.push(reply);
                                outcome.has_ended = !has_more;
                            }
                            Event::Failed { request_id, .. } => {
                                outcomes.entry(request_id).or_default().is_rejected = true;
                            }
                            Event::BindFailed => panic!("the port is there"),
                        }
                    }
                }
            }
        }
    }

    assert_eq!(is_bound, !script.is_empty());
    let expected: Vec<_> = script.iter().map(|step| (method(step), args(step).encode_to_vec())).collect();
    assert_eq!(calls, expected);
    let attached = (0..).zip(script).filter_map(|(nth, step)| step.4.then_some(nth));
    assert!(attachments.into_iter().eq(attached));
    for (step, id) in script.iter().zip(ids) {
        let bytes = args(step).encode_to_vec();
        let replies = (1..=step.2).map(|nth| [&bytes[..], &[nth as u8]].concat()).collect();
        let expected = Outcome { replies, has_ended: step.2 > 0, is_rejected: step.2 == 0 };
        let outcome = outcomes.remove(&id.unwrap());
        assert_eq!(outcome, step.3.then_some(expected));
    }
    assert!(outcomes.is_empty() && client.frames_ignored() == 0 && host.frames_malformed() == 0);
}

proptest! {
    #[test]
    fn every_call_gets_its_own_answers(
        script in proptest::collection::vec(step(), 0..30),
        piece in 1_usize..200,
    ) {
        talk::<ProducerMethod>(&script, piece);
        talk::<ConsumerMethod>(&script, piece);
    }
}
