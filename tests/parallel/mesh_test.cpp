#include "parallel/mesh.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "core/error.h"
#include "exchange/local.h"

namespace etr::test {
namespace {

using parallel::Axis;
using parallel::Coordinates;
using parallel::Mesh;
using parallel::MeshShape;

std::string error_of(const MeshShape& shape, int ranks) {
  try {
    shape.fitted(ranks);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(Mesh, DataIsWhatTheOthersLeave) {
  EXPECT_EQ((MeshShape{0, 2, 2}.fitted(8)), (MeshShape{2, 2, 2}));
  EXPECT_EQ((MeshShape{}.fitted(5)), (MeshShape{5, 1, 1}));
  EXPECT_EQ((MeshShape{2, 3, 1}.fitted(6)), (MeshShape{2, 3, 1}));
}

TEST(Mesh, NamesTheSizesThatDoNotFit) {
  EXPECT_NE(error_of({0, 2, 2}, 6).find("6 ranks cannot be laid out as data x 2 x 2"),
            std::string::npos);
  const std::string given = error_of({2, 2, 1}, 2);
  EXPECT_NE(given.find("2 x 2 x 1 (data x pipeline x tensor) is for 4 ranks, and there are 2"),
            std::string::npos)
      << given;
  EXPECT_NE(error_of({1, 0, 1}, 2), "");
  EXPECT_NE(error_of({1 << 20, 1 << 20, 1 << 20}, 2), "") << "no product overflows";
}

TEST(Mesh, EveryRankHasAPlaceOfItsOwn) {
  const MeshShape shape{2, 3, 2};
  for (int rank = 0; rank < shape.size(); ++rank) {
    const Mesh mesh(shape, rank, shape.size());
    EXPECT_EQ(mesh.rank(), rank);
    const Coordinates& at = mesh.coordinates();
    EXPECT_EQ((at.data * 3 + at.pipeline) * 2 + at.tensor, rank);
    EXPECT_EQ(mesh.place(Axis::pipeline), at.pipeline);
    EXPECT_EQ(mesh.length(Axis::pipeline), 3);
    const int next = mesh.neighbour(Axis::pipeline, 1);
    EXPECT_EQ(next, at.pipeline == 2 ? -1 : rank + 2);
    if (next >= 0) {
      EXPECT_EQ(Mesh(shape, next, 12).neighbour(Axis::pipeline, -1), rank);
    }
    EXPECT_EQ(mesh.neighbour(Axis::data, -1), at.data == 0 ? -1 : rank - 6);
  }
  EXPECT_THROW(Mesh(shape, 12, 12), Error);
  EXPECT_THROW(Mesh(shape, 0, 11), Error);
}

// The sum of the ranks in a line shows which ranks are in it.
TEST(Mesh, LinesAreGroups) {
  const MeshShape shape{2, 2, 2};
  std::vector<exchange::Group> world = exchange::local_groups(shape.size(), 30);
  std::vector<std::future<std::vector<int>>> ranks;
  for (int rank = 0; rank < shape.size(); ++rank)
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      const Mesh mesh(shape, rank, shape.size());
      std::vector<int> out;
      for (const Axis axis : {Axis::data, Axis::pipeline, Axis::tensor}) {
        exchange::Group line = mesh.line(world[static_cast<size_t>(rank)], axis);
        EXPECT_EQ(line.rank(), mesh.place(axis));
        EXPECT_EQ(line.size(), 2);
        int32_t sum = rank;
        line.all_reduce(std::span(&sum, 1));
        out.push_back(sum - rank);
      }
      return out;
    }));
  for (int rank = 0; rank < shape.size(); ++rank)
    EXPECT_EQ(ranks[static_cast<size_t>(rank)].get(),
              (std::vector<int>{rank ^ 4, rank ^ 2, rank ^ 1}));
}

TEST(Mesh, LinesNameRanksOfTheWorld) {
  const MeshShape shape{1, 2, 2};
  std::vector<exchange::Group> world = exchange::local_groups(shape.size(), 30);
  std::vector<std::future<void>> ranks;
  for (int rank = 0; rank < shape.size(); ++rank)
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      const Mesh mesh(shape, rank, shape.size());
      exchange::Group line =
          mesh.line(world[static_cast<size_t>(rank)], Axis::pipeline).duplicate();
      if (mesh.place(Axis::pipeline) == 1) return;  // leaves the line
      for (const char* what : {"first", "again"}) try {
          line.barrier();
          ADD_FAILURE() << what;
        } catch (const exchange::RankLost& lost) {
          EXPECT_EQ(lost.missing(), std::vector{rank + 2}) << lost.what();
          EXPECT_NE(std::string(lost.what()).find("along parallel.mesh.pipeline"),
                    std::string::npos)
              << lost.what();
        }
    }));
  for (auto& rank : ranks) rank.get();
}

}  // namespace
}  // namespace etr::test
