#include "sources/branch.h"

#include <algorithm>

#include "core/error.h"
#include "core/json.h"

namespace etr::sources {

using namespace pipeline;

namespace {

// Returns a position that gives a stage of a branch its own random numbers. No stage of the
// pipeline itself has a position that large.
uint64_t position_of(const StageContext& context, size_t branch, size_t stage) {
  return (context.position + 1) << 16 | (branch + 1) << 8 | stage;
}

}  // namespace

Branch::Branch(const Json& spec, const std::string& owner, size_t place,
               const StageContext& context) {
  const Json stages = spec.is_array() ? spec : Json::array({spec});
  for (size_t i = 0; i < stages.size(); ++i) {
    const std::string where = cat("stage '", owner, "', source ", place + 1);
    Json options = stages[i];
    if (!options.is_object() || !options.contains("stage") || !options["stage"].is_string())
      fail(Code::invalid_argument, where,
           " needs a key 'stage' with a stage's name: ", options.dump());
    const auto name = options["stage"].get<std::string>();
    remove_member(options, "stage");
    const StageSpec& found = find_stage(name);
    if (found.kind != (i == 0 ? StageKind::source : StageKind::map))
      fail(Code::invalid_argument, where, ": '", name,
           "' cannot stand there; a branch is a source, followed by stages that turn one sample "
           "into one");
    random_ = random_ || found.random;
    StageContext inner = context;
    inner.position = position_of(context, place, i);
    auto stage = found.make(Options(found.options, cat(where, " ('", name, "')"), options), inner);
    if (i == 0)
      source_ = std::get<std::unique_ptr<Source>>(std::move(stage));
    else
      maps_.push_back(std::get<std::unique_ptr<MapStage>>(std::move(stage)));
    if (i > 0 && (maps_.back()->may_drop() || maps_.back()->sample_cache()))
      fail(Code::invalid_argument, where, ": '", name, "' belongs after '", owner, "'");
  }
  if (!source_)
    fail(Code::invalid_argument, "stage '", owner, "', source ", place + 1, " is empty");
}

void Branch::start_pass(uint64_t epoch, uint64_t pass) {
  epoch_ = epoch;
  source_->start_pass(epoch, pass);
}

bool Branch::next(Item& item) {
  if (!source_->next(item)) return false;
  for (const auto& map : maps_) map->process(item, epoch_);
  return true;
}

Json Branch::data() { return source_->data(); }

Json Branch::changed() { return source_->changed(); }

Json data_of(std::vector<Branch>& branches) {
  Json out = Json::array();
  for (Branch& branch : branches) out.push_back(branch.data());
  return out;
}

double holds_bytes_of(std::vector<Branch>& branches, double sample_bytes) {
  double sum = 0;
  for (Branch& branch : branches) sum += branch.holds_bytes(sample_bytes);
  return sum;
}

std::vector<Branch> make_branches(const Options& options, const std::string& owner,
                                  const StageContext& context) {
  std::vector<Branch> branches;
  const Json& specs = options.json()["sources"];
  if (specs.size() > 200)
    fail(Code::invalid_argument, "stage '", owner, "': more than 200 sources");
  StageContext shared = context;
  shared.sharers *= std::max<size_t>(specs.size(), 1);
  for (const Json& spec : specs) branches.emplace_back(spec, owner, branches.size(), shared);
  if (branches.empty())
    fail(Code::invalid_argument, "stage '", owner, "' needs at least one source");
  return branches;
}

}  // namespace etr::sources
