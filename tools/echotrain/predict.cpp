// echotrain predict: classifies images with a job's trained model.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>

#include "console.h"
#include "image_files.h"
#include "job.h"
#include "preparation.h"
#include "warnings.h"

namespace cli {
namespace {

// Sets a scalar field of an item.
void set_number(etr_batch* item, const char* name, int32_t value) {
  etr_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.dtype = ETR_I32;
  tensor.data = &value;
  tensor.size_bytes = sizeof value;
  check(etr_batch_set(item, name, &tensor));
}

struct Images {
  std::vector<std::string> files, reasons;  // reasons: why a file has no result
};

// The pipeline's source: a file's bytes and its index in the list.
int32_t read_image(void* user_data, etr_batch* item) {
  auto& [files, reasons] = *static_cast<Images*>(user_data);
  etr_batch_info info{};
  info.struct_size = sizeof info;
  if (etr_batch_get_info(item, &info) != ETR_OK) return ETR_INTERNAL;
  const uint64_t number = info.ordinal & ((uint64_t{1} << 40) - 1);
  if (number >= files.size()) return ETR_END;
  std::string bytes;
  try {
    bytes = image_bytes(files[number]);
  } catch (const Failure& failure) {
    reasons[number] = failure.what();
    etr_batch_fail(item, failure.what());
    return ETR_IO;
  }
  etr_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.dtype = ETR_U8;
  tensor.rank = 1;
  tensor.shape[0] = static_cast<int64_t>(bytes.size());
  tensor.data = bytes.data();
  tensor.size_bytes = bytes.size();
  if (etr_batch_set(item, "png", &tensor) != ETR_OK)
    return ETR_INTERNAL;  // 'decode' detects the format
  set_number(item, "number", static_cast<int32_t>(number));
  return ETR_OK;
}

void make_pipeline(const Json& job, Images& images, Pipeline& pipeline) {
  PackingOptions options;
  const Json settings{
      {"epochs", 1}, {"on_error", "skip"}, {"max_bad_records", images.files.size()}};
  check(etr_options_create_from_json(settings.dump().c_str(), options.out()));
  check(etr_pipeline_create(options.get(), pipeline.out()));
  check(etr_pipeline_add_source(pipeline.get(), "images", read_image, &images, nullptr));
  for (Json row : preparation(job)) {
    const std::string name = row["stage"];
    row.erase("stage");
    PackingOptions stage;
    check(etr_options_create_from_json(row.dump().c_str(), stage.out()));
    check(etr_pipeline_add(pipeline.get(), name.c_str(), stage.get()));
  }
}

using Row = std::vector<std::pair<double, size_t>>;  // probability and class, likeliest first

Row softmax(const float* logits, size_t classes) {
  const float most = *std::max_element(logits, logits + classes);
  Row out;
  double sum = 0;
  for (size_t c = 0; c < classes; ++c) {
    out.emplace_back(std::exp(static_cast<double>(logits[c] - most)), c);
    sum += out.back().first;
  }
  for (auto& [probability, number] : out) probability /= sum;
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  return out;
}

// Returns the rows by file number; rows of files without a result are empty. `reasons`, one for
// each file, receives why a file was rejected.
std::vector<Row> predict(etr_trainer* trainer, const Pipeline& pipeline,
                         std::vector<std::string>& reasons) {
  std::vector<Row> out(reasons.size());
  while (true) {
    Batch batch, outputs;
    if (!next_batch(pipeline, batch)) return out;
    const etr_tensor numbers = field(batch, "number");
    const auto* const number = static_cast<const int32_t*>(numbers.data);
    const int32_t status = etr_trainer_predict(trainer, batch.get(), outputs.out());
    if (status < 0 && numbers.shape[0] == 1) {  // images of any size: the error is about this one
      reasons[static_cast<size_t>(number[0])] = etr_last_error();
      continue;
    }
    check(status);
    const etr_tensor logits = field(outputs, "output");
    if (logits.rank != 2)
      throw Failure("the model gives no scores of classes: 'predict' is for image classifiers");
    const auto classes = static_cast<size_t>(logits.shape[1]);
    for (int64_t row = 0; row < logits.shape[0]; ++row)
      out[static_cast<size_t>(number[row])] = softmax(
          static_cast<const float*>(logits.data) + static_cast<size_t>(row) * classes, classes);
  }
}

std::string class_name(const Json& job, size_t number) {
  const Json names = job.value("classes", Json::array());
  return number < names.size() ? names[number].get<std::string>() : std::to_string(number);
}

void print_text(const std::string& file, const Row& row, size_t top, const Json& job) {
  std::string line = file + ":";
  for (size_t i = 0; i < std::min(top, row.size()); ++i) {
    char percent[32];
    std::snprintf(percent, sizeof percent, " %.1f %%", 100 * row[i].first);
    line += (i ? ", " : " ") + class_name(job, row[i].second) + percent;
  }
  std::printf("%s\n", line.c_str());
}

Json json_row(const std::string& file, const Row& row, size_t top, const Json& job) {
  Json classes = Json::array();
  for (size_t i = 0; i < std::min(top, row.size()); ++i)
    classes.push_back({{"class", class_name(job, row[i].second)},
                       {"number", row[i].second},
                       {"probability", row[i].first}});
  return {{"file", file}, {"classes", classes}};
}

// Reports the files without a result, and why. The pipeline knows those that it left out by number.
// Returns the exit status.
int report_bad(const Pipeline& pipeline, const std::vector<Row>& rows, Images& images) {
  auto& [files, reasons] = images;
  for (const auto& [number, reason] : bad_records(pipeline))
    if (std::string& known = reasons.at(std::stoul(number)); known.empty()) known = reason;
  int status = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    if (!rows[i].empty()) continue;
    status = 1;
    std::fprintf(stderr, "echotrain: '%s': %s\n", files[i].c_str(),
                 reasons[i].empty() ? "not read" : reasons[i].c_str());
  }
  return status;
}

void check_classifier(const Json& job, const std::string& path) {
  if (!job.contains("evaluation"))
    std::fprintf(
        stderr,
        "echotrain: '%s' has no evaluation; images are prepared as for training, without its "
        "random stages\n",
        path.c_str());
  const std::string loss = loss_of(job);
  if (job.value("/model/model"_json_pointer, std::string()) == "ssd")
    throw Failure("'" + path +
                  "' trains a detector; 'predict' is for image classifiers. etr_detections and "
                  "Trainer.detections find boxes (docs/training.md)");
  if (loss != "softmax_cross_entropy")
    throw Failure("'" + path + "' trains with the loss " + loss +
                  "; 'predict' is for image classifiers");
}

}  // namespace

int command_predict(const Arguments& arguments) {
  const int64_t top = arguments.integer("top").value_or(3);
  if (top < 1) throw UsageError("--top must be at least 1");
  Images images{image_files(arguments.operands(), 1), {}};
  images.reasons.resize(images.files.size());
  JobRun started(arguments, ETR_START_EVALUATE);
  Trainer trainer;
  trainer_of(started.run, trainer);
  const Json job = json_of(started.job);
  check_classifier(job, arguments.operand(0));
  print_warnings(BadRecords::hidden);
  Pipeline pipeline;
  make_pipeline(job, images, pipeline);
  const InterruptGuard guard;
  const std::vector<Row> rows = predict(trainer.get(), pipeline, images.reasons);
  Json all = Json::array();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].empty()) continue;
    if (arguments.flag("json"))
      all.push_back(json_row(images.files[i], rows[i], static_cast<size_t>(top), job));
    else
      print_text(images.files[i], rows[i], static_cast<size_t>(top), job);
  }
  if (arguments.flag("json"))
    std::printf("%s\n", all.dump(1, ' ', false, Json::error_handler_t::replace).c_str());
  return report_bad(pipeline, rows, images);
}

}  // namespace cli
