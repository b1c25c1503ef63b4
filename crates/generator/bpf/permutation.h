/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Exactly-once pseudorandom order in O(1) memory: an unbalanced Feistel network over the smallest
 * power of two that holds the range, and cycle walking back into it. Each round replaces one half
 * by itself XOR a function of the other, so each round, and hence the whole, is a bijection
 * whatever the function is. Twin of src/permutation.rs.
 */
#ifndef PERMUTATION_H
#define PERMUTATION_H

/* At least half of the power of two is inside the range, so a walk this long has a chance below
 * 2^-48.
 */
#define WALK_MAX 48

static __always_inline __u32 mix32(__u32 x)
{
	x *= 0x9e3779b1;
	x ^= x >> 15;
	x *= 0x85ebca77;
	x ^= x >> 13;
	return x;
}

static __always_inline __u64 mix64(__u64 x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static __always_inline __u32 feistel(const struct permutation *p, __u32 x)
{
	__u32 low_mask = (__u32)((1ull << (p->low_bits & 31)) - 1);
	__u32 high_mask = (__u32)((1ull << (p->high_bits & 31)) - 1);
	__u32 low = x & low_mask, high = (x >> (p->low_bits & 31)) & high_mask;
	low ^= mix32(high ^ p->keys[0]) & low_mask;
	high ^= mix32(low ^ p->keys[1]) & high_mask;
	low ^= mix32(high ^ p->keys[2]) & low_mask;
	high ^= mix32(low ^ p->keys[3]) & high_mask;
	return high << (p->low_bits & 31) | low;
}

/* The x-th element; x beyond the range starts over. Returns the size itself if the walk does not
 * end.
 */
static __always_inline __u32 permute(const struct permutation *p, __u32 x)
{
	__u32 size = p->size;
	if (x >= size)
		x %= size;
	for (int i = 0; i < WALK_MAX; i++) {
		x = feistel(p, x);
		if (x < size)
			return x;
	}
	return size;
}

/* Uniform in [0, size), by the number of the frame alone. */
static __always_inline __u32 scatter(__u32 size, __u32 seed, __u32 x)
{
	return (__u32)(((mix64((__u64)seed << 32 | x) >> 32) * size) >> 32);
}

#endif
