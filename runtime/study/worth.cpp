#include "study/worth.h"

#include <algorithm>
#include <cmath>

namespace etr::study {
namespace {

constexpr double kSmall = 128, kLarge = 1024;  // batch sizes of the table

constexpr Worth kTable[] = {
    {Variant::before_augmentation, kSmall, 2, 1.85},
    {Variant::before_augmentation, kSmall, 4, 3.62},
    {Variant::before_augmentation, kSmall, 8, 6.22},
    {Variant::before_augmentation, kSmall, 16, 8.7},
    {Variant::before_augmentation, kLarge, 2, 1.82},
    {Variant::before_augmentation, kLarge, 4, 3.65},
    {Variant::before_augmentation, kLarge, 8, 6.5},
    {Variant::before_augmentation, kLarge, 16, 10.53},
    {Variant::after_augmentation, kSmall, 2, 1.55},
    {Variant::after_augmentation, kSmall, 4, 1.71},
    {Variant::after_augmentation, kSmall, 8, 1.32},
    {Variant::after_augmentation, kLarge, 2, 1.58},
    {Variant::after_augmentation, kLarge, 4, 2.21},
    {Variant::after_augmentation, kLarge, 8, 1.83},
    {Variant::batch, kSmall, 2, 1},
    {Variant::batch, kSmall, 4, 1.03},
    {Variant::batch, kSmall, 8, 1.06},
    {Variant::batch, kLarge, 2, 1.35},
    {Variant::batch, kLarge, 4, 1.64},
    {Variant::batch, kLarge, 8, 1.56},
};

double at_batch(Variant variant, double batch, double factor) {
  double before = 1, fewer_before = 1;
  for (const Worth& row : kTable) {
    if (row.variant != variant || row.batch != batch) continue;
    if (factor <= row.factor) {
      const double along = std::log(factor / before) / std::log(row.factor / before);
      return fewer_before + along * (row.fewer - fewer_before);
    }
    before = row.factor;
    fewer_before = row.fewer;
  }
  return fewer_before;
}

double of_variant(Variant variant, double batch, double factor) {
  const double along = std::clamp(std::log(batch / kSmall) / std::log(kLarge / kSmall), 0.0, 1.0);
  return (1 - along) * at_batch(variant, kSmall, factor) +
         along * at_batch(variant, kLarge, factor);
}

}  // namespace

std::span<const Worth> worth_table() { return kTable; }

double fewer_fresh(double drawn_anew, bool is_batch, double factor, double batch) {
  if (factor <= 1) return 1;
  if (is_batch) return of_variant(Variant::batch, batch, factor);
  return drawn_anew * of_variant(Variant::before_augmentation, batch, factor) +
         (1 - drawn_anew) * of_variant(Variant::after_augmentation, batch, factor);
}

double most_factor(double drawn_anew, bool is_batch, double batch, double noise_scale) {
  constexpr double kBefore = 8, kAfter = 2;
  if (is_batch) return noise_scale > 0 && batch >= noise_scale ? kAfter : 1;
  return kAfter + drawn_anew * (kBefore - kAfter);
}

}  // namespace etr::study
