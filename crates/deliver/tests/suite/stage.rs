//! Endpoints in the fabric, checked after every input, and who posts what when.

use thalweg_core::{Checked, NodeId, Rng, Span, Time};
use thalweg_deliver::{Completion, Config, Endpoint, ReceiveCall, SendCall};
use thalweg_fabric::{Director, Fabric, Hosts, Limit, Pause, Topology};

/// A call at a host.
pub enum Post {
    Send(SendCall),
    Receive(ReceiveCall),
}

/// Posts calls when they are due, and notes how they end.
#[derive(Default)]
pub struct Script {
    /// In order of time.
    posts: Vec<(Time, NodeId, Option<Post>)>,
    next: usize,
    pub ends: Vec<(NodeId, Time, Completion)>,
}

impl Script {
    pub fn new(posts: Vec<(Time, NodeId, Post)>) -> Script {
        let mut posts: Vec<_> =
            posts.into_iter().map(|(at, host, post)| (at, host, Some(post))).collect();
        posts.sort_by_key(|&(at, host, _)| (at, host));
        Script { posts, ..Script::default() }
    }
}

impl Director<Checked<Endpoint>> for Script {
    fn next_wake(&mut self) -> Time {
        self.posts.get(self.next).map_or(Time::NEVER, |(at, ..)| *at)
    }

    fn handle_wake(&mut self, now: Time, hosts: &mut Hosts<'_, Checked<Endpoint>>) {
        while let Some((at, host, post)) = self.posts.get_mut(self.next)
            && *at <= now
        {
            self.next += 1;
            let machine = hosts.machine(*host);
            let result = match post.take().expect("posted once") {
                Post::Send(call) => machine.post_send(now, call),
                Post::Receive(call) => machine.post_receive(now, call),
            };
            result.expect("the call is sound");
        }
    }

    fn handle_event(
        &mut self,
        now: Time,
        node: NodeId,
        event: Completion,
        _: &mut Hosts<'_, Checked<Endpoint>>,
    ) {
        self.ends.push((node, now, event));
    }
}

/// Plays a script until nothing happens any more.
pub fn play(
    topology: Topology,
    network: &thalweg_fabric::Config,
    config: &Config,
    seed: u64,
    script: &mut Script,
) -> Fabric<Checked<Endpoint>> {
    let rng = Rng::new(seed).stream("endpoints");
    let mut fabric = Fabric::new(topology, network, seed, |host| {
        let rng = rng.substream("host", u64::from(host.0));
        Checked::new(Endpoint::new(config.clone(), rng).expect("the settings work"))
    });
    let pause = fabric.run(script, Limit::until(Time::ZERO + Span::from_s(1_000)));
    assert_eq!(pause, Pause::Quiet, "seed {seed}: it does not end");
    fabric.check().expect("the fabric keeps its laws");
    fabric
}
