//! The text forms of a table.

use std::fmt::{self, Write};

use super::CptTable;

/// Prints the table in the form of `cpu_partition_table` (lnet-semantics 18a): a line per partition
/// with its CPUs.
impl fmt::Display for CptTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for cpt in 0..self.partitions() {
            write!(f, "{cpt}\t:")?;
            for cpu in self.cpumask(cpt).iter() {
                write!(f, " {cpu}")?;
            }
            f.write_char('\n')?;
        }
        Ok(())
    }
}

/// Prints a table's distances in the form of `cpu_partition_distance` (lnet-semantics 18a): a line
/// per partition with `partition:distance` for each.
#[derive(Debug, Clone, Copy)]
pub struct Distances<'a>(pub &'a CptTable);

impl fmt::Display for Distances<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Distances(table) = self;
        for from in 0..table.partitions() {
            write!(f, "{from}\t:")?;
            for to in 0..table.partitions() {
                match table.distance(from, to) {
                    Some(distance) => write!(f, " {to}:{distance}")?,
                    None => write!(f, " {to}:-")?,
                }
            }
            f.write_char('\n')?;
        }
        Ok(())
    }
}
