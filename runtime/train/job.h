// A job: pipeline, model, optimizer, schedule, evaluation and outputs as one JSON document.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/options.h"
#include "parallel/mesh.h"

namespace etr::train {

// Returns the schemas of a job's sections by name: "train", "evaluation", "output", "parallel", and
// its section "mesh". For the other sections see pipeline_schema(), the stage, layer and optimizer
// tables, and schedule_schema().
Json job_schema();

// Validated on construction. Immutable.
class Job {
 public:
  // `overrides` are "key=value" or "section.key=value"; list elements are numbered, as in
  // "pipeline.stages.3.factor=4". Values are JSON, or else text. A bare key that is not a section
  // sets a variable, which keeps the type of the value in the job. "${name}" in a text of the job
  // is replaced by the variable; if it is the whole text, the variable's type is kept.
  // Error(invalid_argument) names the key and the nearest valid one.
  static Job parse(const std::string& text, const std::string& origin,
                   const std::vector<std::string>& overrides = {});
  // Reads a file. If it has no output.dir, that becomes "runs/" and the stem of the file's name.
  static Job load(const std::string& path, const std::vector<std::string>& overrides = {});

  const Json& json() const { return json_; }  // with overrides and variables applied
  // The document with overrides applied, but with the names of variables in its texts.
  const Json& written() const { return written_; }

  std::string name() const { return json_.value("name", std::string("job")); }
  uint64_t seed() const { return json_.value("seed", uint64_t{0}); }
  std::string device() const { return json_.value("device", std::string()); }
  const Json& pipeline() const { return json_["pipeline"]; }
  const Json& model() const { return json_["model"]; }
  const Json& optimizer() const { return json_["optimizer"]; }
  const Json& schedule() const { return json_["schedule"]; }
  const Options& train() const { return *train_; }
  // train.pretrained_names, by our beginnings of names.
  const std::map<std::string, std::string>& pretrained_names() const { return pretrained_names_; }
  const Options& output() const { return *output_; }
  // Where a run writes. "": it writes nothing. None: the job does not say, and it writes nothing
  // either.
  std::optional<std::string> output_dir() const;
  // None if the job has no evaluation.
  const std::optional<Options>& evaluation() const { return evaluation_; }
  // None if the job trains on its own.
  const std::optional<Options>& parallel() const { return parallel_; }
  const parallel::MeshShape& mesh() const { return mesh_; }  // parallel.mesh
  const Json& evaluation_pipeline() const { return json_["evaluation"]["pipeline"]; }

 private:
  static Job parse(const std::string& text, const std::string& origin,
                   const std::vector<std::string>& overrides, const std::string& default_dir);
  void validate();
  void validate_parallel(Json parallel);

  Json json_, written_;
  std::optional<Options> train_, output_, evaluation_, parallel_;
  parallel::MeshShape mesh_;
  std::map<std::string, std::string> pretrained_names_;
};

}  // namespace etr::train
