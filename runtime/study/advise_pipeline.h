// A job's pipeline as advice uses it: without echo nodes, and with the places where nodes could
// stand.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "study/advise_measure.h"

namespace etr::study {

// The place of a row of Pipeline::stats().
struct RowPlace {
  size_t stage;
  bool takes_echo;
};

struct PlainPipeline {
  Json spec;                   // without echo nodes, seeded like the job
  std::vector<EchoAt> echoes;  // the job's nodes; `after` counts the stages of `spec`
  size_t batch_stage = 0;
  double batch = 1;
  std::string source;
  bool remote = false;

  // Returns the places of the rows of such a pipeline's statistics; empty before it runs.
  std::vector<RowPlace> rows(const Json& stats) const;
};

// Error(unsupported) names what is missing if the pipeline makes no batches.
PlainPipeline plain_pipeline(const Json& pipeline, uint64_t seed);

// Returns it with short queues, shuffle and echo buffers, so that it is steady after seconds.
Json short_pipeline(Json spec);

// Returns `spec` with an echo node after a stage.
Json with_echo(Json spec, size_t after, const Json& echo);

// Finds the bytes after each stage, where `device` may be set, where a cache may stand, and the
// number of samples.
void look_at_places(Measured& m, const PlainPipeline& plain, const AdviseOptions& options);

}  // namespace etr::study
