//! Which planes are on.

/// One of the planes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Plane {
    Aggregate,
    Deliver,
    Prioritize,
    Pace,
}

impl Plane {
    pub(super) const ALL: [Plane; 4] =
        [Plane::Aggregate, Plane::Deliver, Plane::Prioritize, Plane::Pace];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Plane::Aggregate => "aggregate",
            Plane::Deliver => "deliver",
            Plane::Prioritize => "prioritize",
            Plane::Pace => "pace",
        }
    }

    const fn bit(self) -> usize {
        1 << self as usize
    }
}

/// A combination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Planes(usize);

impl Planes {
    pub(super) const NONE: Planes = Planes(0);
    pub(super) const FOUR: Planes = Planes(15);

    pub(super) const fn index(self) -> usize {
        self.0
    }

    pub(super) const fn has(self, plane: Plane) -> bool {
        self.0 & plane.bit() != 0
    }

    pub(super) const fn with(self, plane: Plane) -> Planes {
        Planes(self.0 | plane.bit())
    }

    pub(super) const fn without(self, plane: Plane) -> Planes {
        Planes(self.0 & !plane.bit())
    }

    pub(super) fn name(&self) -> String {
        let on: Vec<&str> =
            Plane::ALL.into_iter().filter(|plane| self.has(*plane)).map(Plane::name).collect();
        if on.is_empty() { "none".to_owned() } else { on.join(" + ") }
    }
}

/// All sixteen, by their index.
pub(super) fn every() -> [Planes; 16] {
    std::array::from_fn(Planes)
}
