#include "tokenizer/rank_bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace trefoil {
namespace {

// The definition, word for word and quadratic.
std::vector<int32_t> merge_by_definition(const std::map<std::string, int32_t>& ranks, const std::string& piece) {
  if (ranks.contains(piece)) return {ranks.at(piece)};
  std::vector<std::string> parts;
  for (const char c : piece) parts.emplace_back(1, c);
  while (true) {
    size_t best = parts.size();
    int32_t best_rank = INT32_MAX;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find(parts[i] + parts[i + 1]);
      if (found != ranks.end() && found->second < best_rank) best = i, best_rank = found->second;
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<int32_t> ids;
  for (const std::string& part : parts) ids.push_back(ranks.at(part));
  return ids;
}

// The 256 bytes, then random tokens over few letters in random order: no merge list could have made most of them.
std::vector<std::string> random_tokens(std::mt19937_64* rng, const std::string& letters) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  std::set<std::string> seen;
  for (uint64_t i = 0, n = (*rng)() % 60; i < n; ++i) {
    std::string token;
    for (uint64_t j = 0, length = 2 + (*rng)() % 4 * ((*rng)() % 3); j < length; ++j)
      token.push_back(letters[(*rng)() % letters.size()]);
    if (seen.insert(token).second) tokens.push_back(token);
  }
  return tokens;
}

TEST(RankBpe, EqualsTheDefinitionOnRandomVocabularies) {
  std::mt19937_64 rng(17);
  RankBpe::Scratch scratch;
  for (int round = 0; round < 150; ++round) {
    const std::string letters = std::string("abc\xE4\xBD").substr(0, 2 + rng() % 4);
    const std::vector<std::string> tokens = random_tokens(&rng, letters);
    const RankBpe bpe(tokens);
    std::map<std::string, int32_t> ranks;
    for (size_t id = 0; id < tokens.size(); ++id) ranks[tokens[id]] = static_cast<int32_t>(id);
    for (const size_t length :
         {size_t{1}, size_t{2}, size_t{3}, 4 + rng() % 56, size_t{64}, size_t{65}, 66 + rng() % 200}) {
      std::string piece;
      for (size_t i = 0; i < length; ++i) piece.push_back(letters[rng() % letters.size()]);
      std::vector<int32_t> ids;
      bpe.encode(piece, &scratch, &ids);
      ASSERT_EQ(ids, merge_by_definition(ranks, piece)) << "round " << round << ": " << piece;
    }
  }
}

// 25,000 characters in one piece is what the reference's cap allows; a million must do too.
TEST(RankBpe, LongPiecesMergeToTheEnd) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (size_t size = 2; size <= 1024; size *= 2) tokens.emplace_back(size, 'x');
  const RankBpe bpe(tokens);
  RankBpe::Scratch scratch;
  std::vector<int32_t> ids;
  bpe.encode(std::string(1'000'000, 'x'), &scratch, &ids);
  ASSERT_EQ(ids.size(), 976u + 2u);  // 976 * 1024 + 512 + 64
  EXPECT_EQ(ids[0], 265);
  EXPECT_EQ(ids[976], 264);
  EXPECT_EQ(ids[977], 261);
}

TEST(TokenTable, FindsEveryTokenAndNothingElse) {
  std::mt19937_64 rng(19);
  std::set<std::string> distinct;
  for (int byte = 0; byte < 256; ++byte) distinct.emplace(1, static_cast<char>(byte));
  while (distinct.size() < 20000) {
    std::string token;
    for (uint64_t j = 0, length = 1 + rng() % 40; j < length; ++j) token.push_back(static_cast<char>(rng() % 4));
    distinct.insert(token);
  }
  const std::vector<std::string> tokens(distinct.begin(), distinct.end());
  const TokenTable table(tokens);
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    EXPECT_EQ(table.rank(tokens[rank]), static_cast<int32_t>(rank));
    EXPECT_EQ(table.token(static_cast<int32_t>(rank)), tokens[rank]);
    const std::string longer = tokens[rank] + "\x05";
    EXPECT_EQ(table.rank(longer), TokenTable::kNoRank);
  }
  for (int first = 0; first < 8; ++first) {
    for (int second = 0; second < 8; ++second) {
      const std::string pair{static_cast<char>(first), static_cast<char>(second)};
      EXPECT_EQ(table.pair_rank(static_cast<uint8_t>(first), static_cast<uint8_t>(second)), table.rank(pair));
    }
  }
}

}  // namespace
}  // namespace trefoil
