// Learners on the device under test, and batches for them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/json.h"
#include "support/device.h"
#include "train/learner.h"

namespace etr::test {

inline std::shared_ptr<gpu::Kernels> shared_kernels() {
  return {&kernels(), [](gpu::Kernels*) {}};  // the test program owns them
}

inline train::Learner make_learner(const std::string& model, const std::string& optimizer,
                                   double rate = 0.01) {
  return train::Learner(shared_kernels(),
                        {parse_json(model, "model"), parse_json(optimizer, "optimizer"),
                         Json{{"learning_rate", rate}}, 3, 1000});
}

inline Tensor symbols(int64_t rows, int64_t columns,
                      const std::function<int(int64_t, int64_t)>& at) {
  Tensor out(DType::i32, columns > 0 ? Shape{rows, columns} : Shape{rows});
  for (int64_t i = 0; i < out.count(); ++i)
    out.mutable_view<int32_t>()[static_cast<size_t>(i)] =
        columns > 0 ? at(i / columns, i % columns) : at(i, 0);
  return out;
}

inline std::vector<float> values_of(const Tensor& tensor) {
  return {tensor.view<float>().begin(), tensor.view<float>().end()};
}

}  // namespace etr::test
