#include "train/job.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>

#include "core/error.h"
#include "core/json_members.h"
#include "core/most_ranks.h"
#include "core/parse_json.h"
#include "core/platform.h"
#include "core/text.h"
#include "core/utf8.h"
#include "nn/layer.h"
#include "nn/model.h"
#include "nn/models.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "optim/update.h"
#include "pipeline/pipeline.h"
#include "pipeline/stage.h"
#include "train/algorithm.h"
#include "train/unread_options.h"

namespace etr::train {
namespace {

constexpr OptionSpec kTrain[] = {
    {"epochs", OptionType::integer, "0", "epochs of the pipeline to train; 0: no limit", 0, 1e9,
     "epochs"},
    {"steps", OptionType::integer, "0", "optimizer steps to train; 0: no limit", 0, 1e12, "steps"},
    {"fresh", OptionType::integer, "0",
     "fresh examples to train on, counted over all ranks and without the repeats of "
     "echo nodes; 0: no limit",
     0, 1e15, "examples"},
    {"seconds", OptionType::number, "0", "training time, not counting evaluations; 0: no limit", 0,
     1e9, "s"},
    {"planned_steps", OptionType::integer, "0",
     "length of the run for which decaying schedules are planned if their clock is "
     "steps; 0: that of 'steps'",
     0, 1e12, "steps"},
    {"noise_scale_every", OptionType::integer, "0",
     "steps between measurements of the gradient noise scale: roughly the batch size (in examples) "
     "above which larger batches save few steps. A measurement computes the gradients of 4 parts "
     "of the step's own batch, which takes as long as 4 steps without updates, and does not change "
     "the weights; 0: never",
     0, 1e12, "steps"},
    {"progress_every", OptionType::number, "0.2", "time between progress events", 0.01, 3600, "s"},
    {"pretrained", OptionType::string, "\"\"",
     "start a new run with the weights of this safetensors file, which uses PyTorch's names", 0, 0,
     "path"},
    {"pretrained_names", OptionType::strings, "[]",
     "how names in that file differ: OURS=THEIRS for each prefix (\"backbone.=model.encoder.\"); "
     "\"head=\" leaves such weights at their initial values"},
};

constexpr OptionSpec kEvaluation[] = {
    {"every_epochs", OptionType::integer, "1", "epochs between evaluations; 0: none by epoch", 0,
     1e9, "epochs"},
    {"every_steps", OptionType::integer, "0", "steps between evaluations; 0: none by step", 0, 1e12,
     "steps"},
    {"every_fresh", OptionType::integer, "0",
     "fresh examples between evaluations; each follows the first step that reaches a multiple; 0: "
     "none by examples",
     0, 1e15, "examples"},
    {"target_accuracy", OptionType::number, "0",
     "training ends when an evaluation reaches this accuracy; 0: never", 0, 1},
    {"target_loss", OptionType::number, "0",
     "training ends when an evaluation's loss is below this value; 0: never", 0, 1e30},
    {"cache_mb", OptionType::number, "64",
     "memory for the batches of the first evaluation, which later evaluations use again if all of "
     "them fit; 0: each evaluation reads and decodes the data again",
     0, 1e6, "MB", "", "keep_mb"},
};

constexpr OptionSpec kOutput[] = {
    {"dir", OptionType::string, "\"\"",
     "folder for metrics, event files and checkpoints; it holds one run. \"\": nothing is written. "
     "Without this key, a job file writes into runs/STEM, named after the file",
     0, 0, "path"},
    {"tensorboard", OptionType::boolean, "true", "write TensorBoard event files"},
    {"checkpoint_every_epochs", OptionType::integer, "1",
     "epochs between checkpoints; 0: none by epoch", 0, 1e9, "epochs"},
    {"checkpoint_every_steps", OptionType::integer, "0",
     "steps between checkpoints; 0: none by step", 0, 1e12, "steps"},
};

constexpr OptionSpec kParallel[] = {
    {"engine", OptionType::string, "\"\"",
     "transport between ranks: gloo, mpi, mpi-openmpi, mpi-mpich, or the path of a plug-in "
     "library; \"\": as the launcher says, or gloo"},
    {"rank", OptionType::integer, "-1", "index of this process, from 0; -1: as the launcher says",
     -1, kMostRanks},
    {"size", OptionType::integer, "0",
     "number of ranks that train together; 0: as the launcher says", 0, kMostRanks},
    {"rendezvous", OptionType::string, "\"\"",
     "where ranks find each other: file:FOLDER, a folder that all of them can see, or "
     "tcp://HOST:PORT, served by rank 0; \"\": as the launcher says"},
    {"host", OptionType::string, "\"\"", "address or host name on which this rank listens"},
    {"interface", OptionType::string, "\"\"",
     "network interface on which this rank listens, such as eth0, instead of 'host'"},
    {"timeout", OptionType::number, "60",
     "time after which a rank that does not answer counts as lost; must be longer "
     "than a step. What a rank does alone, such as writing a checkpoint, may take "
     "longer",
     0.01, 1e6, "s"},
    {"devices", OptionType::strings, "[]",
     "devices of this process that train together, each of which is a rank: the index "
     "of a device or a part of its name; a device may be listed twice. []: the one "
     "device that the program opens"},
    {"batches_ahead", OptionType::integer, "8",
     "batches that each rank reads ahead if the pipeline has a stage 'bucket', so that in each "
     "step all ranks use batches of the same length bucket; 0: batches are used in the order in "
     "which they come",
     0, 4096, "batches"},
    {"bucket_mb", OptionType::number, "4", "size of the buckets in which gradients are exchanged",
     0.001, 1e4, "MB"},
    {"sync_batch_norm", OptionType::boolean, "false",
     "batch normalisation uses the mean and variance over the rows of all ranks, "
     "instead of those of each rank's own rows"},
    {"compression", OptionType::string, "\"none\"",
     "format in which gradients are exchanged; the rounding error of each exchange is added to the "
     "next",
     0, 0, "", "none|fp16|bf16"},
    {"zero_stage", OptionType::integer, "0",
     "what is sharded across the ranks (ZeRO): 0: nothing; 1: the optimizer state; 2: "
     "the gradients, too",
     0, 2},
    {"elastic", OptionType::boolean, "false",
     "when ranks are lost, the others continue from the newest checkpoint, and new ranks can join "
     "(gloo)"},
    {"min_ranks", OptionType::integer, "1", "elastic: the run ends if fewer ranks are left", 1,
     1e6},
    {"join", OptionType::boolean, "false",
     "elastic: this process joins a run that is under way, at the end of an epoch; "
     "ECHOTRAIN_JOIN=1 does the same"},
    {"join_timeout", OptionType::number, "86400",
     "elastic: how long a process with 'join' waits to be admitted", 0.01, 1e9, "s"},
    {"micro_batches", OptionType::integer, "4",
     "parts of a batch that pass through the stages of a model one after another (mesh.pipeline)",
     1, 4096},
    {"schedule", OptionType::string, "\"1f1b\"",
     "when a stage computes gradients: gpipe: after all micro-batches; 1f1b: as early as possible, "
     "which needs less memory for activations. The results are the same",
     0, 0, "", "gpipe|1f1b"},
    {"stages", OptionType::strings, "[]",
     "layers at which the second and each further stage of the model begin; empty: chosen so that "
     "the slowest stage has the least to do and each stage fits its device"},
    {"partition", OptionType::string, "\"estimated\"",
     "how that choice estimates the cost of layers: estimated: from their shapes, the same in "
     "every run; measured: by timing each layer on every rank's device before the first step",
     0, 0, "", "estimated|measured"},
    {"algorithm", OptionType::string, "\"synchronous\"",
     "synchronous: gradients are averaged in every step; diloco: weights are averaged every "
     "outer_every steps; downpour, easgd: workers exchange with a parameter server, each at its "
     "own pace",
     0, 0, "", "synchronous|diloco|downpour|easgd"},
    {"outer_every", OptionType::integer, "500", "diloco: steps between outer steps", 1, 1e9,
     "steps"},
    {"outer_rate", OptionType::number, "0.7", "diloco: learning rate of the outer step", 0, 10},
    {"outer_momentum", OptionType::number, "0.9", "diloco: Nesterov momentum of the outer step", 0,
     1},
    {"servers", OptionType::integer, "1",
     "number of shards of the parameter server, each a process ('echotrain parameter-server')", 1,
     1024},
    {"n_push", OptionType::integer, "1",
     "downpour: updates whose gradients a worker pushes together; easgd: steps between exchanges",
     1, 1e9},
    {"n_fetch", OptionType::integer, "1", "downpour: updates between fetches of the weights", 1,
     1e9},
    {"consistency", OptionType::string, "\"eventual\"",
     "how far workers may be apart: sequential: a worker continues when all others have pushed as "
     "often as it has; bounded: it may be up to 'delay' pushes ahead; eventual: no worker waits",
     0, 0, "", "eventual|bounded|sequential"},
    {"delay", OptionType::integer, "4",
     "consistency 'bounded': how many pushes a worker may be ahead of the slowest", 0, 1e9},
    {"warm_start", OptionType::integer, "0",
     "pushes that the first worker makes before the others start", 0, 1e12},
    {"server_optimizer", OptionType::string, "\"adagrad\"",
     "optimizer with which the shards apply gradients, at the learning rate of the workers' "
     "schedule",
     0, 0, "", "adagrad|sgd"},
    {"server_momentum", OptionType::number, "0", "momentum of server_optimizer 'sgd'", 0, 1},
    {"server_epsilon", OptionType::number, "1e-10",
     "server_optimizer 'adagrad': added to the root of the sum of squares",
     1e-37,  // as for optimizers: 0 would make NaN of a first gradient of 0
     1},
    {"server_weight_decay", OptionType::number, "0",
     "downpour: L2 penalty, which the shards add to the gradients", 0, 1},
    {"elastic_rate", OptionType::number, "0.1",
     "easgd: fraction of their distance by which a worker's weights and the servers' "
     "weights move towards each other",
     0, 1},
};

// The options of parallel.mesh.
constexpr OptionSpec kMesh[] = {
    {"data", OptionType::integer, "0",
     "number of data-parallel replicas, each of which gets a part of the samples; 0: "
     "the number of ranks divided by the other two sizes",
     0, kMostRanks},
    {"pipeline", OptionType::integer, "1",
     "number of stages into which the model is split; each runs on 'tensor' ranks", 1, kMostRanks},
    {"tensor", OptionType::integer, "1", "ranks that share the tensors of each layer", 1,
     kMostRanks},
};

const std::vector<std::string> kSections = {
    "name",      "description", "vars",  "seed",       "device", "pipeline", "model",
    "optimizer", "schedule",    "train", "evaluation", "output", "parallel", "classes"};

Json value_of(const std::string& text, const std::string& whole) {
  return parse_if_json(text, cat("--set ", whole)).value_or(Json(text));
}

// Returns the element that `key` names in `json`, and makes it if it does not exist.
Json& element(Json& json, const std::string& key, const std::string& whole) {
  if (!json.is_array()) {
    if (!json.is_object() && !json.is_null())
      fail(Code::invalid_argument, "job: '", key, "' of '", whole, "' would lie inside ",
           json.dump(), ", which is a plain value; set that as a whole");
    if (json.is_null()) json = Json::object();
    return json[key];
  }
  const bool number =
      !key.empty() && key.size() < 9 &&
      std::all_of(key.begin(), key.end(), [](unsigned char c) { return std::isdigit(c); });
  if (!number || std::stoul(key) >= json.size())
    fail(Code::invalid_argument, "job: '", key, "' of '", whole,
         "' is not an element of a list of ", json.size());
  return json[std::stoul(key)];
}

// Returns how many levels of arrays and objects are nested.
size_t depth_of(const Json& json) {
  size_t below = 0;
  for (const Json& part : json)
    if (part.is_structured()) below = std::max(below, depth_of(part));
  return json.is_structured() ? below + 1 : 0;
}

std::map<std::string, std::string> names_of_pretrained(const Options& train) {
  std::map<std::string, std::string> out;
  const std::vector<std::string> pairs = train.strings("pretrained_names");
  if (!pairs.empty() && train.string("pretrained").empty())
    fail(Code::invalid_argument,
         "train: 'pretrained_names' has no effect without 'pretrained', the file of the weights");
  for (const std::string& pair : pairs) {
    const size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0)
      fail(Code::invalid_argument, "train: 'pretrained_names' has '", pair,
           "', which is not of the form OURS=THEIRS");
    if (!out.emplace(pair.substr(0, equals), pair.substr(equals + 1)).second)
      fail(Code::invalid_argument, "train: 'pretrained_names' names '", pair.substr(0, equals),
           "' twice");
  }
  return out;
}

// The parts of a job whose options do not depend on the name of a stage, layer, model or optimizer.
std::vector<std::pair<const char*, Schema>> schemas_of_parts() {
  return {{"pipeline", pipeline::pipeline_schema()},
          {"loss", nn::loss_schema()},
          {"lora", nn::lora_schema()},
          {"schedule", optim::schedule_schema()},
          {"train", kTrain},
          {"evaluation", kEvaluation},
          {"output", kOutput},
          {"parallel", kParallel},
          {"mesh", kMesh}};
}

// The schemas of everything that a job may have.
std::vector<Schema> job_schemas() {
  std::vector<Schema> out{nn::layer_common_schema(), optim::update_schema()};
  for (const auto& [part, schema] : schemas_of_parts()) out.push_back(schema);
  for (const auto* stage : pipeline::stage_table()) out.push_back(stage->options);
  for (const auto* layer : nn::layer_table()) out.push_back(layer->options);
  for (const auto* model : nn::model_table()) out.push_back(model->options);
  for (const auto* optimizer : optim::optimizer_table()) out.push_back(optimizer->options);
  return out;
}

// The options of jobs that have a former name.
std::vector<const OptionSpec*> find_renamed_options() {
  std::vector<const OptionSpec*> renamed;
  for (const Schema schema : job_schemas())
    for (const OptionSpec& option : schema)
      if (*option.former) renamed.push_back(&option);
  return renamed;
}

// Returns the names of those options that are text, wherever they occur.
std::set<std::string> find_text_options() {
  std::set<std::string> texts, others;
  for (const Schema schema : job_schemas())
    for (const OptionSpec& option : schema) {
      std::set<std::string>& kind = option.type == OptionType::string ? texts : others;
      kind.insert(option.name);
      kind.insert(option.former);
    }
  for (const std::string& name : others) texts.erase(name);
  return texts;
}

// Returns whether the key at the end of `path` is an option that is text. A plain value is then
// taken as text even if it looks like a number: a date may name a folder.
bool is_text(const std::string& path) {
  static const std::set<std::string> texts = find_text_options();
  if (path == "name" || path == "description" || path == "device") return true;
  const size_t dot = path.rfind('.');
  return dot != std::string::npos && path.rfind("vars.", 0) != 0 &&
         texts.contains(path.substr(dot + 1));
}

// Removes the option that `key` was given for under its other name, present or former.
void remove_other_name(Json& options, const std::string& key) {
  static const std::vector<const OptionSpec*> renamed = find_renamed_options();
  for (const OptionSpec* option : renamed)
    if (option->is_called(key))
      remove_member(options, key == option->name ? option->former : option->name);
}

// Walks `path` ("pipeline.stages.3.factor") and sets the last key.
void set_path(Json& json, const std::string& path, const Json& value, const std::string& whole) {
  const auto keys = split(path, '.');
  if (keys.size() + depth_of(value) > kMaxJsonDepth)
    fail(Code::invalid_argument, "--set ", path.substr(0, 100), path.size() > 100 ? "..." : "",
         ": the job would be nested more than ", kMaxJsonDepth, " levels deep");
  Json* owner = &json;
  for (size_t i = 0; i + 1 < keys.size(); ++i)
    owner = &element(*owner, std::string(keys[i]), whole);
  const std::string last(keys.back());
  if (owner->is_object()) remove_other_name(*owner, last);
  element(*owner, last, whole) = value;
}

// Returns the new value of a variable: text, unless the job declares it as a number, a boolean or
// the like.
Json variable_of(const Json& declared, const std::string& value, const std::string& whole) {
  if (declared.is_null() || declared.is_string()) return value;
  Json parsed = value_of(value, whole);
  if (std::string(parsed.type_name()) != declared.type_name())
    fail(Code::invalid_argument, "'", whole, "': the job declares this variable as ",
         with_article(declared.type_name()), ", and its default is ", declared.dump());
  return parsed;
}

void apply_override(Json& job, const std::string& text) {
  if (!is_utf8(text))
    fail(Code::invalid_argument, "'", text, "' is not UTF-8, as the values of a job are");
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    fail(Code::invalid_argument, "'", text, "' is not of the form key=value");
  const std::string path = text.substr(0, equals);
  const std::string head = path.substr(0, path.find('.'));
  const bool section = std::find(kSections.begin(), kSections.end(), head) != kSections.end();
  if (section) {
    Json value = value_of(text.substr(equals + 1), path);
    if (!value.is_structured() && !value.is_string() && is_text(path))
      value = text.substr(equals + 1);
    return set_path(job, path, value, text);
  }
  if (!job.contains("vars") || !job["vars"].contains(path)) {
    std::vector<std::string> names = kSections;
    if (job.contains("vars"))
      for (const auto& [name, value] : job["vars"].items()) names.push_back(name);
    fail(Code::invalid_argument, "'", path, "' is neither a section nor a variable of this job",
         suggestion(head, names));
  }
  Json& variable = job["vars"][path];
  variable = variable_of(variable, text.substr(equals + 1), text);
}

const Json& value_of_variable(const std::string& name, const Json& vars, const std::string& where) {
  std::vector<std::string> names;
  for (const auto& [known, value] : vars.items()) names.push_back(known);
  if (!vars.contains(name))
    fail(Code::invalid_argument, where, ": there is no variable '", name, "'",
         suggestion(name, names));
  const Json& value = vars[name];
  if (value.is_null())
    fail(Code::invalid_argument, where, ": the variable '", name,
         "' has no value yet; give it with --set ", name, "=VALUE");
  return value;
}

// If a text is a single variable, it gets the variable's type.
Json expand(const std::string& text, const Json& vars, const std::string& where) {
  std::string out;
  size_t at = 0;
  for (size_t open; (open = text.find("${", at)) != std::string::npos;) {
    const size_t close = text.find('}', open);
    if (close == std::string::npos)
      fail(Code::invalid_argument, where, ": '", text, "' has '${' without '}'");
    const Json& value = value_of_variable(text.substr(open + 2, close - open - 2), vars, where);
    if (open == 0 && close + 1 == text.size()) return value;
    out +=
        text.substr(at, open - at) + (value.is_string() ? value.get<std::string>() : value.dump());
    at = close + 1;
  }
  return out + text.substr(at);
}

void require_object(const Json& json, const std::string& what) {
  if (json.is_object()) return;
  const std::string found = json.is_null() ? "null" : with_article(json.type_name());
  fail(Code::invalid_argument, "job: ", what, " must be an object, not ", found);
}

void expand_all(Json& json, const Json& vars, const std::string& where) {
  if (json.is_string()) {
    json = expand(json.get<std::string>(), vars, where);
    if (json.is_string()) check_no_nul(json, where);
  } else if (json.is_structured()) {
    for (auto& [key, value] : json.items()) expand_all(value, vars, where + "." + key);
  }
}

// A classifier that ends with a dense layer needs a name for each output.
void check_class_names(const Json& names, const nn::Model& model) {
  const Json& last = model.json()["layers"].back();
  if (!model.loss().classifies() || last["layer"] != "dense" || !last.contains("units")) return;
  const auto units = last["units"].get<int64_t>(), count = static_cast<int64_t>(names.size());
  if (units != count)
    fail(Code::invalid_argument, "job: 'classes' names ", counted(count, "class", "classes"),
         ", but the model's last layer has ", counted(units, "unit"),
         "; give the list and the model the same number");
}

// Updates that move every row in every step do not fit rows that only change when a batch names
// them.
void check_sparse(const Options& parallel, const nn::Model& model) {
  if (!model.has_sparse()) return;
  const Algorithm algorithm = algorithm_of(parallel);
  if (algorithm == Algorithm::elastic_averaging)
    fail(Code::invalid_argument,
         "parallel: 'easgd' exchanges whole tables, but the model has an embedding with "
         "'sparse': leave 'sparse' out, or use 'downpour'");
  if (algorithm == Algorithm::downpour && parallel.string("server_optimizer") == "sgd" &&
      parallel.number("server_momentum") > 0)
    fail(Code::invalid_argument,
         "parallel: server_momentum changes all rows in every push, but the model has an "
         "embedding with 'sparse': leave one of them out, or use server_optimizer "
         "'adagrad'");
}

// Rejects options that only synchronous training supports, instead of ignoring them.
void check_algorithm(const Options& parallel, const parallel::MeshShape& mesh) {
  const Algorithm algorithm = algorithm_of(parallel);
  if (algorithm == Algorithm::synchronous) return;
  const auto check = [&](bool given, const char* what, const char* instead) {
    if (given)
      fail(Code::invalid_argument, "parallel: the algorithm '", parallel.string("algorithm"),
           "' does not support ", what, instead);
  };
  const char* const drop = ": leave it out, or train synchronously";
  check(parallel.boolean("sync_batch_norm"), "sync_batch_norm", drop);
  check(parallel.string("compression") != "none", "compression", drop);
  check(parallel.integer("zero_stage") > 0, "zero_stage", drop);
  check(parallel.boolean("elastic"), "'elastic'", drop);
  const bool served = has_servers(algorithm);
  check(mesh.pipeline > 1 || mesh.tensor > 1 || (served && mesh.data > 0), "a mesh", drop);
  check(served && parallel.strings("devices").size() > 1, "several devices",
        ": start a worker for each");
}

// Rejects what needs whole tensors, or all gradients, if ranks divide these.
void check_zero_stage(const Options& parallel, const parallel::MeshShape& mesh,
                      const optim::UpdateSpec& update) {
  const int64_t stage = parallel.integer("zero_stage");
  if (stage == 0) return;
  const std::string where = cat("parallel.zero_stage ", stage);
  if (mesh.pipeline > 1 || mesh.tensor > 1)
    fail(Code::unsupported, where,
         " divides the update of a model that each rank has as a whole, but parallel.mesh "
         "divides the model itself: leave one of them out");
  if (stage == 2 && parallel.string("compression") != "none")
    fail(Code::unsupported, where, " sends each gradient to one rank only, but compression '",
         parallel.string("compression"),
         "' sums gradients for all ranks: leave compression out, or set zero_stage to 1");
  if (update.optimizer().takes_norms)
    fail(Code::unsupported, where, ": optimizer '", update.optimizer().name,
         "' needs norms of whole tensors, of which a rank may have only a part: use sgd, "
         "adam or adamw, or set zero_stage to 0");
}

}  // namespace

