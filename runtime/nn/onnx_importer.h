// Declarations shared by onnx_import*.cpp, onnx_axes.cpp, onnx_attention.cpp and onnx_rotary.cpp.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "nn/onnx_fold.h"
#include "nn/onnx_import.h"
#include "nn/onnx_view.h"

namespace etr::nn {

// A layer of the model to be, or a field of the batch. Layers that nothing reads are left out in
// the end, so a layer is never changed: a copy with more weights takes its place.
struct OnnxLayer {
  std::string kind;  // "": a field
  Json options = Json::object();
  std::vector<int> inputs;                // earlier layers
  std::map<std::string, Tensor> weights;  // by the part of their names after the layer's
  std::vector<std::string> sources;       // names of the weights in the file
  const OnnxNode* node = nullptr;
  std::string name;  // a field's; a layer's once all are known
  int tied = -1;     // the embedding whose table is the weight
};

// Values have at most as many elements, so that products of lengths do not overflow.
constexpr int64_t kMostElements = int64_t{1} << 62;

struct OnnxScores;  // see onnx_attention.cpp

// What a name of the file stands for: a constant, a layer's value, or a step of attention.
struct OnnxValue {
  OnnxConstant constant;
  std::string source;  // the initializer that a constant comes from, "" if it is computed
  const OnnxTensor* origin = nullptr;  // that initializer
  bool flipped = false;                // whether the constant is its transpose
  std::optional<OnnxView> view;
  double factor = 1;  // still to be applied to the view
  std::shared_ptr<const OnnxScores> scores;
  int lengths = -1;  // a mask of the positions before the end of each sample: the layer of lengths
};

// Returns the numbers, times `scale`, as a tensor of one axis.
Tensor onnx_vector(const OnnxTensor& from, double scale = 1);

class OnnxImporter {
 public:
  // `lengths`: which stand-ins for the lengths of free axes are taken, 0 or 1.
  OnnxImporter(OnnxGraph graph, const std::vector<std::string>& fields, size_t lengths);

  ImportedModel run(const std::string& until);
  bool has_free_axes() const { return free_batch_ || free_lengths_; }
  // Error(unsupported) for a layer that depends on the stand-ins. Both have run.
  void compare(const OnnxImporter& other) const;

 private:
  using Atom = OnnxView::Atom;
  using Axis = OnnxView::Axis;

  [[noreturn]] void lacks(const OnnxNode& node, const std::string& what) const;
  [[noreturn]] void damaged(const OnnxNode& node, const std::string& what) const;

  // The whole file.
  void add_fields(const std::vector<std::string>& fields);
  void choose_batch();
  bool is_channels_last(const OnnxInput& input) const;
  void convert_for(const std::set<std::string>& wanted);
  int cut_at(const std::string& until);
  int finished(const OnnxValue& value, const OnnxNode* node);
  std::vector<int> reachable(int output) const;
  void name_layers(const std::vector<int>& layers);
  std::string wish(const OnnxLayer& layer) const;
  void check_options(const OnnxLayer& of, const Json& options) const;
  ImportedModel written(int output);

  // Values.
  const OnnxValue& value(const OnnxNode& node, size_t i) const;
  OnnxView view(const OnnxNode& node, size_t i);  // Error(unsupported) if it is a constant
  const OnnxTensor& constant(const OnnxNode& node, size_t i, const char* what) const;
  bool is_constant(const OnnxNode& node, size_t i) const;
  void set(const OnnxNode& node, OnnxValue made, size_t output = 0);
  void set(const OnnxNode& node, OnnxView made, double factor = 1, size_t output = 0);
  OnnxView settled(const OnnxNode& node, const OnnxValue& value);

  // Layers.
  int add(const OnnxNode& node, const std::string& kind, std::vector<int> inputs,
          Json options = Json::object());
  int add(OnnxLayer layer);
  OnnxLayer& layer(int i) { return layers_[static_cast<size_t>(i)]; }
  const OnnxLayer& layer(int i) const { return layers_[static_cast<size_t>(i)]; }
  void give(int to, const char* part, Tensor weight, const OnnxValue& from);
  int parameter(const OnnxNode& node, const Tensor& values, const std::string& source);
  OnnxView with_weight(const OnnxView& x, const char* part, Tensor weight, const OnnxValue& from);
  OnnxView same(OnnxView x, int layer) const;
  OnnxView applied(const OnnxNode& node, const OnnxView& x, const std::string& kind,
                   Json options = Json::object());

  // Axes.
  OnnxView arranged(const OnnxNode& node, const OnnxView& x, const std::vector<Axis>& ours);
  OnnxView reshaped_layer(const OnnxNode& node, OnnxView x, const std::vector<Axis>& ours);
  OnnxView plain(const OnnxNode& node, const OnnxView& x);
  OnnxView with_last(const OnnxNode& node, const OnnxView& x, const Axis& axis);
  OnnxView image(const OnnxNode& node, const OnnxView& x);
  std::pair<OnnxView, size_t> with_axis(const OnnxNode& node, const OnnxView& x, size_t axis);
  std::optional<std::vector<size_t>> order_of(const OnnxView& x) const;
  // `order`: for each of the layers' axes, the file's.
  std::vector<OnnxView> aligned(const OnnxNode& node, std::vector<OnnxView> views,
                                std::vector<size_t>& order);
  Tensor in_our_order(const OnnxNode& node, const OnnxTensor& values, const OnnxView& x);

