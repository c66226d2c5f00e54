#include "train/inference.h"

#include <algorithm>

#include "core/error.h"
#include "gpu/run_once.h"
#include "train/batch_fields.h"
#include "train/program_buffer.h"

namespace etr::train {
namespace {

std::vector<std::string> fed_names(const nn::Model& model) {
  std::vector<std::string> names = model.inputs();
  names.push_back(model.target());
  return names;
}

Seen seen_by_one(const Plans& plans, const pipeline::Item& batch) {
  if (plans.weights().stage)
    fail(Code::unsupported,
         "a model that is cut into stages cannot predict: load its checkpoint on one "
         "device");
  return plans.look_at(batch);
}

// Predicts a batch, in parts if it has more rows than one plan takes.
class Prediction {
 public:
  Prediction(Plans& plans, const pipeline::Item& batch)
      : plans_(plans),
        batch_(batch),
        seen_(seen_by_one(plans, batch)),
        planned_(plans.predicting(seen_)) {
    planned_.check_inputs(batch);
  }

  int64_t rows() const { return seen_.rows; }
  const gpu::Buffer& buffer() const { return planned_.predicted(); }

  Shape shape() const {
    Shape shape = planned_.net().graph.shape(planned_.net().output);
    shape[0] = rows();
    return shape;
  }

  // Calls `take(begin, count, values)` for the rows from `begin` on, which buffer() holds at its
  // start.
  template <typename Take>
  void run(const Take& take) {
    for (int64_t begin = 0; begin < rows(); begin += planned_.rows) {
      const int64_t count = std::min(planned_.rows, rows() - begin);
      take(begin, count, infer(begin, count));
    }
  }

 private:
  std::vector<float> infer(int64_t begin, int64_t count) {
    FedRunner& predictor = plans_.predictor(planned_, batch_);
    ops::StepValues step;
    step.valid_rows = static_cast<uint32_t>(count);
    const bool whole = count == rows();
    graph::Runner& runner =
        predictor.filled(whole ? batch_ : part_of(batch_, plans_.model().inputs(), begin, count));
    runner.submit(step, 0);
    return runner.take_results(true).back().outputs[0];
  }

  Plans& plans_;
  const pipeline::Item& batch_;
  const Seen seen_;
  Planned& planned_;
};

}  // namespace

Scoring::Scoring(const nn::Model& model, const ops::StepValues& values)
    : values_(values), fields_(fed_names(model)) {}

Scoring::~Scoring() {
  try {
    if (scorer_) scorer_->runner->wait();
  } catch (...) {  // the device is lost, and no longer reads anything
  }
}

void Scoring::add(Plans& plans, const pipeline::Item& batch) {
  const Seen seen = plans.look_at(batch);
  if (!planned_ || planned_->fields != seen.fields || most_ < seen.rows || !planned_->scores(batch))
    choose(plans, batch, seen);
  else
    planned_->check(batch);
  keep(batch);
  for (int64_t begin = 0; begin < seen.rows; begin += planned_->rows) {
    const int64_t rows = std::min(planned_->rows, seen.rows - begin);
    ops::StepValues values = values_;
    values.valid_rows = static_cast<uint32_t>(rows);
    scorer_->filled(rows == seen.rows ? batch : part_of(batch, fields_, begin, rows))
        .submit(values, values.valid_rows);
    take(false);
  }
}

void Scoring::choose(Plans& plans, const pipeline::Item& batch, const Seen& seen) {
  take(true);
  scorer_ = nullptr;  // it may be dropped
  planned_ = &plans.scoring(seen);
  most_ = std::max(planned_->rows, seen.rows);
  planned_->check(batch);
  scorer_ = &plans.scorer(*planned_, batch);
  scorer_->runner->take_results(true);  // of an evaluation that failed
}

void Scoring::keep(const pipeline::Item& batch) {
  batches_.push_back(batch);
  if (batches_.size() > graph::Runner::kSlots) batches_.pop_front();
}

// Weighs each mean as the loss does (its labels, not its rows), so that the result does not depend
// on how samples are batched.
void Scoring::take(bool wait_all) {
  if (!scorer_) return;
  const bool classifies = planned_->net().accuracy >= 0;
  for (const graph::StepResult& result : scorer_->runner->take_results(wait_all)) {
    const auto rows = static_cast<int64_t>(result.tag);
    total_.samples += rows;
    double weight = 0;
    for (size_t i = classifies ? 2 : 1; i < result.outputs.size(); ++i)
      weight += static_cast<double>(result.outputs[i][0]);
    if (weight == 0) continue;
    // Counted in rows, the sums of a model whose rows all weigh the same are exact.
    if (row_weight_ == 0) row_weight_ = weight / static_cast<double>(rows);
    weight /= row_weight_;
    total_.weight += weight;
    total_.loss += weight * static_cast<double>(result.outputs[0][0]);
    if (classifies) total_.accuracy += weight * static_cast<double>(result.outputs[1][0]);
  }
}

EvalMetrics Scoring::finish() {
  take(true);
  EvalMetrics means = total_;
  if (means.weight == 0) return means;
  means.loss /= total_.weight;
  means.accuracy /= total_.weight;
  means.weight *= row_weight_;
  return means;
}

Tensor predict(Plans& plans, const pipeline::Item& batch) {
  Prediction prediction(plans, batch);
  Tensor out(DType::f32, prediction.shape());
  const auto to = out.mutable_view<float>();
  const auto row = static_cast<int64_t>(to.size()) / prediction.rows();
  prediction.run([&](int64_t begin, int64_t count, const std::vector<float>& values) {
    std::copy_n(values.begin(), count * row, to.begin() + begin * row);
  });
  return out;
}

void predict(Plans& plans, const pipeline::Item& batch, const pipeline::OpaqueField& to) {
  Prediction prediction(plans, batch);
  const gpu::DevicePtr& device = plans.kernels().device();
  if (!device->options().host)
    fail(Code::state,
         "the trainer has a device of its own and cannot write to a buffer of yours: "
         "make its runtime with etr_runtime_create_shared");
  const Shape shape = prediction.shape();
  if (to.dtype != DType::f32 || to.shape != shape)
    fail(Code::invalid_argument, "the output is f32 ", shape_text(shape), ", not ",
         dtype_name(to.dtype), " ", shape_text(to.shape));
  const gpu::Buffer& target = buffer_of(to);
  const uint64_t row = target.size_bytes / static_cast<uint64_t>(prediction.rows());
  prediction.run([&](int64_t begin, int64_t count, const std::vector<float>&) {
    const uint64_t bytes = static_cast<uint64_t>(count) * row;
    const gpu::Buffer part = target.slice(static_cast<uint64_t>(begin) * row, bytes);
    gpu::run_once(device, {gpu::Copy{prediction.buffer().slice(0, bytes), part}});
  });
}

}  // namespace etr::train
