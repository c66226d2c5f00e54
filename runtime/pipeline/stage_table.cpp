#include "core/error.h"
#include "core/json.h"
#include "core/table.h"
#include "pipeline/stage.h"

namespace etr::pipeline {

#define ETR_STAGE(name) extern const StageSpec name##_stage;
#include "pipeline/stage_list.inc"
#undef ETR_STAGE

std::span<const StageSpec* const> stage_table() {
  static constexpr const StageSpec* kTable[] = {
#define ETR_STAGE(name) &name##_stage,
#include "pipeline/stage_list.inc"
#undef ETR_STAGE
  };
  return kTable;
}

const StageSpec& find_stage(const std::string& name) {
  return find_in_table(stage_table(), "stage", name);
}

void refuse_rest(const char* stage) {
  fail(Code::unsupported, "the stage '", stage,
       "' counts its samples, so the rest of an epoch cannot be divided among another "
       "number of processes: continue with the same number, or from the end of an epoch");
}

Json Source::changed() { return nullptr; }

void Emitter::reject(const Item& /*item*/, const Error& error) { throw Error(error); }

PassRules::PassRules(std::span<SerialStage* const> stages) {
  bool repeated = false;
  for (SerialStage* stage : stages) {
    if (const PassControl* control = stage->pass_control()) rules_.push_back({control, repeated});
    repeated = repeated || stage->traits().passes != 1;
  }
}

Demand PassRules::demand(uint64_t epoch, uint64_t pass) const {
  for (const Rule& rule : rules_) {
    const uint64_t satisfied = rule.control->satisfied_pass();
    if (rule.repeated && satisfied >> 32 == epoch + 1) return Demand::end_epoch;
    if (!rule.repeated && satisfied == pass_id(epoch, pass)) return Demand::end_pass;
  }
  return Demand::more;
}

const Tensor& require_field(const Item& item, std::string_view name) {
  if (const Tensor* tensor = item.find(name)) return *tensor;
  if (const OpaqueField* field = item.find_opaque(name))
    fail(Code::state, "field '", name, "' lies in ", field->contents->where(),
         "; only trainers read it there");
  std::string have;
  for (const Field& field : item.fields) have += (have.empty() ? "" : ", ") + field.name;
  fail(Code::not_found, "there is no field '", name,
       "' (the sample has: ", have.empty() ? "none" : have, ")");
}

const Tensor& require_image(const Item& item, std::string_view name) {
  const Tensor& image = require_field(item, name);
  if (image.shape().size() != 3 || image.dtype() == DType::i32)
    fail(Code::invalid_argument, "field '", name, "' is ", dtype_name(image.dtype()), " ",
         shape_text(image.shape()),
         ", not an image [H, W, C] of u8, u16 or f32; put decode before this stage");
  return image;
}

}  // namespace etr::pipeline
