#include "parallel/served_rows.h"

#include <algorithm>
#include <utility>

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/json.h"
#include "core/json_members.h"

namespace etr::parallel {
namespace {

constexpr const char* kTables = "tables.json";
constexpr const char* kRows = "tables.safetensors";

Tensor tensor_of(const std::vector<float>& values, size_t rows) {
  const size_t width = rows ? values.size() / rows : 0;
  Tensor out(DType::f32, {static_cast<int64_t>(rows), static_cast<int64_t>(width)});
  std::ranges::copy(values, out.mutable_view<float>().begin());
  return out;
}

Tensor tensor_of(const std::vector<uint32_t>& ids) {
  Tensor out(DType::i32, {static_cast<int64_t>(ids.size())});
  std::ranges::transform(ids, out.mutable_view<int32_t>().begin(),
                         [](uint32_t id) { return static_cast<int32_t>(id); });
  return out;
}

// Reads the rows of one table from a checkpoint.
class Reading {
 public:
  Reading(const checkpoint::NamedTensors& tensors, std::string name, const server::TableSpec& spec,
          std::string origin)
      : tensors_(tensors), name_(std::move(name)), spec_(spec), origin_(std::move(origin)) {}

  server::Rows rows() const {
    server::Rows out;
    const Tensor* ids = find(".ids");
    if (!ids || ids->dtype() != DType::i32) damaged(".ids");
    for (const int32_t id : ids->view<int32_t>()) {
      if (id < 0 || static_cast<uint64_t>(id) >= spec_.entries) damaged(".ids");
      out.ids.push_back(static_cast<uint32_t>(id));
    }
    if (!find(".values")) damaged(".values");
    out.values = numbers(".values", out.ids.size());
    if (find(".state")) out.state = numbers(".state", out.ids.size());
    return out;
  }

 private:
  const Tensor* find(const char* part) const {
    const auto found = tensors_.find(name_ + part);
    return found == tensors_.end() ? nullptr : &found->second;
  }

  std::vector<float> numbers(const char* part, size_t rows) const {
    const Tensor& tensor = *find(part);
    if (tensor.dtype() != DType::f32 ||
        static_cast<uint64_t>(tensor.count()) != rows * uint64_t{spec_.width})
      damaged(part);
    const auto values = tensor.view<float>();
    return {values.begin(), values.end()};
  }

  [[noreturn]] void damaged(const char* part) const {
    fail(Code::corrupt_data, origin_, ": '", kRows, "': '", name_, part, "' is not what '", kTables,
         "' says");
  }

