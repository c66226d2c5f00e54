#include "parallel/mesh.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/text.h"

namespace etr::parallel {
namespace {

// Returns the member for the axis.
template <typename Of>
auto& along(Of& of, Axis axis) {
  return axis == Axis::data ? of.data : axis == Axis::pipeline ? of.pipeline : of.tensor;
}

const char* name_of(Axis axis) {
  return axis == Axis::data ? "data" : axis == Axis::pipeline ? "pipeline" : "tensor";
}

}  // namespace

std::string to_text(const MeshShape& shape) {
  return cat(shape.data, " x ", shape.pipeline, " x ", shape.tensor, " (data x pipeline x tensor)");
}

MeshShape MeshShape::fitted(int ranks) const {
  if (data < 0 || pipeline < 1 || tensor < 1 || ranks < 1)
    fail(Code::invalid_argument, "a mesh of ", to_text(*this), " for ", counted(ranks, "rank"),
         ": every size is 1 at least");
  const int64_t model = int64_t{pipeline} * tensor;
  if (data == 0 && ranks % model != 0)
    fail(Code::invalid_argument, "parallel.mesh: ", counted(ranks, "rank"),
         " cannot be laid out as data x ", pipeline, " x ", tensor,
         " (data x pipeline x tensor): their number must be a multiple of ", model);
  if (data > 0 && data * model != ranks)
    fail(Code::invalid_argument, "parallel.mesh: ", to_text(*this), " is for ",
         counted(data * model, "rank"), ", and there ", ranks == 1 ? "is " : "are ", ranks,
         ": start as many, or change the mesh");
  return {static_cast<int>(ranks / model), pipeline, tensor};
}

Mesh::Mesh(const MeshShape& shape, int rank, int ranks) : shape_(shape.fitted(ranks)) {
  if (rank < 0 || rank >= ranks)
    fail(Code::invalid_argument, "rank ", rank, " of ", counted(ranks, "rank"));
  coordinates_ = {rank / (shape_.pipeline * shape_.tensor), rank / shape_.tensor % shape_.pipeline,
                  rank % shape_.tensor};
}

int Mesh::rank_of(const Coordinates& at) const {
  return (at.data * shape_.pipeline + at.pipeline) * shape_.tensor + at.tensor;
}

int Mesh::place(Axis axis) const { return along(coordinates_, axis); }
int Mesh::length(Axis axis) const { return along(shape_, axis); }

int Mesh::neighbour(Axis axis, int steps) const {
  Coordinates there = coordinates_;
  int& place = along(there, axis);
  place += steps;
  return place < 0 || place >= length(axis) ? -1 : rank_of(there);
}

exchange::Group Mesh::line(exchange::Group& world, Axis axis) const {
  if (world.size() != shape_.size() || world.rank() != rank())
    fail(Code::invalid_argument, "rank ", world.rank(), " of ", world.size(), " is not rank ",
         rank(), " of a mesh of ", to_text(shape_));
  Coordinates first = coordinates_;
  along(first, axis) = 0;
  exchange::Group out = std::move(*world.split(rank_of(first), place(axis)));
  std::vector<int> ranks;
  for (int step = 0; step < length(axis); ++step)
    ranks.push_back(neighbour(axis, step - place(axis)));
  out.number_ranks(std::move(ranks), cat("parallel.mesh.", name_of(axis)));
  return out;
}

}  // namespace etr::parallel
