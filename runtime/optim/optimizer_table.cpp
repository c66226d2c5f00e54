#include "core/error.h"
#include "optim/optimizer.h"

namespace etr::optim {

#define ETR_OPTIMIZER(name) extern const OptimizerSpec name##_optimizer;
#include "optim/optimizer_list.inc"
#undef ETR_OPTIMIZER

std::span<const OptimizerSpec* const> optimizer_table() {
  static constexpr const OptimizerSpec* kTable[] = {
#define ETR_OPTIMIZER(name) &name##_optimizer,
#include "optim/optimizer_list.inc"
#undef ETR_OPTIMIZER
  };
  return kTable;
}

const OptimizerSpec& find_optimizer(const std::string& name) {
  std::vector<std::string> names;
  for (const OptimizerSpec* optimizer : optimizer_table()) {
    if (optimizer->name == name) return *optimizer;
    names.emplace_back(optimizer->name);
  }
  fail(Code::not_found, "there is no optimizer '", name, "'", suggestion(name, names));
}

}  // namespace etr::optim
