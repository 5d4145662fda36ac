/// Counts of events, which show that each kind of trouble really occurred.
pub trait Counts: Default {
    /// Returns all counts with their names, in a fixed order.
    fn list(&self) -> Vec<(&'static str, u64)>;

    /// Adds the counts of another run.
    fn add(&mut self, other: &Self);
}

macro_rules! counts {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: u64,)*
        }

        impl $crate::Counts for $name {
            fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$(($text, self.$field)),*]
            }

            fn add(&mut self, other: &$name) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

pub(crate) use counts;
