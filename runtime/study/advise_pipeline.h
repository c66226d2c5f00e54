// A job's pipeline as advice sees it: without echo nodes, and what could stand where.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "study/advise_measure.h"

namespace etr::study {

// Of a row of Pipeline::stats().
struct RowPlace {
  size_t stage;
  bool takes_echo;
};

struct PlainPipeline {
  Json spec;                   // without echo nodes, seeded as the job
  std::vector<EchoAt> echoes;  // those of the job; `after` counts the stages of `spec`
  size_t batch_stage = 0;
  double batch = 1;
  std::string source;
  bool remote = false;

  // Of the rows of such a pipeline's statistics; empty before it runs.
  std::vector<RowPlace> rows(const Json& stats) const;
};

// Error(unsupported) that names what is missing where the pipeline makes no batches.
PlainPipeline plain_pipeline(const Json& pipeline, uint64_t seed);

// The same with short shuffle and echo buffers and queues: a steady state after seconds.
Json short_pipeline(Json spec);

// `spec` with an echo node after a stage.
Json with_echo(Json spec, size_t after, const Json& echo);

// Finds bytes behind each stage, where `device` may be set and where a cache may stand, and how many samples there are.
void look_at_places(Measured& m, const PlainPipeline& plain, const AdviseOptions& options);

}  // namespace etr::study
