// The push constants of every matrix product (ops/gemm.h mirrors them as GemmParams).
//
// A product C[m, n] = A[m, k] * B[k, n] reads A through one of these modes; B and C are row-major:
//   nn       A is stored [m, k].
//   tn       A is stored [k, m].
//   conv     forward convolution. Row = output pixel (image, oy, ox); k = (ky, kx, channel);
//            A = input [batch, h, w, c], zero outside.
//   conv_dx  gradient of the input. Row = input pixel (image, y, x); k = (ky, kx, output channel);
//            A = output gradient [batch, oh, ow, kc], zero where no output pixel used the input.
//   conv_dw  gradient of the weights. Row = (ky, kx, channel); k = output pixel;
//            A = input [batch, h, w, c], zero outside.

#define SLICE (gl_WorkGroupID.z % p.slices)
#define GROUP (gl_WorkGroupID.z / p.slices)

#define MODE_NN 0
#define MODE_TN 1
#define MODE_CONV 2
#define MODE_CONV_DX 3
#define MODE_CONV_DW 4

// What a kernel does with C before it writes it, in this order. BIAS and RELU are flags of
// p.epilogue, the others are flags of the kernel's constant kJoins.
#define BIAS 1      // + side[n]
#define RESIDUAL 1  // + residual[m, n], which has the layout of C
#define RELU 2
#define KEEP 2      // C where side[m, n] is above 0, else 0: the gradient of a ReLU whose result is `side`
#define MOMENTS 4   // the kernel writes residual[tiles, 2, n] too: mean and sum of squared deviations of a tile's rows

struct GemmParams {
  uint m, n, k;        // of the product
  uint batch, h, w, c; // input tensor of the convolution, NHWC; c of a group
  uint oh, ow, kc;     // output pixels; kc = channels of A along k (conv: c, conv_dx: output channels of a group)
  uint kh, kw, stride, pad_y, pad_x, dilation;
  uint groups;         // of channels: each group's n columns lie side by side in B and C, its channels in A
  uint slices;         // of k: workgroup z = group * slices + slice; a slice is written at C + slice * m * groups * n
  uint epilogue;       // BIAS, RELU
  uint stride_x;       // conv, conv_dw: stride along x; `stride` is that along y
  uint line_step, line_offset;  // conv, SPREAD: line l of the output is line l * line_step + line_offset of C
};
