#include "core/table.h"
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
  return find_in_table(optimizer_table(), "optimizer", name);
}

}  // namespace etr::optim
