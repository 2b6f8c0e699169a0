"""The language of the same."""
constexpr = int
