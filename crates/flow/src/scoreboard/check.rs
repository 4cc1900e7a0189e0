//! The laws of a scoreboard.

use super::{Finder, Scoreboard};

impl Scoreboard {
    /// Looks at every packet. Panics where its states and the counts differ, and where a packet would be
    /// forgotten: neither in flight nor about to be sent again.
    // spec: T-12
    pub fn check(&self) {
        self.arrived.check();
        self.sent.check();
        if let Some(Finder::Priorities(found)) = self.finder.as_deref() {
            found.losses.check();
        }
        let cumulative = self.arrived.cumulative();
        assert!(self.next <= self.packets, "only packets of the message are sent");
        assert_eq!(self.lost.start(), cumulative, "lost packets begin where arrived ones end");
        let is_awaited = self.among(self.sent.iter().map(|sent| sent.item.index));
        let is_resent = self.among(self.resend.iter().copied());
        let (mut arrived, mut lost) = (cumulative, 0);
        for index in cumulative..self.next {
            let place = (index - cumulative) as usize;
            let states = (self.arrived.contains(index), self.lost.contains(index));
            match states {
                (true, true) => panic!("packet {index} has arrived and is lost"),
                (true, false) => arrived += 1,
                (false, true) => {
                    lost += 1;
                    assert!(is_resent[place], "packet {index} is lost and will not be sent again");
                }
                (false, false) => {
                    assert!(
                        is_awaited[place],
                        "packet {index} is in flight without a transmission"
                    );
                }
            }
        }
        assert_eq!(arrived, self.arrived.total(), "packets that have arrived were sent");
        assert_eq!(lost, self.lost_count, "lost packets are counted once each");
        assert_eq!(
            self.in_flight_packets() + self.arrived.total() + self.lost_count,
            self.next,
            "every packet that was sent is in flight, arrived or lost"
        );
    }

    /// Says of every packet from the first that has not arrived to the last that was sent whether a queue has
    /// it.
    fn among(&self, queue: impl Iterator<Item = u32>) -> Vec<bool> {
        let cumulative = self.arrived.cumulative();
        let mut among = vec![false; (self.next - cumulative) as usize];
        let places = queue.filter_map(|index| index.checked_sub(cumulative));
        for place in places {
            assert!((place as usize) < among.len(), "queues have packets that were sent");
            among[place as usize] = true;
        }
        among
    }
}
