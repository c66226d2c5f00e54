#version 450
// out[z, c] = sum of x[r, c] over the rows r of slice z: the first pass of a bias gradient.
// Bindings: 0 x [rows, columns], 1 out [slices, columns]. Dispatch: x over columns, y = slices.
layout(local_size_x = 16) in;
layout(binding = 0, std430) readonly buffer In { float x[]; };
layout(binding = 1, std430) writeonly buffer Out { float y[]; };
layout(push_constant) uniform Push { uint rows, columns, slices; };

void main() {
  const uint c = gl_GlobalInvocationID.x, z = gl_WorkGroupID.y;
  if (c >= columns) return;
  const uint per_slice = (rows + slices - 1) / slices;
  const uint end = min((z + 1) * per_slice, rows);
  float sum = 0.0;
  for (uint r = z * per_slice; r < end; ++r) sum += x[r * columns + c];
  y[z * columns + c] = sum;
}
