// The loops of ceilings.h that need an instruction set of their own. Each runs `rounds` rounds of kPeakChains independent
// operations on 64-byte registers and returns something that depends on all of them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trefoil {

constexpr int kPeakChains = 12;

#if defined(__x86_64__)
float fma_loop_avx512(int64_t rounds) noexcept;
float dot_bf16_loop_avx512bf16(int64_t rounds) noexcept;
float dot_int8_loop_avx512vnni(int64_t rounds) noexcept;
float fma_loop_avx2(int64_t rounds) noexcept;  // 32-byte registers
// Reads every byte of a multiple of 512 bytes.
float read_loop_avx512(const std::byte* bytes, int64_t size) noexcept;
float read_loop_avx2(const std::byte* bytes, int64_t size) noexcept;
#endif

}  // namespace trefoil