  // Operators, by what they do.
  void convert(const OnnxNode& node);
  bool convert_known(const OnnxNode& node);  // of constants
  bool convert_axes(const OnnxNode& node);
  bool convert_reshapes(const OnnxNode& node);
  bool convert_elements(const OnnxNode& node);
  bool convert_image(const OnnxNode& node);
  bool convert_rows(const OnnxNode& node);
  void constant_node(const OnnxNode& node);
  void shape_node(const OnnxNode& node);
  void cast(const OnnxNode& node);
  void reshape(const OnnxNode& node, std::vector<int64_t> wanted);
  void gather(const OnnxNode& node);
  void gather_rows(const OnnxNode& node);
  void slice(const OnnxNode& node);
  void split(const OnnxNode& node);
  OnnxView range(const OnnxNode& node, const OnnxView& x, size_t axis, int64_t begin,
                 int64_t length);
  void concat(const OnnxNode& node);
  void clip(const OnnxNode& node);
  void unary(const OnnxNode& node, const std::string& function, std::optional<double> alpha = {});
  void binary(const OnnxNode& node, const std::string& layer);
  void with_constant(const OnnxNode& node, size_t known);
  bool scaled(const OnnxNode& node, size_t known, double by);
  struct Window {
    int64_t kernel, stride, dilation, pad, groups;  // the same in both directions
    bool row;                                       // the image has one row
  };
  Window window_of(const OnnxNode& node, const OnnxView& x, const OnnxTensor& w,
                   bool transposed) const;
  void convolution(const OnnxNode& node, bool transposed);
  void pool(const OnnxNode& node, bool max);
  std::vector<int64_t> pads(const OnnxNode& node, const OnnxView& x,
                            const std::vector<int64_t>& kernel, const std::vector<int64_t>& stride,
                            const std::vector<int64_t>& dilation, bool transposed) const;
  void batch_norm(const OnnxNode& node);
  OnnxView normalize(const OnnxNode& node, const OnnxView& x, const std::vector<size_t>& axes,
                     bool centred);
  void scale_and_shift(const OnnxNode& node, const OnnxView& x);
  void reduce(const OnnxNode& node, const std::string& function);
  void softmax(const OnnxNode& node, bool logarithm);
  void linear(const OnnxNode& node, const OnnxValue& weight, bool weight_is_transposed,
              double scale);
  void matmul(const OnnxNode& node);
  void gemm(const OnnxNode& node);
  void recurrent(const OnnxNode& node, bool lstm);
  OnnxView add_vector(const OnnxNode& node, const OnnxView& x, Tensor vector,
                      const OnnxValue& from);
  bool is_only_use(const OnnxNode& node, size_t i) const;

  // Attention.
  struct Projection {
    int input;
    Tensor weight, bias;  // [features, units]; an empty bias: none
    std::vector<std::string> sources;
    int packed = -1;  // the dense layer of which this is a part
    int64_t begin = 0;
    int rotary = -1;  // the layer that rotates it
  };
  bool convert_scores(const OnnxNode& node);
  void begin_scores(const OnnxNode& node);
  void end_scores(const OnnxNode& node);
  void mask_scores(const OnnxNode& node, OnnxScores& scores, const OnnxTensor& mask);
  struct Heads {
    OnnxView view;         // [N, positions, width] with the heads side by side
    int64_t count, group;  // heads in the file; how many adjacent ones repeat one of the view's
  };
  Heads heads(const OnnxNode& node, const OnnxView& x, size_t positions, size_t features);
  int64_t columns_of(int layer, size_t last) const;
  Projection projection(const OnnxNode& node, const OnnxView& x);
  Json rotary_options(const OnnxNode& node, const Projection (&parts)[3], int64_t head) const;
  int attention_core(const OnnxNode& node, const OnnxScores& scores, const OnnxView& values);

  // Rotary positions.
  struct Half {  // of the last axis of a value
    std::string of;
    bool second;
    bool operator==(const Half&) const = default;
  };
  struct Rotation {
    std::string of;
    OnnxConstant cosines, sines;
    int64_t columns;  // of these
  };
  const OnnxNode* producer(const std::string& value, const char* op) const;  // of two inputs
  const OnnxView* view_of(const std::string& value) const;
  std::optional<Half> half(const std::string& value) const;
  std::optional<std::pair<std::string, OnnxConstant>> table_product(const std::string& value) const;
  std::optional<Rotation> rotation(const OnnxNode& node) const;
  bool convert_rotary(const OnnxNode& node);

  OnnxGraph graph_;
  FoldBudget budget_;
  int64_t batch_ = 1;
  bool free_batch_ = false;
  bool free_lengths_ = false;  // of other axes
  const size_t lengths_;
  int output_ = -1;
  std::string advice_;          // what to do about free lengths, "" if there are none
  bool channels_last_ = false;  // images are [N, H, W, C] in the file, too
  std::vector<OnnxLayer> layers_;
  std::map<std::string, OnnxValue> values_;
  std::map<std::string, int> uses_;          // how often a value is read
  std::set<std::string> computed_with_;      // values that are read otherwise than as indices
  std::map<const OnnxTensor*, int> tables_;  // the embeddings of tables in the file
  std::map<std::string, const OnnxNode*> producers_;
};

}  // namespace etr::nn
