// Times of one block as a text of 1 to 2 characters each, for results that the repository keeps.
// Nothing is lost. A character has 6 bits, of base64's alphabet, so that the file is JSON as any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::bench {

// How many there are, their check sum, and each as its distance from a running mean, in a Rice code
// whose parameter follows the distances (Weinberger, Seroussi and Sapiro, "The LOCO-I lossless
// image compression algorithm", IEEE Transactions on Image Processing 2000).
std::string pack(const std::vector<uint32_t>& times);

// Throws std::runtime_error, which names the character.
std::vector<uint32_t> unpack(std::string_view text);

}  // namespace heddle::bench
