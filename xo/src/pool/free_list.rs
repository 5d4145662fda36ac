//! The free buffers of a pool, which are found by age and by colour in constant time.

use std::fmt;

/// A label of a pool's buffers, so that a buffer returns to its previous user, in whose caches its
/// bytes may still be: often the number of a transfer machine. It is a preference: if no buffer of
/// the colour is free, a pool gives any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Colour {
    /// The least recently used buffer.
    #[default]
    Any,
    /// The buffer last used under this number, which is less than the pool's
    /// [`crate::BufferPoolOptions::colours`].
    Of(u32),
}

impl fmt::Display for Colour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Colour::Any => f.write_str("any"),
            Colour::Of(number) => number.fmt(f),
        }
    }
}

/// No index.
const NONE: u32 = u32::MAX;

/// Index in `links` of the list of all items, by age.
const AGE: usize = 0;
/// Index in `links` of the list of one colour.
const COLOUR: usize = 1;

/// Items, each with a colour or none. Each call takes constant time, and allocates nothing within
/// the reserved room.
#[derive(Debug)]
pub(crate) struct FreeList<T> {
    places: Vec<Place<T>>,
    /// Indices of places without an item.
    vacant: Vec<u32>,
    /// The list of all items, oldest first.
    by_age: List,
    /// The list of the items of each colour, newest last.
    by_colour: Box<[List]>,
}

#[derive(Debug)]
struct Place<T> {
    item: Option<T>,
    colour: Colour,
    /// The neighbours in the list of all items, and in the list of the colour.
    links: [Links; 2],
}

#[derive(Debug, Clone, Copy)]
struct Links {
    before: u32,
    behind: u32,
}

#[derive(Debug, Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

impl<T> FreeList<T> {
    pub(crate) fn new(colours: u32) -> FreeList<T> {
        let empty = List { first: NONE, last: NONE };
        FreeList {
            places: Vec::new(),
            vacant: Vec::new(),
            by_age: empty,
            by_colour: vec![empty; colours as usize].into(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.vacant.len()
    }

    /// Reserves room for `items` items in total, so that `put` allocates nothing.
    pub(crate) fn reserve(&mut self, items: usize) {
        self.places.reserve(items.saturating_sub(self.places.len()));
        self.vacant.reserve(items.saturating_sub(self.vacant.len()));
    }

    pub(crate) fn put(&mut self, item: T, colour: Colour) {
        let place = self.vacant.pop().unwrap_or_else(|| {
            let links = [Links { before: NONE, behind: NONE }; 2];
            self.places.push(Place { item: None, colour, links });
            self.places.len() as u32 - 1
        });
        let Place { item: lies, colour: has, .. } = &mut self.places[place as usize];
        (*lies, *has) = (Some(item), colour);
        append::<T, AGE>(&mut self.places, &mut self.by_age, place);
        if let Some(list) = list_of(&mut self.by_colour, colour) {
            append::<T, COLOUR>(&mut self.places, list, place);
        }
    }

    /// Removes and returns the newest item of this colour; if there is none, the oldest of all.
    pub(crate) fn take(&mut self, colour: Colour) -> Option<T> {
        let last = list_of(&mut self.by_colour, colour).map_or(NONE, |list| list.last);
        self.remove(if last == NONE { self.by_age.first } else { last })
    }

    fn remove(&mut self, place: u32) -> Option<T> {
        let Place { item, colour, .. } = self.places.get_mut(place as usize)?;
        let (item, colour) = (item.take()?, *colour);
        unlink::<T, AGE>(&mut self.places, &mut self.by_age, place);
        if let Some(list) = list_of(&mut self.by_colour, colour) {
            unlink::<T, COLOUR>(&mut self.places, list, place);
        }
        self.vacant.push(place);
        Some(item)
    }
}

fn list_of(by_colour: &mut [List], colour: Colour) -> Option<&mut List> {
    match colour {
        Colour::Any => None,
        Colour::Of(number) => by_colour.get_mut(number as usize),
    }
}

fn append<T, const KIND: usize>(places: &mut [Place<T>], list: &mut List, place: u32) {
    places[place as usize].links[KIND] = Links { before: list.last, behind: NONE };
    match places.get_mut(list.last as usize) {
        Some(last) => last.links[KIND].behind = place,
        None => list.first = place,
    }
    list.last = place;
}

fn unlink<T, const KIND: usize>(places: &mut [Place<T>], list: &mut List, place: u32) {
    let Links { before, behind } = places[place as usize].links[KIND];
    match places.get_mut(before as usize) {
        Some(neighbour) => neighbour.links[KIND].behind = behind,
        None => list.first = behind,
    }
    match places.get_mut(behind as usize) {
        Some(neighbour) => neighbour.links[KIND].before = before,
        None => list.last = before,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COLOURS: u32 = 3;

    fn colours() -> impl Strategy<Value = Colour> {
        prop_oneof![Just(Colour::Any), (0..COLOURS).prop_map(Colour::Of)]
    }

    /// A plain model of a free list: items in the order in which they came.
    #[derive(Default)]
    struct Model(Vec<(u32, Colour)>);

    impl Model {
        fn take(&mut self, colour: Colour) -> Option<u32> {
            let same = |(_, has): &(u32, Colour)| *has == colour && colour != Colour::Any;
            let at = self.0.iter().rposition(same).unwrap_or(0);
            (at < self.0.len()).then(|| self.0.remove(at).0)
        }
    }

    proptest! {
        // MT-125: the items returned, and the number of free ones.
        // Covers: MT-124, MT-125
        #[test]
        fn a_shelf_agrees_with_a_list(steps in prop::collection::vec((colours(), any::<bool>()), 1..300)) {
            let mut free_list = FreeList::new(COLOURS);
            let mut model = Model::default();
            for (number, (colour, take)) in (0..).zip(steps) {
                if take {
                    prop_assert_eq!(free_list.take(colour), model.take(colour));
                } else {
                    free_list.put(number, colour);
                    model.0.push((number, colour));
                }
                prop_assert_eq!(free_list.len(), model.0.len());
            }
            while let Some(item) = free_list.take(Colour::Any) {
                prop_assert_eq!(Some(item), model.take(Colour::Any));
            }
            prop_assert!(model.0.is_empty());
        }
    }
}
