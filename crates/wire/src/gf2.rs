//! Polynomials over GF(2) modulo the CRC-32 polynomial. They turn questions about bits of a message
//! into arithmetic on its CRC.
//!
//! A word holds the coefficient of x^k in bit 31-k, the order in which the reflected CRC keeps
//! its register. A message bit followed by n more bits contributes x^(n+32) to the CRC.

/// The CRC-32 polynomial (IEEE 802.3) without x^32.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// x^0.
pub(crate) const ONE: u32 = 1 << 31;
/// x^32, what the last bit of a message contributes.
pub(crate) const X_32: u32 = POLYNOMIAL;

/// Product modulo the polynomial.
pub(crate) const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut k = 0;
    while k < 32 {
        if a & (ONE >> k) != 0 {
            product ^= b;
        }
        b = times_x(b);
        k += 1;
    }
    product
}

/// x^(-exponent): what undoes a shift by `exponent` bits. The exponent is below 2^20.
pub(crate) fn inverse_power_of_x(exponent: u32) -> u32 {
    debug_assert!(exponent >> INVERSE_SQUARES.len() == 0);
    let mut power = ONE;
    for (k, &square) in INVERSE_SQUARES.iter().enumerate() {
        if exponent & (1 << k) != 0 {
            power = multiply(power, square);
        }
    }
    power
}

/// Product with x.
pub(crate) const fn times_x(a: u32) -> u32 {
    if a & 1 == 0 {
        a >> 1
    } else {
        (a >> 1) ^ POLYNOMIAL
    }
}

/// Quotient by x.
const fn over_x(a: u32) -> u32 {
    if a & ONE == 0 {
        a << 1
    } else {
        ((a ^ POLYNOMIAL) << 1) | 1
    }
}

/// x^(-2^k) for k in 0..20.
const INVERSE_SQUARES: [u32; 20] = {
    let mut squares = [over_x(ONE); 20];
    let mut k = 1;
    while k < squares.len() {
        squares[k] = multiply(squares[k - 1], squares[k - 1]);
        k += 1;
    }
    squares
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn over_x_undoes_times_x() {
        let mut power = ONE;
        for _ in 0..1000 {
            assert_eq!(over_x(times_x(power)), power);
            power = times_x(power);
        }
    }

    #[test]
    fn inverse_powers_by_repeated_division() {
        let mut power = ONE;
        for exponent in 0..5000 {
            assert_eq!(inverse_power_of_x(exponent), power, "{exponent}");
            power = over_x(power);
        }
    }

    proptest! {
        #[test]
        fn multiplication_is_a_commutative_ring(a: u32, b: u32, c: u32) {
            prop_assert_eq!(multiply(a, b), multiply(b, a));
            prop_assert_eq!(multiply(a, ONE), a);
            prop_assert_eq!(multiply(multiply(a, b), c), multiply(a, multiply(b, c)));
            prop_assert_eq!(multiply(a, b ^ c), multiply(a, b) ^ multiply(a, c));
        }

        #[test]
        fn flipping_one_bit_of_a_message_adds_a_power_of_x(
            mut message in proptest::collection::vec(any::<u8>(), 1..200),
            index: prop::sample::Index,
        ) {
            let before = crc32fast::hash(&message);
            let bit = index.index(8 * message.len());
            message[bit / 8] ^= 1 << (bit % 8);
            let difference = before ^ crc32fast::hash(&message);
            let following = u32::try_from(8 * message.len() - 1 - bit).unwrap();
            prop_assert_eq!(multiply(difference, inverse_power_of_x(following + 32)), ONE);
        }
    }
}