Json job_schema() {
  Json out = Json::object();
  for (const auto& [part, schema] : schemas_of_parts()) out[part] = schema_json(schema);
  return out;
}

Job Job::load(const std::string& path, const std::vector<std::string>& overrides) {
  const std::string stem = std::filesystem::path(path).stem().string();
  return parse(platform::read_document(path), cat("job file '", path, "'"), overrides,
               "runs/" + stem);
}

Job Job::parse(const std::string& text, const std::string& origin,
               const std::vector<std::string>& overrides) {
  return parse(text, origin, overrides, "");
}

Job Job::parse(const std::string& text, const std::string& origin,
               const std::vector<std::string>& overrides, const std::string& default_dir) {
  Job job;
  job.json_ = parse_json(text, origin);
  if (!job.json_.is_object())
    fail(Code::invalid_argument, origin, " holds no job: a job is a JSON object");
  check_keys(job.json_, kSections, origin);
  for (const std::string& override_text : overrides) apply_override(job.json_, override_text);
  job.written_ = job.json_;
  const Json vars = job.json_.value("vars", Json::object());
  if (!vars.is_object()) fail(Code::invalid_argument, origin, ": 'vars' must be an object");
  for (auto& [key, value] : job.json_.items())
    if (key != "vars") expand_all(value, vars, key);
  Json& output = job.json_["output"];
  if (output.is_null()) output = Json::object();
  if (!default_dir.empty() && output.is_object() && !output.contains("dir")) {
    if (!is_utf8(default_dir))
      fail(Code::invalid_argument, origin,
           ": a run writes into runs/, in a folder named after the file, whose name is not UTF-8; "
           "set output.dir, or rename the file");
    output["dir"] = default_dir;
  }
  job.validate();
  return job;
}

