// The layout of ranks if the model is divided, too: data x pipeline x tensor.
#pragma once

#include <string>

#include "exchange/group.h"

namespace etr::parallel {

// How ranks differ: in their part of the batch, their stage of the model, or their slices of its
// tensors.
enum class Axis { data, pipeline, tensor };

struct MeshShape {
  int data = 0;  // 0: the number of ranks divided by the other two
  int pipeline = 1, tensor = 1;
  bool operator==(const MeshShape&) const = default;

  int size() const { return data * pipeline * tensor; }

  // Returns the shape with `data` filled in. Error(invalid_argument) names the sizes if they do not
  // fit `ranks`.
  MeshShape fitted(int ranks) const;
};

std::string to_text(const MeshShape& shape);  // "2 x 4 x 1 (data x pipeline x tensor)"

struct Coordinates {
  int data = 0, pipeline = 0, tensor = 0;
  bool operator==(const Coordinates&) const = default;
};

// A rank's place. Rank numbers vary fastest along `tensor` and slowest along `data`, so the ranks
// that exchange most are neighbours: rank = (data * P + pipeline) * T + tensor.
class Mesh {
 public:
  // Throws the errors of MeshShape::fitted().
  Mesh(const MeshShape& shape, int rank, int ranks);

  const MeshShape& shape() const { return shape_; }
  const Coordinates& coordinates() const { return coordinates_; }
  int rank() const { return rank_of(coordinates_); }
  int rank_of(const Coordinates& at) const;

  int place(Axis axis) const;  // this rank's coordinate along the axis
  int length(Axis axis) const;

  // Returns the rank `steps` further along the axis, or -1 beyond its ends.
  int neighbour(Axis axis, int steps) const;

  // Returns the group of the ranks that differ from this one in `axis` only, ordered along it.
  // Every rank of `world` calls it, with this rank's number there. The errors of the group name
  // ranks by their numbers in `world`.
  exchange::Group line(exchange::Group& world, Axis axis) const;

 private:
  MeshShape shape_;
  Coordinates coordinates_;
};

}  // namespace etr::parallel
