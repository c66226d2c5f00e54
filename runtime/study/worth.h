// What a repeated example is worth: the table on which predictions stand.
#pragma once

#include <span>

namespace etr::study {

// How an echo node's copies differ.
enum class Variant { before_augmentation, after_augmentation, batch };

// F_1 / F_e: how many times fewer fresh examples reached the target when each was used `factor` times.
struct Worth {
  Variant variant;
  double batch, factor, fewer;
};

// Measured on one workload: CIFAR-10 at 16 x 16, an MLP with 128 hidden units, Nesterov momentum, crop and flip, rates tuned for
// each row, a shuffle buffer of 10,000 copies (batches: unshuffled). Means where searches were repeated. Other data and
// models differ, so what follows from it is an estimate.
std::span<const Worth> worth_table();
inline constexpr const char* kWorthSource =
    "CIFAR-10 at 16 x 16 with a small MLP, rates tuned for each factor; other data and models "
    "differ";

// The same between the rows, linear in the logarithms of factor and batch, and constant outside the batches; the largest factor's
// beyond it. `drawn_anew`: the share of augmentations that every copy passes anew, between the values before and after
// augmentation (an assumption); without meaning for batches. 1 for a factor of 1.
double fewer_fresh(double drawn_anew, bool is_batch, double factor, double batch);

// The factor up to which such copies are advised: 8 before augmentation, 2 after, between these in proportion, and 1 for
// unshuffled batches; 2 for these where the batch is no smaller than the gradient noise scale. `noise_scale` 0: not known.
double most_factor(double drawn_anew, bool is_batch, double batch, double noise_scale);

}  // namespace etr::study
