//! Vector instructions by their effect on lanes: prefix, map and opcode of [`Vex`], the mnemonic of
//! the VEX encoding where there is one, and the [`Encodings`]. Float instructions are listed as
//! packed single; `select::typed` derives the others.

use super::bytes::Extent::{Bytes, Half, Quarter, Whole};
use super::bytes::{Encodings, Evex, Vex};

macro_rules! instructions {
    ($($name:ident $prefix:literal $map:literal $opcode:literal $($wide:ident)? $manual:literal
        $form:ident $(($($fields:tt)*))?;)*) => {
        $(pub(super) const $name: Vex = Vex {
            prefix: $prefix,
            map: $map,
            opcode: $opcode,
            wide: instructions!(@wide $($wide)?),
            form: instructions!(@$form $($($fields)*)?),
        };)*
        #[cfg(test)]
        pub(super) const ALL: &[(Vex, &str)] = &[$(($name, $manual)),*];
    };
    (@wide) => { false };
    (@wide wide) => { true };
    (@vex) => { Encodings::Vex };
    (@both $memory:expr $(, $wide:ident)?) => { Encodings::Both(instructions!(@fields $memory $(, $wide)?)) };
    (@evex $memory:expr $(, $wide:ident)?) => { Encodings::Evex(instructions!(@fields $memory $(, $wide)?)) };
    (@fields $memory:expr $(, $wide:ident)?) => {
        Evex { wide: instructions!(@wide $($wide)?), memory: $memory }
    };
}

