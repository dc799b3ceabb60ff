// EXPECT_TRUE(fails_with(ErrorCode::kCorrupt, "twice", [&] { parse(bytes); })): the code and a part of the message.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "trefoil/error.h"

namespace trefoil::testing {

template <typename Body>
::testing::AssertionResult fails_with(ErrorCode code, const std::string& part, Body body) {
  try {
    body();
  } catch (const Error& error) {
    if (error.code() == code && std::string(error.what()).find(part) != std::string::npos) {
      return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << "expected " << to_string(code) << " with \"" << part << "\", got "
                                         << to_string(error.code()) << ": " << error.what();
  }
  return ::testing::AssertionFailure() << "expected " << to_string(code) << " with \"" << part
                                       << "\", nothing was thrown";
}

}  // namespace trefoil::testing
