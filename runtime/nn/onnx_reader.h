// Reads an ONNX file: its nodes, their constants, inputs and outputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace etr::nn {

// A tensor whose values are known. Half precision and doubles become floats, all integers and
// booleans int64_t.
struct OnnxTensor {
  std::vector<int64_t> dims;
  bool is_real = false;
  std::vector<float> reals;       // of a real tensor
  std::vector<int64_t> integers;  // of another

  size_t count() const { return is_real ? reals.size() : integers.size(); }
  double number(size_t i) const {
    return is_real ? static_cast<double>(reals[i]) : static_cast<double>(integers[i]);
  }
};
using OnnxConstant = std::shared_ptr<const OnnxTensor>;

// Returns the elements of a shape; none if an extent is negative, or the product of those that are
// not 0 is beyond 2^48: partial products of the others can then not overflow either.
std::optional<size_t> onnx_count(const std::vector<int64_t>& dims);

// Whether a type of elements (TensorProto.DataType) is one of real numbers.
bool onnx_is_real(int64_t type);

struct OnnxAttribute {
  double real = 0;
  int64_t integer = 0;
  std::string text;
  std::vector<int64_t> integers;
  std::vector<double> reals;
  OnnxConstant tensor;
};

struct OnnxNode {
  std::string name, op, domain;  // domain "": ONNX's own operators
  std::vector<std::string> inputs, outputs;
  std::map<std::string, OnnxAttribute> attributes;

  bool has(const char* attribute) const { return attributes.contains(attribute); }
  int64_t integer(const char* attribute, int64_t otherwise) const;
  double real(const char* attribute, double otherwise) const;
  std::string text(const char* attribute, const char* otherwise) const;
  std::vector<int64_t> integers(const char* attribute) const;  // empty if there is none
  bool has_input(size_t i) const { return i < inputs.size() && !inputs[i].empty(); }
};

struct OnnxInput {
  std::string name;
  std::vector<int64_t> dims;         // -1: free
  std::vector<std::string> symbols;  // names of free dimensions, "" if there is none
};

struct OnnxGraph {
  std::string origin;  // the file, in quotes, for messages
  std::string producer;
  int64_t opset = 0;
  std::vector<OnnxNode> nodes;
  std::map<std::string, OnnxConstant> initializers;
  std::vector<OnnxInput> inputs;  // without those that are initializers
  std::vector<std::string> outputs;
};

// Values in other files are read from the model's folder; a path that leads out of it is an
// Error(unsupported). Error(corrupt_data) if the file is damaged: sizes are compared with what it
// holds before memory is taken. Names become UTF-8.
OnnxGraph read_onnx(const std::string& path);

// The same for a file in memory, without values in other files.
OnnxGraph parse_onnx(std::span<const std::byte> bytes, const std::string& origin);

}  // namespace etr::nn