instructions! {
    LOAD 0 1 0x10 "vmovups" both(Whole);
    STORE 0 1 0x11 "vmovups" both(Whole);
    COPY 0 1 0x28 "vmovaps" both(Whole);
    STORE_PAST 0 1 0x2B "vmovntps" both(Whole);
    ADD 0 1 0x58 "vaddps" both(Whole);
    SUB 0 1 0x5C "vsubps" both(Whole);
    MUL 0 1 0x59 "vmulps" both(Whole);
    DIV 0 1 0x5E "vdivps" both(Whole);
    MIN 0 1 0x5D "vminps" both(Whole);
    MAX 0 1 0x5F "vmaxps" both(Whole);
    SQRT 0 1 0x51 "vsqrtps" both(Whole);
    COMPARE 0 1 0xC2 "vcmpps" vex;
    AND 0 1 0x54 "vandps" both(Whole);
    XOR 0 1 0x57 "vxorps" both(Whole);
    SHUFFLE 0 1 0xC6 "vshufps" both(Whole);
    COMPARE_FLAGS 0 1 0x2E "vucomiss" both(Bytes(4));
    SIGN_BITS 0 1 0x50 "vmovmskps" vex;
    FROM_WORDS 0 1 0x5B "vcvtdq2ps" both(Whole);
    TO_WORDS 2 1 0x5B "vcvttps2dq" both(Whole);
    FROM_UNSIGNED_WORDS 3 1 0x7A "vcvtudq2ps" evex(Whole);
    TO_UNSIGNED_WORDS 0 1 0x78 "vcvttps2udq" evex(Whole);
    SINGLES_TO_DOUBLES 0 1 0x5A "vcvtps2pd" both(Half);
    DOUBLES_TO_SINGLES 1 1 0x5A "vcvtpd2ps" both(Whole, wide);
    SINGLE_TO_DOUBLE 2 1 0x5A "vcvtss2sd" both(Bytes(4));
    DOUBLE_TO_SINGLE 3 1 0x5A "vcvtsd2ss" both(Bytes(8), wide);
    FROM_INT 2 1 0x2A "vcvtsi2ss" both(Bytes(4));
    TO_INT 2 1 0x2C "vcvttss2si" both(Bytes(4));
    ADD_HALVES 1 1 0xFD "vpaddw" both(Whole);
    SUB_HALVES 1 1 0xF9 "vpsubw" both(Whole);
    MUL_HALVES 1 1 0xD5 "vpmullw" both(Whole);
    MUL_HIGH_HALVES 1 1 0xE4 "vpmulhuw" both(Whole);
    MUL_HIGH_HALVES_SIGNED 1 1 0xE5 "vpmulhw" both(Whole);
    EQUAL_HALVES 1 1 0x75 "vpcmpeqw" vex;
    GREATER_HALVES 1 1 0x65 "vpcmpgtw" vex;
    MIN_HALVES 1 1 0xEA "vpminsw" both(Whole);
    MAX_HALVES 1 1 0xEE "vpmaxsw" both(Whole);
    MIN_UNSIGNED_HALVES 1 2 0x3A "vpminuw" both(Whole);
    MAX_UNSIGNED_HALVES 1 2 0x3E "vpmaxuw" both(Whole);
    MIN_WORDS 1 2 0x39 "vpminsd" both(Whole);
    MAX_WORDS 1 2 0x3D "vpmaxsd" both(Whole);
    MIN_LONGS 1 2 0x39 "vpminsq" evex(Whole, wide);
    MAX_LONGS 1 2 0x3D "vpmaxsq" evex(Whole, wide);
    MIN_UNSIGNED_LONGS 1 2 0x3B "vpminuq" evex(Whole, wide);
    MAX_UNSIGNED_LONGS 1 2 0x3F "vpmaxuq" evex(Whole, wide);
    SHIFT_HALVES 1 1 0x71 "" both(Whole);
    EACH_LEFT 1 2 0x47 "vpsllvd" both(Whole);
    EACH_RIGHT 1 2 0x45 "vpsrlvd" both(Whole);
    EACH_RIGHT_SIGNED 1 2 0x46 "vpsravd" both(Whole);
    EACH_RIGHT_SIGNED_LONGS 1 2 0x46 "vpsravq" evex(Whole, wide);
    BLEND_BYTES 1 3 0x4C "vpblendvb" vex;
    SPLAT_HALF 1 2 0x79 "vpbroadcastw" both(Bytes(2));
    BYTES_TO_HALVES 1 2 0x30 "vpmovzxbw" both(Half);
    BYTES_TO_HALVES_SIGNED 1 2 0x20 "vpmovsxbw" both(Half);
    ADD_WORDS 1 1 0xFE "vpaddd" both(Whole);
    ADD_LONGS 1 1 0xD4 "vpaddq" both(Whole, wide);
    SUB_WORDS 1 1 0xFA "vpsubd" both(Whole);
    SUB_LONGS 1 1 0xFB "vpsubq" both(Whole, wide);
    MUL_WORDS 1 2 0x40 "vpmulld" both(Whole);
    MUL_LONGS 1 2 0x40 "vpmullq" evex(Whole, wide);
    MUL_TO_LONGS 1 1 0xF4 "vpmuludq" both(Whole, wide);
    MUL_TO_LONGS_SIGNED 1 2 0x28 "vpmuldq" both(Whole, wide);
    AND_BITS 1 1 0xDB "vpand" both(Whole);
    AND_NOT_BITS 1 1 0xDF "vpandn" both(Whole);
    OR_BITS 1 1 0xEB "vpor" both(Whole);
    XOR_BITS 1 1 0xEF "vpxor" both(Whole);
    LOGIC 1 3 0x25 "vpternlogd" evex(Whole);
    EQUAL_WORDS 1 1 0x76 "vpcmpeqd" vex;
    EQUAL_LONGS 1 2 0x29 "vpcmpeqq" vex;
    GREATER_WORDS 1 1 0x66 "vpcmpgtd" vex;
    GREATER_LONGS 1 2 0x37 "vpcmpgtq" vex;
    MIN_UNSIGNED 1 2 0x3B "vpminud" both(Whole);
    MAX_UNSIGNED 1 2 0x3F "vpmaxud" both(Whole);
    ABS_WORDS 1 2 0x1E "vpabsd" both(Whole);
    ABS_LONGS 1 2 0x1F "vpabsq" evex(Whole, wide);
    ONES_OF_WORDS 1 2 0x55 "vpopcntd" evex(Whole);
    ONES_OF_LONGS 1 2 0x55 "vpopcntq" evex(Whole, wide);
    LEADING_ZEROS_OF_WORDS 1 2 0x44 "vplzcntd" evex(Whole);
    LEADING_ZEROS_OF_LONGS 1 2 0x44 "vplzcntq" evex(Whole, wide);
    SHIFT_WORDS 1 1 0x72 "" both(Whole);
    SHIFT_LONGS 1 1 0x73 "" both(Whole, wide);
    SHIFT_LONGS_SIGNED 1 1 0x72 "" evex(Whole, wide);
    WORDS_LEFT 1 1 0xF2 "vpslld" both(Bytes(16));
    WORDS_RIGHT 1 1 0xD2 "vpsrld" both(Bytes(16));
    WORDS_RIGHT_SIGNED 1 1 0xE2 "vpsrad" both(Bytes(16));
    LONGS_LEFT 1 1 0xF3 "vpsllq" both(Bytes(16), wide);
    LONGS_RIGHT 1 1 0xD3 "vpsrlq" both(Bytes(16), wide);
    LONGS_RIGHT_SIGNED 1 1 0xE2 "vpsraq" evex(Bytes(16), wide);
    ROTATE_WORDS 1 1 0x72 "" evex(Whole);
    EACH_ROTATE_LEFT 1 2 0x15 "vprolvd" evex(Whole);
    EACH_ROTATE_RIGHT 1 2 0x14 "vprorvd" evex(Whole);
    ROTATE_LONGS 1 1 0x72 "" evex(Whole, wide);
    BLEND 1 3 0x4A "vblendvps" vex;
    BLEND_WORDS 1 3 0x02 "vpblendd" vex;
    BLEND_HALVES 1 3 0x0E "vpblendw" vex;
    TEST 1 2 0x17 "vptest" vex;
    SPLAT_SINGLE 1 2 0x18 "vbroadcastss" both(Bytes(4));
    SPLAT_DOUBLE 1 2 0x19 "vbroadcastsd" both(Bytes(8), wide);
    SPLAT_WORD 1 2 0x58 "vpbroadcastd" both(Bytes(4));
    SPLAT_LONG 1 2 0x59 "vpbroadcastq" both(Bytes(8), wide);
    FROM_GENERAL 1 1 0x6E "vmovd" both(Bytes(4));
    TO_GENERAL 1 1 0x7E "vmovd" both(Bytes(4));
    EXTRACT 1 3 0x16 "vpextrd" both(Bytes(4));
    INSERT 1 3 0x22 "vpinsrd" both(Bytes(4));
    INSERT_SINGLE 1 3 0x21 "vinsertps" both(Bytes(4));
    LOW_DOUBLES 1 1 0x14 "vunpcklpd" both(Whole, wide);
    LOAD_HIGH_DOUBLE 1 1 0x16 "vmovhpd" both(Bytes(8), wide);
    EXTRACT_HALF 1 3 0x39 "vextracti128" both(Bytes(16));
    INSERT_HALF 1 3 0x38 "vinserti128" both(Bytes(16));
    COMBINE_HALVES 1 3 0x46 "vperm2i128" vex;
    INTERLEAVE_LOW_WORDS 1 1 0x62 "vpunpckldq" both(Whole);
    INTERLEAVE_HIGH_WORDS 1 1 0x6A "vpunpckhdq" both(Whole);
    INTERLEAVE_LOW_LONGS 1 1 0x6C "vpunpcklqdq" both(Whole, wide);
    INTERLEAVE_HIGH_LONGS 1 1 0x6D "vpunpckhqdq" both(Whole, wide);
    JOIN_HALVES 1 3 0x43 "vshufi32x4" evex(Whole);
    PERMUTE_LONGS 1 3 0x00 wide "vpermq" both(Whole, wide);
    PERMUTE_WORDS 1 2 0x36 "vpermd" both(Whole);
    PERMUTE_WORDS_OF_TWO 1 2 0x76 "vpermi2d" evex(Whole);
    SHUFFLE_BYTES 1 2 0x00 "vpshufb" both(Whole);
    SHUFFLE_WORDS 1 1 0x70 "vpshufd" both(Whole);
    ALIGN 1 3 0x0F "vpalignr" both(Whole);
    ALIGN_WORDS 1 3 0x03 "valignd" evex(Whole);
    WORDS_TO_LONGS 1 2 0x35 "vpmovzxdq" both(Half);
    WORDS_TO_LONGS_SIGNED 1 2 0x25 "vpmovsxdq" both(Half);
    BYTES_TO_WORDS 1 2 0x31 "vpmovzxbd" both(Quarter);
    BYTES_TO_WORDS_SIGNED 1 2 0x21 "vpmovsxbd" both(Quarter);
    HALVES_TO_WORDS 1 2 0x33 "vpmovzxwd" both(Half);
    HALVES_TO_WORDS_SIGNED 1 2 0x23 "vpmovsxwd" both(Half);
    WORDS_TO_MASK 2 2 0x39 "vpmovd2m" evex(Whole);
    LONGS_TO_MASK 2 2 0x39 "vpmovq2m" evex(Whole, wide);
    HALVES_TO_MASK 2 2 0x29 "vpmovw2m" evex(Whole, wide);
    STORE_HALVES 3 1 0x7F "vmovdqu16" evex(Whole, wide);
    STORE_LONGS 1 1 0x11 "vmovupd" evex(Whole, wide);
    STORE_WORDS 0 1 0x11 "vmovups" evex(Whole);
    WORDS_TO_BYTES 2 2 0x31 "vpmovdb" evex(Quarter);
    WORDS_TO_HALVES 2 2 0x33 "vpmovdw" evex(Half);
    HALVES_TO_BYTES 2 2 0x30 "vpmovwb" evex(Half);
    PACK_WORDS 1 2 0x2B "vpackusdw" both(Whole);
    PACK_HALVES 1 1 0x67 "vpackuswb" both(Whole);
    ROUND_SINGLES 1 3 0x08 "vroundps" both(Whole);
    MULTIPLY_ADD_213 1 2 0xA8 "vfmadd213ps" both(Whole);
    MULTIPLY_ADD_231 1 2 0xB8 "vfmadd231ps" both(Whole);
    GENERAL_AND_NOT 0 2 0xF2 "andn" vex;
    GENERAL_LEFT 1 2 0xF7 "shlx" vex;
    GENERAL_RIGHT 3 2 0xF7 "shrx" vex;
    GENERAL_RIGHT_SIGNED 2 2 0xF7 "sarx" vex;
}
