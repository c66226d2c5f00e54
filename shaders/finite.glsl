// Infinity and NaN, told by a float's bits: compilers may take the float itself for finite, and built-in functions (max,
// min, clamp; on some drivers exp and log) may make a number of NaN.
#define IS_FINITE(bits) (((bits) & 0x7F800000u) != 0x7F800000u)
#define IS_NAN(v) ((floatBitsToUint(v) & 0x7FFFFFFFu) > 0x7F800000u)
#define NOT_A_NUMBER uintBitsToFloat(0x7FC00000u)

// max(v, 0), and NaN of NaN. As integers, negative numbers lie up to -infinity, NaN of either sign and positive ones above.
float relu_of(float v) { return floatBitsToInt(v) > int(0xFF800000u) ? v : 0.0; }

// The gradient before a ReLU, from what went into it or from its result.
float relu_grad(float v, float dy) { return v <= 0.0 ? 0.0 : dy; }

// max, min and clamp that give NaN where an operand is.
float larger(float u, float v) { return IS_NAN(u) ? u : IS_NAN(v) ? v : max(u, v); }
float smaller(float u, float v) { return IS_NAN(u) ? u : IS_NAN(v) ? v : min(u, v); }
float limited(float v, float low, float high) { return IS_NAN(v) ? v : clamp(v, low, high); }

float exp_of(float v) { return IS_NAN(v) ? v : exp(v); }
float log_of(float v) { return IS_NAN(v) ? v : log(v); }