std::optional<std::string> Job::output_dir() const {
  if (!json_["output"].contains("dir")) return std::nullopt;
  return output().string("dir");
}

void Job::validate_parallel(Json parallel) {
  const Json mesh = parallel.is_object() ? parallel.value("mesh", Json::object()) : Json::object();
  require_object(mesh, "'mesh' of 'parallel'");
  std::vector<std::string> keys{"mesh"};
  for (const OptionSpec& option : kParallel) keys.emplace_back(option.name);
  check_keys(parallel, keys, "parallel");
  if (parallel.is_object()) remove_member(parallel, "mesh");
  parallel_.emplace(kParallel, "parallel", parallel);
  const Options sizes(kMesh, "parallel.mesh", mesh);
  const auto size_of = [&](const char* axis) { return static_cast<int>(sizes.integer(axis)); };
  mesh_ = {size_of("data"), size_of("pipeline"), size_of("tensor")};
  check_algorithm(*parallel_, mesh_);
}

void Job::validate() {
  for (const char* section : {"pipeline", "model", "optimizer", "schedule"}) {
    if (!json_.contains(section))
      fail(Code::invalid_argument, "job: the section '", section, "' is missing");
    require_object(json_[section], cat("the section '", section, "'"));
  }
  for (const char* section : {"train", "output", "evaluation", "parallel"})
    if (json_.contains(section) && !json_[section].is_null())
      require_object(json_[section], cat("the section '", section, "'"));
  for (const char* text : {"name", "device"})
    if (json_.contains(text) && !json_[text].is_string())
      fail(Code::invalid_argument, "job: '", text, "' must be text, not ", json_[text].dump());
  if (json_.contains("seed") && !json_["seed"].is_number_unsigned())
    fail(Code::invalid_argument, "job: 'seed' must be a whole number from 0, not ",
         json_["seed"].dump());
  if (json_.contains("classes")) {
    const Json& names = json_["classes"];
    if (!names.is_array() ||
        !std::all_of(names.begin(), names.end(), [](const Json& name) { return name.is_string(); }))
      fail(Code::invalid_argument,
           "job: 'classes' must be the list of the classes' names in the order of their numbers, "
           "not ",
           names.dump());
  }
  if (!json_["pipeline"].contains("seed")) json_["pipeline"]["seed"] = seed();
  pipeline::Pipeline check_pipeline(pipeline());
  nn::Model check_model(model());
  if (json_.contains("classes")) check_class_names(json_["classes"], check_model);
  optim::UpdateSpec check_optimizer(optimizer());
  train_.emplace(kTrain, "train", json_.value("train", Json::object()));
  pretrained_names_ = names_of_pretrained(*train_);
  output_.emplace(kOutput, "output", json_.value("output", Json::object()));
  if (json_.contains("parallel")) {
    validate_parallel(json_["parallel"]);
    check_sparse(*parallel_, check_model);
    check_unread_options(kParallel, *parallel_, mesh_, json_["pipeline"]);
  }
  if (parallel_) check_zero_stage(*parallel_, mesh_, check_optimizer);
  if (!json_.contains("evaluation")) return;
  Json evaluation = json_["evaluation"];
  if (!evaluation.contains("pipeline"))
    fail(Code::invalid_argument, "evaluation: needs a 'pipeline' of its own");
  require_object(evaluation["pipeline"], "the 'pipeline' of 'evaluation'");
  remove_member(evaluation, "pipeline");
  evaluation_.emplace(kEvaluation, "evaluation", evaluation);
  if (evaluation_->number("target_accuracy") > 0 && !check_model.loss().classifies())
    fail(Code::invalid_argument,
         "evaluation.target_accuracy: the model's loss has no accuracy, so the run would never "
         "reach it; set evaluation.target_loss");
  json_["evaluation"]["pipeline"]["epochs"] = 1;
  pipeline::Pipeline check_evaluation(evaluation_pipeline());
}

}  // namespace etr::train
