// How the ranks of a group are laid out where a model is shared out, too: data x pipeline x tensor.
#pragma once

#include <string>

#include "exchange/group.h"

namespace etr::parallel {

// Along which ranks differ: in the part of the batch that they have, in the stage of the model, or in the part of its tensors.
enum class Axis { data, pipeline, tensor };

struct MeshShape {
  int data = 0;  // 0: what the other two leave of the ranks
  int pipeline = 1, tensor = 1;
  bool operator==(const MeshShape&) const = default;

  int size() const { return data * pipeline * tensor; }

  // With the number of ranks along `data`. Error(invalid_argument) that names the sizes where they do not make `ranks`.
  MeshShape fitted(int ranks) const;
};

std::string to_text(const MeshShape& shape);  // "2 x 4 x 1 (data x pipeline x tensor)"

struct Coordinates {
  int data = 0, pipeline = 0, tensor = 0;
  bool operator==(const Coordinates&) const = default;
};

// A rank's place. Ranks count through `tensor` first and through `data` last, so those that exchange most are neighbours:
// rank = (data * P + pipeline) * T + tensor.
class Mesh {
 public:
  // Error(invalid_argument) as of MeshShape::fitted().
  Mesh(const MeshShape& shape, int rank, int ranks);

  const MeshShape& shape() const { return shape_; }
  const Coordinates& coordinates() const { return coordinates_; }
  int rank() const { return rank_of(coordinates_); }
  int rank_of(const Coordinates& at) const;

  int place(Axis axis) const;  // of this rank along the axis
  int length(Axis axis) const;

  // The rank `steps` further along the axis; -1 beyond its ends.
  int neighbour(Axis axis, int steps) const;

  // The ranks that differ from this one in `axis` alone, ordered by their place along it. A call of all ranks of `world`, whose rank
  // is this one. The line's errors name ranks by their numbers in `world`.
  exchange::Group line(exchange::Group& world, Axis axis) const;

 private:
  MeshShape shape_;
  Coordinates coordinates_;
};

}  // namespace etr::parallel
