#include "train/unread_options.h"

#include <string>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "train/algorithm.h"
#include "train/batches_ahead.h"

namespace etr::train {
namespace {

struct Reader {
  std::vector<std::string_view> options;
  bool is_there;
  const char* name;
  const char* way;  // the setting that makes it effective
};

std::vector<Reader> readers_of(const Options& parallel, const parallel::MeshShape& mesh,
                               const Json& pipeline) {
  const Algorithm algorithm = algorithm_of(parallel);
  const bool served = has_servers(algorithm);
  const bool adagrad = parallel.string("server_optimizer") == "adagrad";
  return {
      {{"min_ranks", "join", "join_timeout"},
       parallel.boolean("elastic"),
       "an elastic run",
       "set parallel.elastic to true"},
      {{"micro_batches", "schedule", "stages", "partition"},
       mesh.pipeline > 1,
       "a model that is cut into stages",
       "set parallel.mesh.pipeline to 2 or more"},
      {{"partition"},
       parallel.strings("stages").empty(),
       "stages that EchoTrain chooses",
       "leave parallel.stages out"},
      {{"bucket_mb"},
       algorithm == Algorithm::synchronous,
       "the algorithm 'synchronous'",
       "set parallel.algorithm to it"},
      {{"batches_ahead"},
       !served && LengthBuckets::of_pipeline(pipeline),
       "the stage 'bucket' in the pipeline of ranks that step together",
       "add that stage"},
      {{"outer_every", "outer_rate", "outer_momentum"},
       algorithm == Algorithm::diloco,
       "the algorithm 'diloco'",
       "set parallel.algorithm to it"},
      {{"servers", "n_push", "consistency", "delay", "warm_start"},
       served,
       "a parameter server",
       "set parallel.algorithm to downpour or easgd"},
      {{"n_fetch", "server_optimizer", "server_momentum", "server_epsilon", "server_weight_decay"},
       algorithm == Algorithm::downpour,
       "the algorithm 'downpour'",
       "set parallel.algorithm to it"},
      {{"elastic_rate"},
       algorithm == Algorithm::elastic_averaging,
       "the algorithm 'easgd'",
       "set parallel.algorithm to it"},
      {{"delay"},
       parallel.string("consistency") == "bounded",
       "the consistency 'bounded'",
       "set parallel.consistency to it"},
      {{"server_momentum"},
       !adagrad,
       "the server_optimizer 'sgd'",
       "set parallel.server_optimizer to it"},
      {{"server_epsilon"},
       adagrad,
       "the server_optimizer 'adagrad'",
       "set parallel.server_optimizer to it"}};
}

void check_micro_batches(const Options& parallel, const Json& pipeline) {
  const int64_t parts = parallel.integer("micro_batches");
  for (const Json& stage : pipeline["stages"]) {
    if (!stage.is_object() || stage.value("stage", "") != "batch" || !stage.contains("size"))
      continue;
    if (const auto size = stage["size"].get<int64_t>(); size < parts)
      fail(Code::invalid_argument, "parallel.micro_batches is ", parts,
           ", and the stage 'batch' of the pipeline makes batches of ", size,
           ": some parts would have no sample. Set parallel.micro_batches to ", size,
           " or less, or make the batches larger");
  }
}

}  // namespace

void check_unread_options(Schema schema, const Options& parallel, const parallel::MeshShape& mesh,
                          const Json& pipeline) {
  for (const Reader& reader : readers_of(parallel, mesh, pipeline)) {
    const std::string unread =
        reader.is_there ? "" : changed_options(schema, parallel, reader.options, "parallel");
    if (!unread.empty())
      fail(Code::invalid_argument, unread, ", which has no effect without ", reader.name,
           ": leave it out, or ", reader.way);
  }
  if (mesh.pipeline > 1) check_micro_batches(parallel, pipeline);
}

}  // namespace etr::train
