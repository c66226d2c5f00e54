// Of a float's bits: neither infinite nor NaN. Compilers may take the float itself for finite.
#define IS_FINITE(bits) (((bits) & 0x7F800000u) != 0x7F800000u)
