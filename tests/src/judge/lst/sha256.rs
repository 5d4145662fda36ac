//! SHA-256 (FIPS 180-4), for recorded payloads of which only the hash was kept.

/// Returns the hash in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    let (primes, constants) = (primes(), primes().map(|prime| fraction(f64::from(prime).cbrt())));
    let mut hash: [u32; 8] = std::array::from_fn(|at| fraction(f64::from(primes[at]).sqrt()));
    let mut padded = [bytes, &[0x80]].concat();
    padded.resize((padded.len() + 8).next_multiple_of(64) - 8, 0);
    padded.extend((bytes.len() as u64 * 8).to_be_bytes());
    padded.chunks_exact(64).for_each(|block| add_block(&mut hash, block, &constants));
    hash.iter().map(|word| format!("{word:08x}")).collect()
}

/// Returns the first 64 primes.
fn primes() -> [u32; 64] {
    let is_prime = |number: &u32| (2..*number).all(|divisor| !number.is_multiple_of(divisor));
    let mut all = (2..).filter(is_prime);
    std::array::from_fn(|_| all.next().unwrap_or_default())
}

/// Returns the first 32 bits behind the point.
fn fraction(number: f64) -> u32 {
    (number.fract() * 4_294_967_296.0) as u32
}

fn add_block(hash: &mut [u32; 8], block: &[u8], constants: &[u32; 64]) {
    let mut words = [0u32; 64];
    for (word, four) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = four.iter().fold(0, |word, &byte| word << 8 | u32::from(byte));
    }
    for at in 16..64 {
        let (early, late) = (words[at - 15], words[at - 2]);
        let small = early.rotate_right(7) ^ early.rotate_right(18) ^ early >> 3;
        let large = late.rotate_right(17) ^ late.rotate_right(19) ^ late >> 10;
        words[at] = words[at - 16].wrapping_add(small).wrapping_add(words[at - 7]).wrapping_add(large);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *hash;
    for (word, constant) in words.iter().zip(constants) {
        let turned = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let chosen = e & f ^ !e & g;
        let first = [turned, chosen, *constant, *word].into_iter().fold(h, u32::wrapping_add);
        let turned = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let second = turned.wrapping_add(a & b ^ a & c ^ b & c);
        (h, g, f, e, d, c, b, a) = (g, f, e, d.wrapping_add(first), c, b, a, first.wrapping_add(second));
    }
    for (sum, word) in hash.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *sum = sum.wrapping_add(word);
    }
}
