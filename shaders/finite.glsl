// Recognizes infinity and NaN by a float's bits, because compilers may assume that floats are
// finite. Built-in functions (max, min, clamp; on some drivers exp and log) may turn NaN into a
// number.
#define IS_FINITE(bits) (((bits) & 0x7F800000u) != 0x7F800000u)
#define IS_NAN(v) ((floatBitsToUint(v) & 0x7FFFFFFFu) > 0x7F800000u)
#define NOT_A_NUMBER uintBitsToFloat(0x7FC00000u)

// Returns max(v, 0), and NaN for NaN. Compared as integers, negative numbers lie at or below
// -infinity; positive numbers and NaN of either sign lie above it.
float relu_of(float v) { return floatBitsToInt(v) > int(0xFF800000u) ? v : 0.0; }

// Returns the gradient of a ReLU's input; v is its input or its result.
float relu_grad(float v, float dy) { return v <= 0.0 ? 0.0 : dy; }

// max, min and clamp that return NaN if an operand is NaN.
float larger(float u, float v) { return IS_NAN(u) ? u : IS_NAN(v) ? v : max(u, v); }
float smaller(float u, float v) { return IS_NAN(u) ? u : IS_NAN(v) ? v : min(u, v); }
float limited(float v, float low, float high) { return IS_NAN(v) ? v : clamp(v, low, high); }

float exp_of(float v) { return IS_NAN(v) ? v : exp(v); }
float log_of(float v) { return IS_NAN(v) ? v : log(v); }
