// tests/launch/park_messages_test.cpp: messages of a recovery, as written and not whole.
#include "launch/park_messages.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"

namespace weft {
namespace {

template <typename Message>
void expect_strict(const Message& sent) {
  EXPECT_EQ(Message::read(sent.write()).write(), sent.write());
  const Json whole = parse_json(sent.write(), "a message");
  for (const auto& [key, value] : whole.as_object()) {
    Json::Object without, other;
    for (const auto& [name, field] : whole.as_object()) {
      if (name != key) without.emplace_back(name, field);
      other.emplace_back(name, name == key ? Json(1.5) : field);
    }
    EXPECT_THROW(Message::read(Json(without).dump()), PeerError) << key;
    EXPECT_THROW(Message::read(Json(other).dump()), PeerError) << key;
  }
  EXPECT_THROW(Message::read("{"), PeerError);
}

TEST(ParkMessages, AreReadAsTheyWereWrittenAndRefusedWhereTheyAreNotWhole) {
  expect_strict(Park{3, "rank 1 was killed", true, false});
  expect_strict(Park{3, "node 1 was lost", false, true, 40});
  expect_strict(Parked{3, "rank 1 was killed", {40, 41}, {40}});
  expect_strict(Parked{3, "rank 1 was killed", {}, {}, "a layout is not whole"});
  expect_strict(Hung{3, 5, "update, step 7\n#0 wait"});
  expect_strict(Resume{4, 40, "10.0.0.1:4711"});
}

TEST(ParkMessages, NumbersHaveRanges) {
  EXPECT_EQ(Parked::read(Parked{3, "", {40, 41}, {}}.write()).steps,
            (std::vector<int64_t>{40, 41}));
  EXPECT_THROW(Parked::read(Parked{3, "", {-1}, {}}.write()), PeerError);
  EXPECT_THROW(Parked::read(Parked{3, "", {}, std::vector<int64_t>(65, 1)}.write()), PeerError);
  EXPECT_THROW(Resume::read(Resume{0, 40, ""}.write()), PeerError);  // the first was started
  EXPECT_LT(Hung::read(Hung{1, 1, std::string(1 << 20, 'x')}.write()).text.size(), 30'000u);
}

}  // namespace
}  // namespace weft
