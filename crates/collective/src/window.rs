//! State for a few positions in a row, from the oldest that is not done.

use std::collections::VecDeque;

/// A window that slides. Memory is bounded by its span, whatever positions a peer names.
#[derive(Debug, Default)]
pub(crate) struct Window<T> {
    oldest: u64,
    slots: VecDeque<T>,
}

impl<T: Default> Window<T> {
    /// The first position that is not done.
    pub fn oldest(&self) -> u64 {
        self.oldest
    }

    /// The state of a position less than `span` from the oldest.
    pub fn slot(&mut self, position: u64, span: u64) -> Option<&mut T> {
        let offset = position.checked_sub(self.oldest).filter(|&offset| offset < span)? as usize;
        if offset >= self.slots.len() {
            self.slots.resize_with(offset + 1, T::default);
        }
        self.slots.get_mut(offset)
    }

    /// All positions from the oldest on that something happened to.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter()
    }

    /// Panics where it is wider than `span`, or did not slide over what is done.
    pub fn check(&self, span: u64, is_done: impl Fn(&T) -> bool) {
        assert!(self.slots.len() as u64 <= span, "{} positions, not {span}", self.slots.len());
        let is_open = self.slots.front().is_none_or(|oldest| !is_done(oldest));
        assert!(is_open, "position {} is the oldest and is done", self.oldest);
    }

    /// Slides over what is done.
    pub fn slide(&mut self, is_done: impl Fn(&T) -> bool) {
        while self.slots.pop_front_if(|slot| is_done(slot)).is_some() {
            self.oldest += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_slides_over_what_is_done_and_no_further() {
        let mut window: Window<bool> = Window::default();
        assert_eq!(window.slot(3, 3), None);
        *window.slot(2, 3).expect("within the span") = true;
        window.slide(|&done| done);
        assert_eq!(window.oldest(), 0);
        *window.slot(0, 3).expect("within the span") = true;
        window.slide(|&done| done);
        assert_eq!(window.oldest(), 1);
        *window.slot(1, 3).expect("within the span") = true;
        window.slide(|&done| done);
        assert_eq!(window.oldest(), 3);
        assert_eq!(window.slot(2, 3), None, "it is done");
        assert_eq!(window.slot(5, 3), Some(&mut false));
    }
}
