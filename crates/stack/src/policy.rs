//! Code points of packets: the one place where job, layer and size meet.

use thalweg_core::{
    Dscp, FRONT_PRIORITY, LAST_PRIORITY, LAYER_PRIORITIES, TrafficClass, layer_priority,
};

/// Decides which code point packets get.
// spec: C-16
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// True if jobs have classes. Then layers order packets at their sender only: there are too few classes for both, and
    /// a job waits for its last layer whichever that is.
    pub job_classes: bool,
}

/// Packets, as far as they are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packets {
    /// Packets that others wait for, of training.
    Control,
    /// Values of a job.
    Values {
        /// Class of the job, from 1 to 7, the last. `None` if it has none.
        class: Option<u8>,
        /// The layer of a model and the number of its layers, if they are known.
        layer: Option<(u16, u16)>,
    },
    /// An ordinary flow, and the priority that follows from bounds on its size, if it has any.
    Flow {
        /// The priority.
        bound: Option<u8>,
    },
}

impl Policy {
    /// The code point of packets.
    pub fn dscp(self, packets: Packets) -> Dscp {
        let training = |priority| Dscp::of_priority(priority).in_class(TrafficClass::Training);
        match packets {
            Packets::Control => training(0),
            Packets::Values { class: Some(class), .. } if self.job_classes => {
                training(class.clamp(FRONT_PRIORITY, LAST_PRIORITY))
            }
            Packets::Values { layer: Some((layer, layers)), .. } if !self.job_classes => {
                training(layer_priority(layer, layers, FRONT_PRIORITY, LAYER_PRIORITIES))
            }
            Packets::Values { .. } => training(LAST_PRIORITY),
            Packets::Flow { bound } => Dscp::of_priority(bound.unwrap_or(LAST_PRIORITY)),
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::Bytes;
    use thalweg_deliver::Segment;
    use thalweg_deliver::{FrontFirst, Policy as _};

    use super::*;

    // spec: C-16 machine
    #[test]
    fn the_table_of_code_points() {
        let [off, on] = [false, true].map(|job_classes| Policy { job_classes });
        let values = |class, layer| Packets::Values { class, layer };
        let (front, back) = (Some((0, 50)), Some((49, 50)));
        // What is known, and the priority without job classes and with them.
        let training = [
            (Packets::Control, 0, 0),
            (values(None, None), 7, 7),
            (values(None, front), 1, 7),
            (values(None, back), 7, 7),
            (values(Some(1), None), 7, 1),
            (values(Some(1), front), 1, 1),
            (values(Some(1), back), 7, 1),
            (values(Some(2), front), 1, 2),
            (values(Some(3), back), 7, 3),
            (values(Some(4), None), 7, 4),
            (values(Some(5), front), 1, 5),
            (values(Some(6), back), 7, 6),
            (values(Some(0), back), 7, 1),
            (values(Some(7), back), 7, 7),
            (values(Some(200), front), 1, 7),
        ];
        let ordinary =
            (0..=LAST_PRIORITY).map(|bound| (Packets::Flow { bound: Some(bound) }, bound, bound));
        let ordinary = ordinary.chain([(Packets::Flow { bound: None }, 7, 7)]);
        let training = training.map(|row| (row, TrafficClass::Training));
        let ordinary = ordinary.map(|row| (row, TrafficClass::Ordinary));
        for ((packets, without, with), class) in training.into_iter().chain(ordinary) {
            let expected = |priority| Dscp::of_priority(priority).in_class(class);
            assert_eq!(off.dscp(packets), expected(without), "{packets:?}");
            assert_eq!(on.dscp(packets), expected(with), "{packets:?}");
        }
    }

    // spec: C-16 machine
    #[test]
    fn without_job_classes_layers_have_the_classes_of_deliveries() {
        let off = Policy { job_classes: false };
        for layer in 0..50 {
            let bytes = 1_408;
            let offset = Bytes::ZERO;
            let segment = Segment { layer, layers: 50, offset, bytes, is_important: false };
            let packets = Packets::Values { class: None, layer: Some((layer, 50)) };
            assert_eq!(off.dscp(packets), FrontFirst::default().tag(&segment).dscp);
        }
    }
}
