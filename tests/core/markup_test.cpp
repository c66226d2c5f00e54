#include "core/markup.h"

#include <gtest/gtest.h>

namespace etr::test {
namespace {

TEST(Markup, EscapesMarkupCharacters) {
  EXPECT_EQ(escape_markup("<a href='x'>&\""), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;");
  EXPECT_EQ(escape_markup("&amp;"), "&amp;amp;");
  EXPECT_EQ(escape_markup(""), "");
}

TEST(Markup, ReplacesBytesThatXmlForbids) {
  EXPECT_EQ(escape_markup("a\tb\r\nc"), "a\tb\r\nc");
  EXPECT_EQ(escape_markup("\x02\x1f"), "\uFFFD\uFFFD");
  EXPECT_EQ(escape_markup("Zürich …"), "Zürich …");
  EXPECT_EQ(escape_markup("caf\xE9<"), "caf\\xE9&lt;");
}

}  // namespace
}  // namespace etr::test