  const checkpoint::NamedTensors& tensors_;
  const std::string name_;
  const server::TableSpec spec_;
  const std::string origin_;
};

}  // namespace

void SavedRows::save(checkpoint::Files& files, std::span<const ServedTable> tables,
                     std::span<const server::Rows> rows) {
  Json json = Json::object();
  checkpoint::NamedTensors tensors;
  for (size_t i = 0; i < tables.size(); ++i) {
    const auto& [name, spec] = tables[i];
    json[name] = {{"entries", spec.entries}, {"width", spec.width}, {"seed", spec.seed}};
    tensors[name + ".ids"] = tensor_of(rows[i].ids);
    tensors[name + ".values"] = tensor_of(rows[i].values, rows[i].ids.size());
    if (!rows[i].state.empty())
      tensors[name + ".state"] = tensor_of(rows[i].state, rows[i].ids.size());
  }
  checkpoint::put_text(files, kTables, json.dump());
  files[kRows] = checkpoint::write_safetensors(tensors);
}

void SavedRows::load(const checkpoint::Files& files, const std::string& origin) {
  origin_ = origin;
  tables_.clear();
  if (!files.contains(kTables)) return;
  const Json json = checkpoint::json_of(files, kTables, origin);
  const auto found = files.find(kRows);
  if (found == files.end()) fail(Code::corrupt_data, origin, " has no file '", kRows, "'");
  const auto tensors = checkpoint::read_safetensors(found->second, cat(origin, ": '", kRows, "'"));
  for (const auto& [name, of] : json.items()) {
    const JsonMembers members(of, cat(origin, ": '", kTables, "' is damaged: '", name, "'"),
                              Code::corrupt_data);
    server::TableSpec spec;
    spec.entries = members.whole("entries");
    spec.width = static_cast<uint32_t>(members.whole("width", UINT32_MAX));
    spec.seed = members.whole("seed");
    tables_[name] = {spec, Reading(tensors, name, spec, origin).rows()};
  }
}

std::vector<server::Rows> SavedRows::match(std::vector<ServedTable>& tables) const {
  if (empty()) return {};
  std::vector<server::Rows> out;
  for (ServedTable& table : tables) {
    const auto found = tables_.find(table.name);
    if (found == tables_.end())
      fail(Code::invalid_argument, origin_, " has no rows of the sparse table '", table.name,
           "': it is of another model, or of a run in which that was not sparse");
    const server::TableSpec& saved = found->second.spec;
    if (saved.entries != table.spec.entries || saved.width != table.spec.width)
      fail(Code::invalid_argument, origin_, ": the table '", table.name, "' has ", saved.entries,
           " entries of ", saved.width, ", and the model's has ", table.spec.entries, " of ",
           table.spec.width);
    table.spec.seed = saved.seed;
    out.push_back(found->second.rows);
  }
  if (tables_.size() != tables.size())
    fail(Code::invalid_argument, origin_, " has ", tables_.size(),
         " sparse tables, and the model has ", tables.size());
  return out;
}

void RowGradients::declare(std::span<const ServedTable> tables) {
  for (const ServedTable& table : tables) widths_.push_back(table.spec.width);
  sums_.resize(widths_.size());
}

void RowGradients::expect(uint32_t step, std::vector<std::vector<uint32_t>> ids) {
  expected_[step] = std::move(ids);
}

namespace {

// Returns the sum of two sets of row gradients, with ids ascending.
server::Rows sum_of(const server::Rows& a, const std::vector<uint32_t>& ids, const float* values,
                    size_t width) {
  server::Rows out;
  out.ids.reserve(a.ids.size() + ids.size());
  out.values.reserve((a.ids.size() + ids.size()) * width);
  const auto append = [&](uint32_t id, const float* row) {
    out.ids.push_back(id);
    out.values.insert(out.values.end(), row, row + width);
  };
  size_t i = 0;
  for (size_t j = 0; j < ids.size(); ++j) {
    const float* row = values + j * width;
    for (; i < a.ids.size() && a.ids[i] < ids[j]; ++i)
      append(a.ids[i], a.values.data() + i * width);
    append(ids[j], row);
    if (i == a.ids.size() || a.ids[i] != ids[j]) continue;
    float* sum = out.values.data() + out.values.size() - width;
    for (size_t k = 0; k < width; ++k) sum[k] += a.values[i * width + k];
    ++i;
  }
  for (; i < a.ids.size(); ++i) append(a.ids[i], a.values.data() + i * width);
  return out;
}

}  // namespace

void RowGradients::add(uint32_t step, std::span<const float* const> gradients, bool updates) {
  const auto found = expected_.find(step);
  if (found == expected_.end())
    fail(Code::internal, "nobody has told which rows step ", step, " trains on");
  const auto ids = std::move(found->second);
  expected_.erase(expected_.begin(), std::next(found));
  if (!updates) return;
  for (size_t i = 0; i < ids.size(); ++i)
    sums_[i] = sum_of(sums_[i], ids[i], gradients[i], widths_[i]);
}

std::vector<server::Rows> RowGradients::take() {
  return std::exchange(sums_, std::vector<server::Rows>(widths_.size()));
}

}  // namespace etr::parallel
