// Declares a kernel's buffers and push constants. A shader defines, then includes this file:
//   #define BUFFERS(B) B(0, Floats, x) B(1, Floats, y)   in binding order
//   #define PARAMS uint count;                            the push constants
// and reads and writes x.v[i].
//
// Each such shader is compiled twice: with descriptors, and (NAME_address, where BY_ADDRESS is
// defined) with the buffers as device addresses at the head of the push constants. CPU devices use
// the latter: without descriptors their loads are plain vector gathers, which are several times
// faster. A shader that only they use defines BY_ADDRESS itself.
#include "common.glsl"

#ifdef BY_ADDRESS
#extension GL_EXT_buffer_reference : require
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Vectors { vec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Ints { int v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Uints { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Steps { StepValues v[]; };
#define DECLARE_BUFFER(i, type, name) type name;
layout(push_constant) uniform Push { BUFFERS(DECLARE_BUFFER) PARAMS };
#else
#define FloatsElement float
#define VectorsElement vec4
#define IntsElement int
#define UintsElement uint
#define StepsElement StepValues
#define DECLARE_BUFFER(i, type, name) \
  layout(binding = i, std430) buffer name##Block { type##Element v[]; } name;
BUFFERS(DECLARE_BUFFER)
layout(push_constant) uniform Push { PARAMS };
#endif
