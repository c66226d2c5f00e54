// Sparse tables in this process's memory, with which a checkpoint of a run with a parameter server
// is evaluated without the server.
#pragma once

#include <vector>

#include "parallel/served_rows.h"
#include "parallel/sharing.h"

namespace etr::parallel {

// Cannot train: with_update() throws Error(state).
class LocalRows : public Sharing, private ServedRows {
 public:
  int rank() const override { return 0; }
  ServedRows* rows() override { return this; }
  gpu::CommandList with_update(const gpu::CommandList& commands, optim::Update& update,
                               const graph::ParameterStore& store, const Step& step,
                               gpu::Kernels& kernels, gpu::Allocator& memory) override;
  void share(graph::ParameterStore&) override {}
  void average_states(graph::ParameterStore&) override {}
  void load(const checkpoint::Files& files, const std::string& origin) override;

 private:
  void declare(std::vector<ServedTable> tables) override;
  void fetch(std::span<server::Rows> tables) override;
  void expect(uint32_t, std::vector<std::vector<uint32_t>>) override {}
  void fill();

  SavedRows saved_;
  std::vector<ServedTable> declared_;
  std::vector<server::Table> tables_;
};

}  // namespace etr::parallel
